import { type Answer, type Envelope, taskIdIn } from "./answer.ts";

// Descriptions of upstream answers for the log.

const EXCERPT_CHARS_MAX = 200;
/** Values in a URL's query or fragment, which often are credentials. HTML writes `&` as `&amp;`. */
const QUERY = /([?&;#][\w.~%-]{1,64}=)[^\s&"'<>\\]+/g;
/** User and password in a URL; JSON may escape its slashes. */
const USER = /(:\\?\/\\?\/)[^\s/?#@"'<>\\]+@/g;
/** A character that JSON spells by its number. */
const ESCAPE = /\\u([0-9a-fA-F]{4})/g;
/** Shorter runs that request and answer share say nothing. */
const ECHO_CHARS_MIN = 6;

/** For the log: status, code, task id and beginning. @param sent the request's body: what is repeated of it is left out */
export function describeAnswer({ status, body }: Answer, envelope: Envelope, sent = ""): string {
  const id = taskIdIn(envelope);
  const code =
    envelope?.code === undefined ? "no code" : `code ${JSON.stringify(envelope.code).slice(0, 20)}`;
  const named = id === undefined ? "" : `, task id ${id}`;
  return `HTTP ${status}, ${code}${named}: ${excerptOf(body, sent)}`;
}

/** Members of an answer that say why it is no task, at any depth. All others may repeat what the customer sent for the task. */
const REASONS = ["code", "status", "msg", "message", "error", "title", "detail"];
const BEGINS_JSON = /^\s*["[{]/;

/** As `describeAnswer`, of an answer about a task whose request is not known any more. */
export function describePoll(answer: Answer, envelope: Envelope): string {
  if (!BEGINS_JSON.test(answer.body)) return describeAnswer(answer, envelope);
  const body = envelope === undefined ? "unreadable JSON" : JSON.stringify(envelope, REASONS);
  return describeAnswer({ ...answer, body }, envelope);
}

/** The beginning of a text of the upstream, for the log: without values of URLs, and without what the request had. */
export function excerptOf(body: string, sent: string): string {
  // Cut twice: the work is bounded, and half of a value that ends at the first cut is not shown.
  const text = body
    .slice(0, 2 * EXCERPT_CHARS_MAX)
    .replace(ESCAPE, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  const redacted = text.replace(QUERY, "$1[redacted]").replace(USER, "$1[redacted]@");
  const shown = withoutEcho(redacted, sent);
  return shown.slice(0, EXCERPT_CHARS_MAX).toWellFormed() || "no body";
}

function withoutEcho(text: string, request: string): string {
  const shared = sharedRuns(text, valuesOf(request));
  if (shared.size === 0) return text;
  const isShared = (from: number): boolean => shared.has(text.slice(from, from + ECHO_CHARS_MIN));
  let shown = "";
  for (let at = 0; at < text.length && shown.length < EXCERPT_CHARS_MAX; ) {
    if (!isShared(at)) {
      shown += text[at++];
      continue;
    }
    shown += "[request]";
    while (isShared(at + 1)) at++;
    at += ECHO_CHARS_MIN;
  }
  return shown;
}

/** All runs of `ECHO_CHARS_MIN` characters that both have. Linear in both: a customer may have written them. */
function sharedRuns(text: string, sent: string): ReadonlySet<string> {
  const runs = new Set<string>();
  const mayBeRun = new Uint8Array(HASHES);
  forEachRun(text, (at, hash) => {
    runs.add(text.slice(at, at + ECHO_CHARS_MIN));
    mayBeRun[hash] = 1;
  });
  const shared = new Set<string>();
  forEachRun(sent, (at, hash) => {
    if (mayBeRun[hash] === 0) return;
    const run = sent.slice(at, at + ECHO_CHARS_MIN);
    if (runs.has(run)) shared.add(run);
  });
  return shared;
}

const HASHES = 0x10000;
const HASH_BASE = 31;
const HASH_LAST = HASH_BASE ** ECHO_CHARS_MIN;

/** Karp and Rabin: the hash of each run follows from that of the run before it. */
function forEachRun(text: string, use: (at: number, hash: number) => void): void {
  let hash = 0;
  for (let end = 0; end < text.length; end++) {
    const at = end + 1 - ECHO_CHARS_MIN;
    const left = at > 0 ? Math.imul(text.charCodeAt(at - 1), HASH_LAST) : 0;
    hash = (Math.imul(hash, HASH_BASE) + text.charCodeAt(end) - left) | 0;
    if (at >= 0) use(at, hash & (HASHES - 1));
  }
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
