import { TASK, TASK_ID, type TaskStatus } from "../domain/answers.ts";
import { isObject, parseObject } from "../domain/json.ts";
import { SMALL_ANSWER_BYTES } from "./large-answers.ts";
import { bordersOf, holds, redact } from "./secret-search.ts";

// The upstream's answers. What they mean is the adapter's. Decision 0003.

export interface Answer {
  status: number;
  retryAfter: string | undefined;
  /** As UTF-8; our credential is redacted. */
  body: string;
}

export type Envelope = Readonly<Record<string, unknown>> | undefined;

/** Redirects that say that nothing was done. After a 303 the request may have run. RFC 9110 15.4. */
const REDIRECTS = new Set([301, 302, 307, 308]);

export const isSuccessStatus = (status: number): boolean => status >= 200 && status < 300;

export const isRedirect = (status: number): boolean => REDIRECTS.has(status);

/** True for codes that mean success: 200 in this API, 0 or another 2xx in others, and none at all. */
export const isSuccessCode = (code: number | undefined): boolean =>
  code === undefined || code === 0 || isSuccessStatus(code);

/** The answer's code, a number; some upstreams write it as a text of digits. Undefined for anything else. */
export function codeOf(envelope: Envelope): number | undefined {
  const code = envelope?.code;
  if (typeof code === "string" && /^\d{1,6}$/.test(code)) return Number(code);
  return typeof code === "number" ? code : undefined;
}

/** The id of a task, if the answer has one, whatever else it says. */
export function taskIdIn(envelope: Envelope): string | undefined {
  const data = isObject(envelope?.data) ? envelope.data : undefined;
  const id = data?.task_id ?? envelope?.task_id;
  return typeof id === "string" && TASK_ID.test(id) ? id : undefined;
}

// Keeps the gateway's credential out of what an upstream answers.

/** A shorter credential may be part of an unrelated word, as `task` is of `task_id`. */
const SHORT = 8;
const PLAIN_CHARS_MAX = 4096;

/**
 * Keeps our credential from customers and log, in every spelling that JSON allows; one of less than eight characters only as a whole word.
 * Linear in the text. Decision 0035.
 */
export function withoutSecret(secret: string | undefined): (text: string) => string {
  if (!secret) return (text) => text;
  const wanted = Uint16Array.from({ length: secret.length }, (_, at) => secret.charCodeAt(at));
  const borders = bordersOf(wanted);
  const standsAlone = secret.length < SHORT;
  return (text) => {
    // Without an escape there is one spelling. The engine's own search is not linear in every case, so its text is short.
    const isPlain = text.length <= PLAIN_CHARS_MAX && !text.includes("\\");
    const isClean = isPlain ? !text.includes(secret) : !holds(text, wanted, borders);
    return isClean ? text : redact(text, wanted, borders, standsAlone);
  };
}

/** Removes the beginning of our credential at the end of a text that was cut there. */
export function withoutBegunSecret(secret = ""): (text: string) => string {
  return (text) => {
    for (let chars = secret.length - 1; chars > 0; chars--)
      if (text.endsWith(secret.slice(0, chars))) return text.slice(0, -chars);
    return text;
  };
}

// How the upstream describes a task, in the API's words and forms, whatever adapter has read it.

/** Characters of JSON kept whole. They pass through Redis at each poll: 0.7 ms each time, 12 ms for 1 MiB. Decision 0035. */
export const TASK_DATA_CHARS_MAX = SMALL_ANSWER_BYTES;

/** A number of percent as some upstreams write it, such as `45%`. */
const PERCENT = /^(\d{1,3}(?:\.\d{1,9})?) ?%?$/;
const UTC_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|\+00:00)$/;
const ZONED_TIME = /^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:?\d\d)$/;
/** Of `YYYY-MM-DDThh:mm:ss`. */
const DATE_TIME_CHARS = 19;
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
type TaskReading =
  | { status: TaskStatus; data: Record<string, unknown>; lacksVideo?: true }
  /** The word is not known; `data` says `processing`. */
  | { status: undefined; word: string; data: Record<string, unknown> };

