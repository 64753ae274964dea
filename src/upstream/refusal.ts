/** How the upstream says no, in its envelope or by HTTP alone. */

const TEXT_CHARS_MAX = 1000;
/** Codes that blame the gateway, whatever it asked for; 404 only where it asked for no particular thing. */
const GATEWAY_FAULTS = new Set([401, 402, 403, 405, 407]);

/** Codes of the upstream and of gateways like this one that mean "slow down", whatever HTTP says. */
const LIMITS = new Set([429, 2001, 2004]);

/** Codes that customers are told are this gateway's own. */
const isOurs = (code: number): boolean => code >= 2000 && code <= 2099;

/** A date as RFC 9110 10.2.3 has it is shorter. */
const DATE_CHARS_MAX = 64;

type Envelope = Record<string, unknown> | undefined;

/** What every kind of request can meet. */
export type Trouble =
  /** It is limiting; seconds it asks us to wait, if it says so. */
  | { outcome: "rate_limited"; retryAfterSeconds: number | undefined }
  /** The fault is our credential, account or config; never the customer's. */
  | { outcome: "refused_gateway"; detail: string }
  /** The request itself was refused; `status` and `code` are for the customer. */
  | { outcome: "refused"; status: number; code: number; text: string };

/**
 * Reads a complete refusal: HTTP 4xx, or HTTP 200 with another body code.
 * @param asksForOne a poll asks for one task, so its 404 is about that task
 */
export function refusedBy(
  { status, retryAfter }: { status: number; retryAfter: string | undefined },
  envelope: Envelope,
  asksForOne: boolean,
): Trouble {
  const code = Number.isSafeInteger(envelope?.code) ? (envelope?.code as number) : status;
  const text = textOf(envelope);
  if (blamesGateway(status, code, asksForOne)) {
    return { outcome: "refused_gateway", detail: `HTTP ${status}, code ${code}: ${text ?? "no text"}` };
  }
  if (status === 429 || LIMITS.has(code)) {
    return { outcome: "rate_limited", retryAfterSeconds: waitSeconds(retryAfter, envelope) };
  }
  const shown = shownStatus(status, code);
  // 200 would call the refusal a success.
  const shownCode = code === 200 || isOurs(code) ? shown : code;
  const words = text ?? `The video generation service refused the request (${shownCode})`;
  return { outcome: "refused", status: shown, code: shownCode, text: words };
}

/** True when the upstream refuses us, not the request: our credential, our account or our config. */
function blamesGateway(status: number, code: number, asksForOne: boolean): boolean {
  return [status, code].some((n) => GATEWAY_FAULTS.has(n) || (n === 404 && !asksForOne));
}

/** The status a customer sees: the upstream's 4xx, else its body code where that is a 4xx, else 502. */
function shownStatus(status: number, code: number): number {
  const is4xx = (n: number): boolean => Number.isInteger(n) && n >= 400 && n < 500;
  return is4xx(status) ? status : is4xx(code) ? code : 502;
}

/** The upstream's own words, bounded; undefined when it has none. */
function textOf(envelope: Envelope): string | undefined {
  for (const text of [envelope?.error, envelope?.msg]) {
    if (typeof text === "string" && text !== "") return text.slice(0, TEXT_CHARS_MAX).toWellFormed();
  }
  return undefined;
}

/** Seconds it asks us to wait: Retry-After as a number or a date (RFC 9110 10.2.3), else `retryAfter`. */
function waitSeconds(retryAfter: string | undefined, envelope: Envelope): number | undefined {
  if (retryAfter !== undefined && /^\d{1,9}$/.test(retryAfter)) return Number(retryAfter);
  const date = (retryAfter ?? "").slice(0, DATE_CHARS_MAX);
  const atMs = /^[A-Z][a-z]{2}, \d{2} /.test(date) ? Date.parse(date) : Number.NaN;
  if (!Number.isNaN(atMs)) return Math.max(0, Math.ceil((atMs - Date.now()) / 1000));
  const seconds = envelope?.retryAfter;
  return typeof seconds === "number" && seconds >= 0 ? Math.ceil(seconds) : undefined;
}
