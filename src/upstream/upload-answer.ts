import type { Refusal } from "../core/errors.ts";
import { isObject, parseObject } from "../core/json.ts";
import { isLimiting, textOf, waitSeconds } from "./refusal.ts";

/** What became of an upload. Each upload has exactly one. */
export type UploadOutcome =
  /** HTTP 200, code 200 and a URL; `data` is all that the upstream said, `url` and `expires_at` included. */
  | { outcome: "answered"; url: string; expiresAt: string; data: Record<string, unknown> }
  /** The client's request was at fault; no complete upload reached the upstream. */
  | { outcome: "refused"; refusal: Refusal }
  /** The upstream said no: HTTP 4xx, or HTTP 200 (then `status` is 200) with another body code. */
  | { outcome: "upstream_refused"; status: number; code: number; text: string }
  | { outcome: "upstream_rate_limited"; retryAfterSeconds: number | undefined }
  /** Unreachable, reset, 5xx or senseless. `detail` is for the log. */
  | { outcome: "upstream_failed"; detail: string }
  | { outcome: "upstream_timeout"; detail: string }
  | { outcome: "client_gone" };

/** A complete answer of the upstream. */
export interface UpstreamAnswer {
  status: number;
  retryAfter: string | undefined;
  /** The body, decoded as UTF-8. */
  text: string;
}

const NO_WORDS = "The video generation service refused the upload";

/** Reads an answer in the upstream's dialect: the envelope's code counts as much as the status. Spec 2.1, part 7. */
export function interpretAnswer(answer: UpstreamAnswer): UploadOutcome {
  const { status } = answer;
  const envelope = parseObject(answer.text);
  const code = Number.isSafeInteger(envelope?.code) ? (envelope?.code as number) : undefined;
  if (isLimiting(status, status === 200 ? code : undefined))
    return { outcome: "upstream_rate_limited", retryAfterSeconds: waitSeconds(answer.retryAfter, envelope) };
  if (status >= 400 && status < 500)
    return { outcome: "upstream_refused", status, code: code ?? status, text: textOf(envelope) ?? NO_WORDS };
  if (status !== 200) return { outcome: "upstream_failed", detail: `status ${status}` };
  if (envelope === undefined || code === undefined)
    return { outcome: "upstream_failed", detail: "status 200 without an envelope" };
  if (code !== 200) return { outcome: "upstream_refused", status, code, text: textOf(envelope) ?? NO_WORDS };
  return uploaded(envelope.data);
}

function uploaded(data: unknown): UploadOutcome {
  if (!isObject(data)) return { outcome: "upstream_failed", detail: "code 200 without usable data" };
  const { url, expires_at: expiresAt } = data;
  if (typeof url !== "string" || !/^https?:\/\/[\x21-\x7e]+$/i.test(url) || !URL.canParse(url))
    return { outcome: "upstream_failed", detail: "code 200 without an http(s) url" };
  if (typeof expiresAt !== "string" || Number.isNaN(Date.parse(expiresAt)))
    return { outcome: "upstream_failed", detail: "code 200 without expires_at" };
  return { outcome: "answered", url, expiresAt, data };
}
