const TEXT_CHARS_MAX = 1000;
/** Codes that reject the gateway itself, whatever it requested. */
const GATEWAY_FAULTS = new Set([401, 402, 403, 405, 407]);

/** Codes of the upstream, or of a gateway like this one, that mean "slow down", whatever the HTTP status. */
const LIMITS = new Set([429, 2001, 2004]);

/** Codes that are documented to customers as this gateway's own. */
const isOurs = (code: number): boolean => code >= 2000 && code <= 2099;

/** A date in the form of RFC 9110 10.2.3 is shorter. */
const DATE_CHARS_MAX = 64;

type Envelope = Record<string, unknown> | undefined;

/** How the upstream refuses a request of any kind, by its envelope or by the HTTP status alone. */
export type UpstreamRejection =
  /** The upstream limits us; the seconds to wait, if it names them. */
  | { outcome: "rate_limited"; retryAfterSeconds: number | undefined }
  /** The fault is our credential, account or config; never the customer's. */
  | { outcome: "refused_gateway"; detail: string }
  /** The request itself was refused; `status` and `code` are for the customer. */
  | { outcome: "refused"; status: number; code: number; text: string };

/**
 * Reads a complete rejection: HTTP 4xx, or HTTP 200 with another body code.
 * @param of what a 404 is about: the task that was polled, or the request itself
 */
export function readRejection(
  { status, retryAfter }: { status: number; retryAfter: string | undefined },
  envelope: Envelope,
  of: "task" | "request",
): UpstreamRejection {
  const code = Number.isSafeInteger(envelope?.code) ? (envelope?.code as number) : status;
  const text = textOf(envelope);
  // A 404 about a request means that our address is wrong.
  const blamesGateway = (n: number): boolean => GATEWAY_FAULTS.has(n) || (n === 404 && of === "request");
  if (blamesGateway(status) || blamesGateway(code)) {
    return { outcome: "refused_gateway", detail: `HTTP ${status}, code ${code}: ${text ?? "no text"}` };
  }
  if (status === 429 || LIMITS.has(code)) {
    return { outcome: "rate_limited", retryAfterSeconds: waitSeconds(retryAfter, envelope) };
  }
  const shown = shownStatus(status, code);
  // A refusal must not have the code of a success.
  const shownCode = code === 200 || isOurs(code) ? shown : code;
  const words = text ?? `The video generation service refused the request (${shownCode})`;
  return { outcome: "refused", status: shown, code: shownCode, text: words };
}

/** The status that the customer gets: the upstream's 4xx, else its body code where that is a 4xx, else 502. */
function shownStatus(status: number, code: number): number {
  const is4xx = (n: number): boolean => Number.isInteger(n) && n >= 400 && n < 500;
  return is4xx(status) ? status : is4xx(code) ? code : 502;
}

/** The upstream's own text, bounded; undefined if it has none. */
function textOf(envelope: Envelope): string | undefined {
  for (const text of [envelope?.error, envelope?.msg]) {
    if (typeof text === "string" && text !== "") return text.slice(0, TEXT_CHARS_MAX).toWellFormed();
  }
  return undefined;
}

/** Seconds to wait: Retry-After as a number or a date (RFC 9110 10.2.3), else `retryAfter`. */
function waitSeconds(retryAfter: string | undefined, envelope: Envelope): number | undefined {
  if (retryAfter !== undefined && /^\d{1,9}$/.test(retryAfter)) return Number(retryAfter);
  const date = (retryAfter ?? "").slice(0, DATE_CHARS_MAX);
  const atMs = /^[A-Z][a-z]{2}, \d{2} /.test(date) ? Date.parse(date) : Number.NaN;
  if (!Number.isNaN(atMs)) return Math.max(0, Math.ceil((atMs - Date.now()) / 1000));
  const seconds = envelope?.retryAfter;
  return typeof seconds === "number" && seconds >= 0 ? Math.ceil(seconds) : undefined;
}
