import { TASK } from "../domain/answers.ts";
import { isObject, parseObject } from "../domain/json.ts";
import { type StatusWords, TASK_ID, type TaskStatus, taskStatusOf } from "../domain/task-states.ts";
import { SMALL_ANSWER_BYTES } from "./large-answers.ts";

// How the upstream's answers are read. All of it is pure: what an answer means depends on the answer alone. Decision 0003.

/** A complete answer of the upstream. */
export interface Answer {
  status: number;
  retryAfter: string | undefined;
  /** As UTF-8; our credential is redacted. */
  body: string;
}

/** The body as a JSON object; undefined if it is none. */
export type Envelope = Record<string, unknown> | undefined;

const EXCERPT_CHARS_MAX = 200;
/** Values in a URL's query, which often are credentials. */
const QUERY = /([?&][\w.~%-]{1,64}=)[^\s&"'<>\\]+/g;
/** A character that JSON spells by its number. */
const ESCAPE = /\\u([0-9a-fA-F]{4})/g;
/** Shorter runs that request and answer share say nothing. */
const ECHO_CHARS_MIN = 6;
/** Redirects that say that nothing was done. After a 303 the request may have run. RFC 9110 15.4. */
const REDIRECTS = new Set([301, 302, 307, 308]);

export const isSuccessStatus = (status: number): boolean => status >= 200 && status < 300;

export const isRedirect = (status: number): boolean => REDIRECTS.has(status);

/** The envelope's code. Some upstreams write it as a text of digits. */
export function codeOf(envelope: Envelope): number | undefined {
  const code = envelope?.code;
  if (typeof code === "string" && /^\d{1,6}$/.test(code)) return Number(code);
  return typeof code === "number" ? code : undefined;
}

/** True for codes that mean success: 200 in this API, 0 or another 2xx in others, and none at all. */
export const isSuccessCode = (code: number | undefined): boolean =>
  code === undefined || code === 0 || isSuccessStatus(code);

/** The id of a task, if the answer has one, whatever else it says. */
export function taskIdIn(envelope: Envelope): string | undefined {
  const data = isObject(envelope?.data) ? envelope.data : undefined;
  const id = data?.task_id ?? envelope?.task_id;
  return typeof id === "string" && TASK_ID.test(id) ? id : undefined;
}

/**
 * An answer in a line of the log, so that it can be found again at the upstream: status, code, task id and its beginning.
 * @param sent the request's body: what the answer repeats of it is the customer's, and is left out
 */
export function describeAnswer({ status, body }: Answer, envelope: Envelope, sent = ""): string {
  const id = taskIdIn(envelope);
  const code =
    envelope?.code === undefined ? "no code" : `code ${JSON.stringify(envelope.code).slice(0, 20)}`;
  const named = id === undefined ? "" : `, task id ${id}`;
  return `HTTP ${status}, ${code}${named}: ${excerptOf(body, sent)}`;
}

function excerptOf(body: string, sent: string): string {
  // Cut twice: the work is bounded, and half of a value that ends at the first cut is not shown.
  const text = body
    .slice(0, 2 * EXCERPT_CHARS_MAX)
    .replace(ESCAPE, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  const shown = withoutEcho(text.replace(QUERY, "$1[redacted]"), sent);
  return shown.slice(0, EXCERPT_CHARS_MAX).toWellFormed() || "no body";
}

/** Replaces each run of characters that a value of the request has, too. */
function withoutEcho(text: string, request: string): string {
  const sent = valuesOf(request);
  if (sent === "") return text;
  let shown = "";
  for (let at = 0; at < text.length && shown.length < EXCERPT_CHARS_MAX; ) {
    let end = at + ECHO_CHARS_MIN;
    if (end > text.length || !sent.includes(text.slice(at, end))) {
      shown += text[at++];
      continue;
    }
    while (end < text.length && sent.includes(text.slice(at, end + 1))) end++;
    shown += "[request]";
    at = end;
  }
  return shown;
}

/** The texts in a JSON body; the names beside them are the API's. */
function valuesOf(body: string): string {
  const texts: string[] = [];
  try {
    JSON.parse(body, (_name, value: unknown) => {
      if (typeof value === "string") texts.push(value);
      return value;
    });
  } catch {
    return body;
  }
  return texts.join("\n");
}

/** The id of a task of any form, also where the answer as a whole cannot be read. */
const NAMED_TASK = /"task_id"\s*:\s*(?:"[^"]|[\d[{-])/;

/** What an answer to a generation means. After `unclear` the task may run; `accepted` is the only definite yes. */
export type GenerationAnswer =
  | UpstreamRejection
  | { outcome: "accepted"; taskId: string; data: string }
  /** HTTP 503: it was not run. */
  | { outcome: "unreachable"; detail: string }
  | { outcome: "unclear"; detail: string };

/**
 * Reads an answer to a generation. An id in hand counts more than the code beside it: with any 2xx the task is bound, and
 * polls tell what becomes of it; otherwise the outcome is unclear. It never is a refusal. Decision 0003.
 * @param sent the request's body, of which nothing must get into the log
 */
export function readGeneration(answer: Answer, sent?: string, statuses?: StatusWords): GenerationAnswer {
  const { status } = answer;
  const envelope = parseObject(answer.body);
  const taskId = taskIdIn(envelope);
  const data = envelope?.data;
  if (taskId !== undefined && isSuccessStatus(status) && isObject(data) && data.task_id === taskId) {
    return { outcome: "accepted", taskId, data: dataText(newTask(data, statuses)) };
  }
  const namesTask = taskId !== undefined || NAMED_TASK.test(answer.body);
  if (!namesTask && isRefusal(status, envelope)) return readRejection(answer, envelope, "request", sent);
  const isUnavailable = status === 503 && !namesTask;
  return {
    outcome: isUnavailable ? "unreachable" : "unclear",
    detail: describeAnswer(answer, envelope, sent),
  };
}

/** A success with a code that means something else, a redirect, or HTTP 4xx. */
function isRefusal(status: number, envelope: Envelope): boolean {
  if (isSuccessStatus(status)) return typeof envelope?.code === "number" && !isSuccessCode(envelope.code);
  return isRedirect(status) || (status >= 400 && status < 500);
}

/**
 * Longest data of a task that are kept whole, characters of JSON. They are stored, and pass through Redis several times at
 * each poll: 0.7 ms of Redis each time, 12 ms for 1 MiB. Decision 0035.
 */
export const TASK_DATA_CHARS_MAX = SMALL_ANSWER_BYTES;

/** A number of percent as some upstreams write it, such as `45%`. */
const PERCENT = /^(\d{1,3}(?:\.\d{1,9})?) ?%?$/;
/** RFC 3339 in UTC, as the API has it. */
const UTC_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|\+00:00)$/;
/** A time that says how far it is from UTC. */
const ZONED_TIME = /^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:?\d\d)$/;
const UNIX_TIME = /^\d{10}(?:\d{3})?(?:\.\d{1,9})?$/;

const SPEC_FIELDS = Object.keys(TASK.properties);
/** Bound of each field, with which all of them together stay within the bound of the data. */
const FIELD_CHARS_MAX = 8 * 1024;

/** Data of a task as JSON. Beyond the bound only the API's fields remain, without texts that are long themselves. */
export function dataText(data: Record<string, unknown>): string {
  const text = JSON.stringify(data);
  if (text.length <= TASK_DATA_CHARS_MAX) return text;
  const fields = SPEC_FIELDS.filter((name) => isShort(data[name]));
  return JSON.stringify(Object.fromEntries(fields.map((name) => [name, data[name]])));
}

const isShort = (value: unknown): boolean =>
  typeof value === "string"
    ? JSON.stringify(value).length <= FIELD_CHARS_MAX
    : typeof value === "number" || value === null;

/** How an upstream describes a task, read as the API's task. `data` has the API's words and forms, or leaves them out. */
export type TaskReading =
  | { status: TaskStatus; data: Record<string, unknown>; lacksVideo?: true }
  /** The word is not known; `data` says `processing`. */
  | { status: undefined; word: string; data: Record<string, unknown> };

/**
 * Reads the data of a polled task, and changes them. A task without a usable `video_url` is not completed, whatever it says; and one
 * that is not completed has none, since it may be refunded.
 * @param createdAtMs when the task was bound, for data that do not say when it was created
 */
export function readTask(
  data: Record<string, unknown>,
  word: string,
  { createdAtMs, statuses }: { createdAtMs?: number | undefined; statuses?: StatusWords | undefined },
): TaskReading {
  normalizeFields(data, createdAtMs);
  const status = taskStatusOf(word, statuses);
  data.status = status ?? "processing";
  const hasVideo = isVideoUrl(data.video_url);
  if (status !== "completed" || !hasVideo) delete data.video_url;
  if (status === undefined) return { status, word: word.slice(0, WORD_CHARS_SHOWN_MAX).toWellFormed(), data };
  if (status !== "completed" || hasVideo) return { status, data };
  data.status = "processing";
  delete data.completed_at;
  return { status: "processing", data, lacksVideo: true };
}

/** Reads the data of a new task, and changes them. A state that is not known is left out. */
export function newTask(data: Record<string, unknown>, statuses?: StatusWords): Record<string, unknown> {
  const known = typeof data.status === "string" && taskStatusOf(data.status, statuses) !== undefined;
  if (known) return readTask(data, data.status as string, { statuses }).data;
  normalizeFields(data, undefined);
  delete data.status;
  delete data.video_url;
  return data;
}

/** Data of a new task as JSON, without its video if it has one already: that comes with a poll, which finds it charged. */
export function withoutVideo(text: string): string {
  const data = parseObject(text);
  if (data?.video_url === undefined) return text;
  const { video_url, completed_at, ...rest } = data;
  return JSON.stringify({ ...rest, status: "processing" });
}

const WORD_CHARS_SHOWN_MAX = 32;

/** Lenient: a video that was made must not be lost because of a space in its address. */
const isVideoUrl = (value: unknown): boolean =>
  typeof value === "string" && /^ *https?:\/\//i.test(value) && URL.canParse(value);

/** Progress and times in the API's forms: a number of percent, ISO 8601 in UTC. What cannot be read is left out. */
function normalizeFields(data: Record<string, unknown>, createdAtMs: number | undefined): void {
  if (data.progress !== undefined) replace(data, "progress", percent(data.progress));
  if (data.completed_at !== undefined) replace(data, "completed_at", utcTime(data.completed_at));
  const created = data.created_at;
  if (typeof created === "string" && UTC_TIME.test(created)) return;
  // The API requires it, and the time of the charge is better than a number without a unit.
  if (createdAtMs === undefined) replace(data, "created_at", utcTime(created));
  else {
    const said = typeof created === "string" ? utcTime(created) : undefined;
    data.created_at = said ?? new Date(createdAtMs).toISOString();
  }
}

function replace(data: Record<string, unknown>, name: string, value: unknown): void {
  if (value === undefined) delete data[name];
  else data[name] = value;
}

function percent(value: unknown): number | undefined {
  const number = typeof value === "string" ? Number(PERCENT.exec(value)?.[1] ?? Number.NaN) : value;
  return typeof number === "number" && number >= 0 && number <= 100 ? number : undefined;
}

/** A time as ISO 8601 in UTC; of Unix seconds or milliseconds, too. Undefined for a time without a zone. */
function utcTime(value: unknown): string | undefined {
  if (typeof value === "string" && ZONED_TIME.test(value)) {
    const time = new Date(value);
    if (Number.isNaN(time.getTime())) return undefined;
    return UTC_TIME.test(value) ? value : time.toISOString();
  }
  // A number that a double cannot hold is an object here, of which String makes no text.
  if (typeof value !== "string" && typeof value !== "number") return undefined;
  const text = String(value);
  if (!UNIX_TIME.test(text)) return undefined;
  const number = Number(text);
  return new Date(number < 1e11 ? number * 1000 : number).toISOString();
}

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
