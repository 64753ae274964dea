import type { Refusal } from "../domain/errors.ts";
import { isObject, parseObject } from "../domain/json.ts";
import { isHttpsUrl } from "../domain/urls.ts";
import {
  type Answer,
  describeAnswer,
  type Envelope,
  isRedirect,
  isSuccessCode,
  isSuccessStatus,
  readRejection,
} from "./answer.ts";

/** The outcome of an upload. Each upload has exactly one. */
export type UploadOutcome =
  /** A success with an HTTPS URL and its expiry in UTC; `data` is all of the upstream's data, including these two. */
  | { outcome: "answered"; url: string; expiresAt: string; data: Record<string, unknown> }
  /** The client's request was invalid; no complete upload reached the upstream. */
  | { outcome: "refused"; refusal: Refusal }
  /** The upstream refused the upload itself; `status` and `code` are for the customer. */
  | { outcome: "upstream_refused"; status: number; code: number; text: string; detail: string }
  | { outcome: "upstream_rate_limited"; retryAfterSeconds: number | undefined; detail: string }
  /** The fault is our credential, account or config; never the customer's. */
  | { outcome: "refused_gateway"; detail: string }
  /** Unreachable, reset, 5xx or an invalid answer. `detail` is for the log. */
  | { outcome: "upstream_failed"; detail: string }
  | { outcome: "upstream_timeout"; detail: string }
  | { outcome: "client_gone" };

/** Reads an answer in the upstream's dialect: the envelope's code counts as much as the status. */
export function interpretAnswer(answer: Answer): UploadOutcome {
  const { status } = answer;
  const envelope = parseObject(answer.body);
  if (isRedirect(status) || (status >= 400 && status < 500)) return refusedUpload(answer, envelope);
  const code = envelope?.code;
  if (!isSuccessStatus(status) || !Number.isSafeInteger(code))
    return { outcome: "upstream_failed", detail: describeAnswer(answer, envelope) };
  return isSuccessCode(code as number) ? uploaded(envelope?.data) : refusedUpload(answer, envelope);
}

function refusedUpload(answer: Answer, envelope: Envelope): UploadOutcome {
  const rejection = readRejection(answer, envelope, "request");
  switch (rejection.outcome) {
    case "rate_limited":
      return { ...rejection, outcome: "upstream_rate_limited" };
    case "refused_gateway":
      return rejection;
    case "refused":
      return { ...rejection, outcome: "upstream_refused" };
  }
}

/** ISO 8601 in UTC, in the form of RFC 3339. */
const UTC_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)$/;

/** A success whose data have the fields that the API promises. */
function uploaded(data: unknown): UploadOutcome {
  if (!isObject(data)) return { outcome: "upstream_failed", detail: "code 200 without usable data" };
  const { url, expires_at: expiresAt } = data;
  // A URI is ASCII (RFC 3986), and an imageUrl must pass isHttpsUrl.
  if (typeof url !== "string" || !/^[!-~]+$/.test(url) || !isHttpsUrl(url))
    return { outcome: "upstream_failed", detail: "code 200 without an https url" };
  if (typeof expiresAt !== "string" || !UTC_TIME.test(expiresAt) || Number.isNaN(Date.parse(expiresAt)))
    return { outcome: "upstream_failed", detail: "code 200 without expires_at in UTC" };
  return { outcome: "answered", url, expiresAt, data };
}
