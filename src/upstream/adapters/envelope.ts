import { API_PREFIX } from "../../domain/endpoints.ts";
import { isObject } from "../../domain/json.ts";
import { isHttpsUrl } from "../../domain/urls.ts";
import type {
  Adapter,
  AdapterResponse,
  Created,
  Polled,
  PolledTask,
  Rejection,
  Uploaded,
} from "../adapter.ts";
import {
  codeOf,
  type Envelope,
  isRedirect,
  isSuccessCode,
  isSuccessStatus,
  isUtcTime,
  taskIdIn,
} from "../answer.ts";

/** The interface's own shapes: an upstream that speaks what this gateway serves. What its answers mean: decision 0003. */
export const ENVELOPE: Adapter = {
  name: "envelope",
  create: ({ endpoint, text }) => ({ method: "POST", path: API_PREFIX + endpoint, text }),
  created,
  // Ids of the interface need no escapes, but the task may be another adapter's, if its record was restored.
  poll: ({ taskId }) => ({ method: "GET", path: `${API_PREFIX}tasks/${encodeURIComponent(taskId)}` }),
  polled,
  upload: () => ({ path: `${API_PREFIX}upload` }),
  uploaded,
  callback: ({ json }) => taskIdIn(json),
};

/** The id of a task of any form, also where the answer as a whole cannot be read. */
const NAMED_TASK = /"task_id"\s*:\s*(?:"[^"]|[\d[{-])/;

/** With a 2xx, an id in `data` counts more than the code, and one beside the code as much as it. Otherwise unclear, never a refusal. */
function created(response: AdapterResponse): Created {
  const { status, json } = response;
  const taskId = taskIdIn(json);
  const task = taskIn(json);
  const isBound = (isObject(json?.data) && json.data.task_id === taskId) || isSuccessCode(codeOf(json));
  if (taskId !== undefined && task && isSuccessStatus(status) && isBound)
    return { outcome: "accepted", taskId, task };
  const namesTask = taskId !== undefined || NAMED_TASK.test(response.body);
  if (!namesTask && isRefusal(status, json)) return rejection(response, "request");
  return { outcome: status === 503 && !namesTask ? "unavailable" : "unclear" };
}

/** The fields of a task: `data`, or what stands beside the code if the id does. */
function taskIn(envelope: Envelope): Readonly<Record<string, unknown>> | undefined {
  const data = isObject(envelope?.data) ? envelope.data : undefined;
  if (envelope?.task_id === undefined) return data;
  const { code, msg, error, data: _, ...beside } = envelope;
  return data ? { task_id: beside.task_id, ...data } : beside;
}

/** A success with a code that means something else, a redirect, or HTTP 4xx. */
function isRefusal(status: number, envelope: Envelope): boolean {
  if (isSuccessStatus(status)) return !isSuccessCode(codeOf(envelope));
  return isRedirect(status) || (status >= 400 && status < 500);
}

function polled(response: AdapterResponse, _task: PolledTask): Polled {
  const { status, json } = response;
  const isSuccess = isSuccessStatus(status);
  const task = taskIn(json);
  const code = codeOf(json);
  if (isSuccess && isSuccessCode(code) && task) return described(task);
  if (code === 404 && (status === 404 || isSuccess)) return { outcome: "gone" };
  // Without an envelope it is not the API that does not know the task.
  if (isRedirect(status) || (status === 404 && (code === undefined || code === 200)))
    return { outcome: "misrouted" };
  if (isSuccess ? isSuccessCode(code) : status < 400 || status >= 500) return { outcome: "failed" };
  const rejected = rejection(response, "task");
  return rejected.outcome === "refused" ? { ...rejected, isFinal: isAboutTask(status, code) } : rejected;
}

function described(data: Readonly<Record<string, unknown>>): Polled {
  // The API requires the id; without it, it is not known which task the answer is about.
  if (data.task_id === undefined) return { outcome: "failed", why: "the answer has no task_id" };
  return { outcome: "task", status: typeof data.status === "string" ? data.status : "", task: data };
}

const isTransient = (n = 0): boolean => n === 408 || n === 425 || (n >= 500 && n < 600);

/** An answer without a code is not the API's. */
function isAboutTask(status: number, code: number | undefined): boolean {
  return code !== undefined && !isTransient(status) && !isTransient(code);
}

/** The envelope's code counts as much as the status. */
function uploaded(response: AdapterResponse): Uploaded {
  const { status, json } = response;
  const code = codeOf(json);
  if (isTransient(status) || isTransient(code)) return { outcome: "failed" };
  if (isRedirect(status) || (status >= 400 && status < 500)) return rejection(response, "request");
  if (!isSuccessStatus(status) || code === undefined || !Number.isSafeInteger(code))
    return { outcome: "failed" };
  return isSuccessCode(code) ? image(json?.data) : rejection(response, "request");
}

/** A success whose data have the fields that the API promises. */
function image(data: unknown): Uploaded {
  if (!isObject(data)) return { outcome: "failed", why: "code 200 without usable data" };
  const { url, expires_at: expiresAt } = data;
  // A URI is ASCII (RFC 3986).
  if (typeof url !== "string" || !/^[!-~]+$/.test(url) || !isHttpsUrl(url))
    return { outcome: "failed", why: "code 200 without an https url" };
  if (!isUtcTime(expiresAt)) return { outcome: "failed", why: "code 200 without expires_at in UTC" };
  return { outcome: "uploaded", url, expiresAt, data };
}

/** Codes that reject the gateway itself, whatever it requested. */
const GATEWAY_FAULTS = new Set([401, 402, 403, 405, 407]);
/** Words of a 403 about a prompt or an image that the upstream does not want. */
const ABOUT_CONTENT =
  /\b(?:prompts?|nsfw|moderat(?:ed|ion)|content[ _-](?:policy|policies|filters?|safety|violations?)|safety[ _-](?:system|filters?|policy|policies)|inappropriate|sexual|violence)\b/i;
/** Words of a 403 about us. */
const ABOUT_GATEWAY =
  /\b(?:api[ _-]?keys?|credentials?|unauthori[sz]ed|permissions?|subscription|your[ _-]account|this[ _-]account)\b/i;

/** Codes of the upstream, or of a gateway like this one, that mean "slow down", whatever the HTTP status. */
const LIMITS = new Set([429, 2001, 2004]);

/** HTTP 4xx, a redirect, or a success with another body code. @param of what a 404 is about */
function rejection({ status, json }: AdapterResponse, of: "task" | "request"): Rejection {
  const given = codeOf(json);
  const code = given !== undefined && Number.isSafeInteger(given) ? given : status;
  const text = textOf(json);
  const isModerated = (n: number): boolean => n === 403 && isAboutContent(text);
  // A 404 about a request, and a redirect, mean that our address is wrong.
  const blamesGateway = (n: number): boolean =>
    (GATEWAY_FAULTS.has(n) && !isModerated(n)) || (n === 404 && of === "request") || isRedirect(n);
  if (blamesGateway(status) || blamesGateway(code)) return { outcome: "refused_gateway" };
  if (status === 429 || LIMITS.has(code)) {
    const seconds = json?.retryAfter;
    return { outcome: "rate_limited", retryAfterSeconds: typeof seconds === "number" ? seconds : undefined };
  }
  return { outcome: "refused", text, status: shownStatus(status, code), code };
}

const isAboutContent = (text: string | undefined): boolean =>
  text !== undefined && ABOUT_CONTENT.test(text) && !ABOUT_GATEWAY.test(text);

/** The status that the customer gets: the upstream's 4xx, else its body code where that is a 4xx, else 502. */
function shownStatus(status: number, code: number): number {
  const is4xx = (n: number): boolean => Number.isInteger(n) && n >= 400 && n < 500;
  return is4xx(status) ? status : is4xx(code) ? code : 502;
}

/** The upstream's own text; undefined if it has none. Common frameworks put it in one of these places. */
function textOf(envelope: Envelope): string | undefined {
  for (const given of [envelope?.error, envelope?.msg, envelope?.message, envelope?.detail]) {
    const [first] = Array.isArray(given) ? given : [given];
    const text = isObject(first) ? (first.message ?? first.msg) : first;
    if (typeof text === "string" && text !== "") return text;
  }
  return undefined;
}
