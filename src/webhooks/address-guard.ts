import { isIP } from "node:net";
import {
  type AddressPolicy,
  addressProblem,
  isPortAllowed,
  NOT_PUBLIC,
  portProblem,
} from "./public-address.ts";

type AddressCheck = { ok: true; url: URL } | { ok: false; reason: string };

const URL_LENGTH_MAX = 2048;

/** Blanks, line breaks, control characters and backslashes, which `new URL` drops or repairs. */
const REPAIRED = /[^!-[\]-~\u0080-\u{10ffff}]/u;
/** Few name servers answer for it (RFC 6761 6.3), and nothing else is asked. */
const LOCALHOST = /(^|\.)localhost$/;
/** Names that no public server answers to. */
const INNER_NAMES = /(^|\.)(localdomain|local|internal|intranet|private|corp|home|lan|home\.arpa)$/;
const METADATA_NAMES = new Set([
  "metadata",
  "metadata.google.internal",
  "metadata.goog",
  "metadata.azure.internal",
  "metadata.tencentyun.com",
  "instance-data",
  "instance-data.ec2.internal",
]);

/** Without DNS: at registration and at each delivery. @returns use its `href`, so that what was checked is what is called */
export function checkAddress(text: string, policy: AddressPolicy): AddressCheck {
  const url = REPAIRED.test(text) || text.length > URL_LENGTH_MAX ? null : URL.parse(text);
  if (url === null)
    return refused(
      `must be an https address, such as https://example.com/webhooks, of at most ${URL_LENGTH_MAX} characters`,
    );
  if (url.protocol !== "https:" && url.protocol !== "http:") return refused("must be https");
  if (url.username || url.password) return refused("must hold no user or password");
  url.hash = "";
  // The `href` is kept and checked again at each delivery. `ü` is `%C3%BC` there.
  if (url.href.length > URL_LENGTH_MAX)
    return refused(
      `must have at most ${URL_LENGTH_MAX} characters with all that is not ASCII percent-encoded`,
    );
  const reason = hostProblem(url, policy);
  return reason === undefined ? { ok: true, url } : refused(reason);
}

/** As `checkAddress`. @returns the address as it is called, or why it must not be, in words that follow its name */
export function hrefOf(
  text: string,
  policy: AddressPolicy,
): { ok: true; url: string } | { ok: false; reason: string } {
  const checked = checkAddress(text, policy);
  return checked.ok ? { ok: true, url: checked.url.href } : checked;
}

const refused = (reason: string): AddressCheck => ({ ok: false, reason });

export const portOf = ({ protocol, port }: { protocol: string; port: string }): number =>
  Number(port || (protocol === "https:" ? 443 : 80));

function hostProblem(url: URL, policy: AddressPolicy): string | undefined {
  const host = url.hostname.replace(/^\[|\]$/g, "");
  if (isIP(host) !== 0) return addressProblem(host, { protocol: url.protocol, port: portOf(url) }, policy);
  return nameProblem(host.replace(/\.$/, ""), url, policy);
}

/** A name in an allowed network is decided once it is resolved. A proxy resolves names in place of the gateway, so none is left to it. */
function nameProblem(name: string, url: URL, policy: AddressPolicy): string | undefined {
  if (METADATA_NAMES.has(name) || LOCALHOST.test(name)) return NOT_PUBLIC;
  if (policy.allowNetworks.length > 0 && policy.proxyUrl === undefined) return undefined;
  if (!name.includes(".") || INNER_NAMES.test(name)) return NOT_PUBLIC;
  if (url.protocol !== "https:") return "must be https";
  return isPortAllowed(portOf(url), policy) ? undefined : portProblem(policy);
}
