import { domainToUnicode } from "node:url";

/** The pattern of docs/openapi.json. Stricter than `new URL`, without look-ahead, linear. Decision 0035. */
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
/** A last label with a leading digit would be a number to `new URL`. */
const HOST_NAME = `(?:[${NAME_CHAR}0-9-]+\\.)*[${NAME_CHAR}][${NAME_CHAR}0-9-]*\\.?`;
const PORT = "(?:[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])";
const USER = "[^\\x00-\\x20\\x7f/?#@\\[\\]\\\\]*@";
const AFTER_HOST = "[/?#][^\\x00-\\x20\\x7f\\\\]*";
const rest = `://(?:${USER})?(?:\\[(?:${IPV6})\\]|${IPV4}|${HOST_NAME})(?::${PORT}?)?(?:${AFTER_HOST})?$`;

export const WEB_URL_PATTERN = `^[Hh][Tt][Tt][Pp][Ss]?${rest}`;
export const HTTPS_URL_PATTERN = `^[Hh][Tt][Tt][Pp][Ss]${rest}`;

const HOST = /^[^/]*\/\/(?:[^/?#@]*@)?([^/?#:]*)/;
const NOT_ASCII = /[\x80-\uffff]/;
/** The longest name of DNS (RFC 1035 section 2.3.4) and a final dot. The time for other scripts grows with the square of the length. */
const HOST_CHARS_MAX = 254;

const WEB_URL = new RegExp(WEB_URL_PATTERN);
const HTTPS_URL = new RegExp(HTTPS_URL_PATTERN);

export const isWebUrl = (text: string): boolean => WEB_URL.test(text) && isHostAsWritten(text);

export const isHttpsUrl = (text: string): boolean => HTTPS_URL.test(text) && isHostAsWritten(text);

/** The WHATWG parser reads the same host: no soft hyphen, full-width letter or invalid Punycode. */
function isHostAsWritten(text: string): boolean {
  const written = HOST.exec(text)?.[1] ?? "";
  if (written.length > HOST_CHARS_MAX) return false;
  const host = URL.parse(text)?.hostname;
  if (host === undefined) return false;
  if (!NOT_ASCII.test(written)) return !host.includes("xn--") || !domainToUnicode(host).includes("xn--");
  return domainToUnicode(host) === written.toLowerCase().normalize("NFC");
}

/** Prefix and parsed origin must agree, so that no look-alike host passes. @param sourceHost origin without trailing slash */
export function isOnSourceHost(text: string, sourceHost: string): boolean {
  if (!text.startsWith(`${sourceHost}/`) || !isWebUrl(text)) return false;
  return URL.parse(text)?.origin === new URL(sourceHost).origin;
}
