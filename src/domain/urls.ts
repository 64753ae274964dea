import { domainToUnicode } from "node:url";

/**
 * A well-formed http(s) URL as a pattern: the whole rule, and what `docs/openapi.json` shows, so that a client that
 * validates by the description agrees with the gateway on each URL. Stricter than `new URL`, which would quietly repair
 * spaces, control characters and backslashes and reads `1.2` as an address; written without look-ahead, which many
 * languages' patterns lack. Takes time linear in the text. Decision 0035.
 */
const HEX = "[0-9A-Fa-f]{1,4}";
const IPV6 = [
  `(?:${HEX}:){7}${HEX}`,
  `(?:${HEX}:){1,7}:`,
  ...[1, 2, 3, 4, 5, 6].map((after) => `(?:${HEX}:){1,${7 - after}}(?::${HEX}){1,${after}}`),
  `:(?:(?::${HEX}){1,7}|:)`,
].join("|");
const OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const IPV4 = `(?:${OCTET}\\.){3}${OCTET}`;
const NAME_CHAR = "A-Za-z_\\x80-\\uffff";
/** No name ends in a label that begins with a digit: that would be a number to `new URL`. */
const HOST_NAME = `(?:[${NAME_CHAR}0-9-]+\\.)*[${NAME_CHAR}][${NAME_CHAR}0-9-]*\\.?`;
const PORT = "(?:[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])";
const USER = "[^\\x00-\\x20\\x7f/?#@\\[\\]\\\\]*@";
const AFTER_HOST = "[/?#][^\\x00-\\x20\\x7f\\\\]*";
const rest = `://(?:${USER})?(?:\\[(?:${IPV6})\\]|${IPV4}|${HOST_NAME})(?::${PORT}?)?(?:${AFTER_HOST})?$`;

export const WEB_URL_PATTERN = `^[Hh][Tt][Tt][Pp][Ss]?${rest}`;
export const HTTPS_URL_PATTERN = `^[Hh][Tt][Tt][Pp][Ss]${rest}`;

const HOST = /^[^/]*\/\/(?:[^/?#@]*@)?([^/?#:]*)/;
const NOT_ASCII = /[\x80-\uffff]/;

const WEB_URL = new RegExp(WEB_URL_PATTERN);
const HTTPS_URL = new RegExp(HTTPS_URL_PATTERN);

/** A well-formed http(s) URL, taken literally: nothing that a parser would first have to mend. */
export const isWebUrl = (text: string): boolean => WEB_URL.test(text) && isHostAsWritten(text);

/** A well-formed https URL, taken literally. */
export const isHttpsUrl = (text: string): boolean => HTTPS_URL.test(text) && isHostAsWritten(text);

/**
 * The parser of the WHATWG URL standard accepts the host, and reads the letters that stand there: no soft hyphen that vanishes, no
 * full-width letter that becomes another one, no Punycode that stands for nothing. Upper and lower case are the same host.
 */
function isHostAsWritten(text: string): boolean {
  const host = URL.parse(text)?.hostname;
  if (host === undefined) return false;
  const written = HOST.exec(text)?.[1] ?? "";
  if (!NOT_ASCII.test(written)) return !host.includes("xn--") || !domainToUnicode(host).includes("xn--");
  return domainToUnicode(host) === written.toLowerCase().normalize("NFC");
}

/**
 * A URL on the one supported source host: the raw prefix and the parsed origin must both agree, so neither a
 * look-alike host nor a repaired URL passes.
 * @param sourceHost origin without a trailing slash, from the config
 */
export function isOnSourceHost(text: string, sourceHost: string): boolean {
  if (!text.startsWith(`${sourceHost}/`) || !isWebUrl(text)) return false;
  return URL.parse(text)?.origin === new URL(sourceHost).origin;
}
