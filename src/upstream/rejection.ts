import { isObject } from "../domain/json.ts";
import { type Answer, describeAnswer, type Envelope, isRedirect, isSuccessCode } from "./answer.ts";

const TEXT_CHARS_MAX = 1000;
/** Codes that reject the gateway itself, whatever it requested. */
const GATEWAY_FAULTS = new Set([401, 402, 403, 405, 407]);
/** What a 403 says of a prompt or an image that the upstream does not want. */
const ABOUT_CONTENT =
  /\b(?:prompts?|nsfw|moderat(?:ed|ion)|content[ _-](?:policy|policies|filters?|safety|violations?)|safety[ _-](?:system|filters?|policy|policies)|inappropriate|sexual|violence)\b/i;
/** What a 403 says of us. */
const ABOUT_GATEWAY =
  /\b(?:api[ _-]?keys?|credentials?|unauthori[sz]ed|permissions?|subscription|your[ _-]account|this[ _-]account)\b/i;

/** Codes of the upstream, or of a gateway like this one, that mean "slow down", whatever the HTTP status. */
const LIMITS = new Set([429, 2001, 2004]);

/** Codes that are documented to customers as this gateway's own. */
const isOurs = (code: number): boolean => code >= 2000 && code <= 2099;

/** A date in the form of RFC 9110 10.2.3 is shorter. */
const DATE_CHARS_MAX = 64;

/**
 * How the upstream refuses a request of any kind, by its envelope or by the HTTP status alone. `detail` is for the log: the
 * status, the code and the beginning of the answer.
 */
export type UpstreamRejection =
  /** The upstream limits us; the seconds to wait, if it names them. */
  | { outcome: "rate_limited"; retryAfterSeconds: number | undefined; detail: string }
  /** The fault is our credential, account or config; never the customer's. */
  | { outcome: "refused_gateway"; detail: string }
  /** The request itself was refused; `status` and `code` are for the customer. */
  | { outcome: "refused"; status: number; code: number; text: string; detail: string };

/**
 * Reads a complete rejection: HTTP 4xx, a redirect, or a success with another body code.
 * @param of what a 404 is about: the task that was polled, or the request itself
 * @param sent the request's body, of which nothing must get into the log
 */
export function readRejection(
  answer: Answer,
  envelope: Envelope,
  of: "task" | "request",
  sent?: string,
): UpstreamRejection {
  const { status, retryAfter } = answer;
  const detail = describeAnswer(answer, envelope, sent);
  const code = Number.isSafeInteger(envelope?.code) ? (envelope?.code as number) : status;
  const text = textOf(envelope);
  const isModerated = (n: number): boolean => n === 403 && isAboutContent(text);
  // A 404 about a request, and a redirect, mean that our address is wrong.
  const blamesGateway = (n: number): boolean =>
    (GATEWAY_FAULTS.has(n) && !isModerated(n)) || (n === 404 && of === "request") || isRedirect(n);
  if (blamesGateway(status) || blamesGateway(code)) return { outcome: "refused_gateway", detail };
  if (status === 429 || LIMITS.has(code)) {
    return { outcome: "rate_limited", retryAfterSeconds: waitSeconds(retryAfter, envelope), detail };
  }
  const shown = shownStatus(status, code);
  // A refusal must not have the code of a success.
  const shownCode = isSuccessCode(code) || isOurs(code) ? shown : code;
  const words = text ?? `The video generation service refused the request (${shownCode})`;
  return { outcome: "refused", status: shown, code: shownCode, text: words, detail };
}

const isAboutContent = (text: string | undefined): boolean =>
  text !== undefined && ABOUT_CONTENT.test(text) && !ABOUT_GATEWAY.test(text);

/** The status that the customer gets: the upstream's 4xx, else its body code where that is a 4xx, else 502. */
function shownStatus(status: number, code: number): number {
  const is4xx = (n: number): boolean => Number.isInteger(n) && n >= 400 && n < 500;
  return is4xx(status) ? status : is4xx(code) ? code : 502;
}

/** The upstream's own text, bounded; undefined if it has none. Common frameworks put it in one of these places. */
function textOf(envelope: Envelope): string | undefined {
  for (const said of [envelope?.error, envelope?.msg, envelope?.message, envelope?.detail]) {
    const [first] = Array.isArray(said) ? said : [said];
    const text = isObject(first) ? (first.message ?? first.msg) : first;
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