/**
 * Without a usable `video_url` it is not completed; not completed it has none, since it may be refunded. Completed, its progress is 100.
 * @param createdAtMs when it was bound, for data that do not say
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
  if (status === "completed" && hasVideo && data.progress !== undefined) data.progress = 100;
  if (status !== "completed" || hasVideo) return { status, data };
  data.status = "processing";
  delete data.completed_at;
  return { status: "processing", data, lacksVideo: true };
}

export function taskWithId(task: Readonly<Record<string, unknown>>, taskId: string): Record<string, unknown> {
  const data = task.task_id === undefined ? { task_id: taskId, ...task } : { ...task };
  data.task_id = taskId;
  return data;
}

/** Reads the data of a new task, and changes them. A state that is not known is left out. */
export function newTask(data: Record<string, unknown>, statuses?: StatusWords): Record<string, unknown> {
  const known = typeof data.status === "string" && taskStatusOf(data.status, statuses) !== undefined;
  if (known) return readTask(data, data.status as string, { statuses }).data;
  normalizeFields(data, undefined);
  // A delete of what is not there costs more than the look.
  if ("status" in data) delete data.status;
  if ("video_url" in data) delete data.video_url;
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

/** Some upstreams write `null` for a field that is absent. */
const TEXTS = ["thumbnail_url", "failure_reason"] as const;

/** Fields in the API's forms: a number of percent, texts, times in ISO 8601 and UTC. What cannot be read is left out. */
function normalizeFields(data: Record<string, unknown>, createdAtMs: number | undefined): void {
  for (const name of TEXTS) if (data[name] !== undefined && typeof data[name] !== "string") delete data[name];
  if (data.progress !== undefined) replace(data, "progress", percent(data.progress));
  if (data.completed_at !== undefined) replace(data, "completed_at", utcTime(data.completed_at));
  const created = data.created_at;
  // The API requires it, and the time of the charge is better than a number without a unit.
  if (createdAtMs === undefined) replace(data, "created_at", utcTime(created));
  else {
    const createdAt = typeof created === "string" ? utcTime(created) : undefined;
    data.created_at = createdAt ?? new Date(createdAtMs).toISOString();
  }
}

function replace(data: Record<string, unknown>, name: string, value: unknown): void {
  if (value !== undefined) data[name] = value;
  else if (name in data) delete data[name];
}

function percent(value: unknown): number | undefined {
  const number = typeof value === "string" ? Number(PERCENT.exec(value)?.[1] ?? Number.NaN) : value;
  return typeof number === "number" && number >= 0 && number <= 100 ? number : undefined;
}

export const isUtcTime = (value: unknown): value is string =>
  typeof value === "string" && UTC_TIME.test(value) && !Number.isNaN(Date.parse(value));

/** A time as ISO 8601 in UTC; of Unix seconds or milliseconds, too. Undefined for a time without a zone. */
export function utcTime(value: unknown): string | undefined {
  if (typeof value === "string" && ZONED_TIME.test(value)) {
    const time = new Date(value);
    if (Number.isNaN(time.getTime())) return undefined;
    const iso = time.toISOString();
    // Date reads a February 31 and an hour 24, which strict readers of ISO 8601 refuse.
    return UTC_TIME.test(value) && iso.startsWith(value.slice(0, DATE_TIME_CHARS)) ? value : iso;
  }
  // A number that a double cannot hold is an object here, of which String makes no text.
  if (typeof value !== "string" && typeof value !== "number") return undefined;
  const text = String(value);
  if (!UNIX_TIME.test(text)) return undefined;
  const number = Number(text);
  return new Date(number < 1e11 ? number * 1000 : number).toISOString();
}

// The ids that customers get. They are parts of paths, so an id of the upstream that is not fit for one is encoded.

/** Begins an encoded id. An id of the upstream that begins with it is encoded, too, so that no two ids become one. */
const ENCODED = "~e~";

/** An id of the upstream as customers get it; undefined for one that is empty, ill-formed or too long. */
export function shownTaskId(id: string): string | undefined {
  if (TASK_ID.test(id) && !id.startsWith(ENCODED)) return id;
  // The encoding is longer than the id; a lone surrogate has no UTF-8.
  if (id === "" || id.length > 200 || !id.isWellFormed()) return undefined;
  const encoded = ENCODED + Buffer.from(id).toString("base64url");
  return TASK_ID.test(encoded) ? encoded : undefined;
}

export function upstreamTaskId(shown: string): string {
  if (!shown.startsWith(ENCODED)) return shown;
  const id = Buffer.from(shown.slice(ENCODED.length), "base64url").toString("utf8");
  return shownTaskId(id) === shown ? id : shown;
}

export type StatusWords = Readonly<Record<string, TaskStatus>>;

/** Words of other APIs. `upstream.statuses` adds to them and overrides them. */
export const STATUS_WORDS: StatusWords = {
  ...wordsFor("pending", "pending queued in_queue waiting submitted scheduled created accepted not_started"),
  ...wordsFor(
    "processing",
    "processing running in_progress inprogress generating rendering started starting working",
  ),
  ...wordsFor("completed", "completed complete succeeded success succeed successful done finished"),
  ...wordsFor(
    "failed",
    "failed fail failure error errored cancelled canceled expired timeout timed_out aborted rejected",
  ),
};

function wordsFor(status: TaskStatus, words: string): StatusWords {
  return Object.fromEntries(words.split(" ").map((word) => [word, status]));
}

const STATUS_WORD_CHARS_MAX = 64;

export const statusWord = (text: string): string =>
  text
    .slice(0, STATUS_WORD_CHARS_MAX + 1)
    .trim()
    .toLowerCase()
    .replace(/[ -]/g, "_");

function taskStatusOf(text: string, own?: StatusWords): TaskStatus | undefined {
  const word = statusWord(text);
  if (own && Object.hasOwn(own, word)) return own[word];
  return Object.hasOwn(STATUS_WORDS, word) ? STATUS_WORDS[word] : undefined;
}
