import type { Rejection } from "./adapter.ts";
import { type Answer, isSuccessCode } from "./answer.ts";
import { AdapterMistake } from "./dialect.ts";

const TEXT_CHARS_MAX = 1000;

/** Codes that are documented to customers as this gateway's own. */
const isOurs = (code: number): boolean => code >= 2000 && code <= 2099;

const DATE_CHARS_MAX = 64;

/** As its adapter reads it. `detail` is for the log: status, code and beginning of the answer. */
export type UpstreamRejection =
  | { outcome: "rate_limited"; retryAfterSeconds: number | undefined; detail: string }
  /** The fault is our credential, account or config; never the customer's. */
  | { outcome: "refused_gateway"; detail: string }
  /** The request itself was refused; `status` and `code` are for the customer. */
  | { outcome: "refused"; status: number; code: number; text: string; detail: string };

/** Text bounded, code none of a success or of this gateway. @throws AdapterMistake for one that has members of other types */
export function readRejection(
  rejection: Rejection,
  { retryAfter }: Answer,
  detail: string,
): UpstreamRejection {
  switch (rejection.outcome) {
    case "refused_gateway":
      return { outcome: "refused_gateway", detail };
    case "rate_limited": {
      const retryAfterSeconds = headerSeconds(retryAfter) ?? bodySeconds(rejection.retryAfterSeconds);
      return { outcome: "rate_limited", retryAfterSeconds, detail };
    }
    case "refused": {
      const { text, status = 400, code = status } = rejection;
      if (!isErrorStatus(status))
        throw new AdapterMistake("returned a refusal with a status that is no error");
      if (!Number.isSafeInteger(code))
        throw new AdapterMistake("returned a refusal with a code that is no number");
      const shownCode = isSuccessCode(code) || isOurs(code) ? status : code;
      const words = textOf(text) ?? `The video generation service refused the request (${shownCode})`;
      return { outcome: "refused", status, code: shownCode, text: words, detail };
    }
    default:
      throw new AdapterMistake("returned an outcome that is unknown here");
  }
}

const isErrorStatus = (status: unknown): boolean =>
  Number.isInteger(status) && (status as number) >= 400 && (status as number) < 600;

function textOf(text: unknown): string | undefined {
  if (text === undefined || text === "") return undefined;
  if (typeof text !== "string") throw new AdapterMistake("returned a refusal whose text is none");
  return text.slice(0, TEXT_CHARS_MAX).toWellFormed();
}

function headerSeconds(retryAfter: string | undefined): number | undefined {
  if (retryAfter !== undefined && /^\d{1,9}$/.test(retryAfter)) return Number(retryAfter);
  const date = (retryAfter ?? "").slice(0, DATE_CHARS_MAX);
  const atMs = /^[A-Z][a-z]{2}, \d{2} /.test(date) ? Date.parse(date) : Number.NaN;
  return Number.isNaN(atMs) ? undefined : Math.max(0, Math.ceil((atMs - Date.now()) / 1000));
}

const bodySeconds = (seconds: unknown): number | undefined =>
  typeof seconds === "number" && seconds >= 0 ? Math.ceil(seconds) : undefined;
