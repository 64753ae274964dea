import type { Refusal } from "../domain/errors.ts";
import { isObject, parseObject } from "../domain/json.ts";
import { isHttpsUrl } from "../domain/urls.ts";
import type { Uploaded } from "./adapter.ts";
import { type Answer, describeAnswer, excerptOf } from "./answer.ts";
import { AdapterMistake, type Dialect, ENVELOPE_DIALECT, responseOf, returned } from "./dialect.ts";
import { readRejection } from "./rejection.ts";
import { isUtcTime, utcTime } from "./task-data.ts";

export type UploadOutcome =
  /** A success with an HTTPS URL and its expiry in UTC; `data` is all of the upstream's data, including these two. */
  | { outcome: "answered"; url: string; expiresAt: string; data: Record<string, unknown> }
  /** The client's request was invalid; no complete upload reached the upstream. */
  | { outcome: "refused"; refusal: Refusal }
  | { outcome: "upstream_refused"; status: number; code: number; text: string; detail: string }
  | { outcome: "upstream_rate_limited"; retryAfterSeconds: number | undefined; detail: string }
  /** The fault is our credential, account or config; never the customer's. */
  | { outcome: "refused_gateway"; detail: string }
  | { outcome: "upstream_failed"; detail: string }
  | { outcome: "upstream_timeout"; detail: string }
  | { outcome: "client_gone" };

/** Promised by the API, for an upstream that does not say when its address ends. */
const IMAGE_LIFETIME_MS = 5 * 60_000;

export function interpretAnswer(answer: Answer, dialect: Dialect = ENVELOPE_DIALECT): UploadOutcome {
  const json = parseObject(answer.body);
  const { adapter, options } = dialect;
  const described = () => describeAnswer(answer, json);
  const outcome = dialect.call("uploaded", "", (): UploadOutcome => {
    if (adapter.uploaded === undefined) throw new AdapterMistake("is missing");
    const uploaded: Uploaded = returned(adapter.uploaded(responseOf(answer, json), options));
    switch (uploaded.outcome) {
      case "uploaded":
        return imageOf(uploaded);
      case "failed":
        return failed(uploaded.why === undefined ? described() : excerptOf(uploaded.why, ""));
      default:
        return refusedUpload(readRejection(uploaded, answer, described()));
    }
  });
  return outcome.outcome === "adapter_fault" ? failed(`${outcome.detail}; ${described()}`) : outcome;
}

const failed = (detail: string): UploadOutcome => ({ outcome: "upstream_failed", detail });

function refusedUpload(rejection: ReturnType<typeof readRejection>): UploadOutcome {
  switch (rejection.outcome) {
    case "rate_limited":
      return { ...rejection, outcome: "upstream_rate_limited" };
    case "refused_gateway":
      return rejection;
    case "refused":
      return { ...rejection, outcome: "upstream_refused" };
  }
}

function imageOf({ url, expiresAt, data = {} }: Extract<Uploaded, { outcome: "uploaded" }>): UploadOutcome {
  // A URI is ASCII (RFC 3986), and an imageUrl must pass isHttpsUrl.
  if (typeof url !== "string" || !/^[!-~]+$/.test(url) || !isHttpsUrl(url))
    throw new AdapterMistake("returned an upload without an https url");
  if (!isObject(data)) throw new AdapterMistake("returned data of an upload that are no object");
  return { outcome: "answered", url, expiresAt: expiryOf(expiresAt), data };
}

function expiryOf(expiresAt: unknown): string {
  if (isUtcTime(expiresAt)) return expiresAt;
  if (expiresAt === undefined) return new Date(Date.now() + IMAGE_LIFETIME_MS).toISOString();
  const time = utcTime(expiresAt);
  if (time === undefined) throw new AdapterMistake("returned an upload with an expiry that is no time");
  return time;
}
