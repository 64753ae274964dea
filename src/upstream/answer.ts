import { isObject } from "../domain/json.ts";
import { TASK_ID } from "../domain/task-states.ts";
import { bordersOf, holds, redact } from "./secret-search.ts";

// The upstream's answers, and what the log says of them. What they mean is the adapter's. Decision 0003.

export interface Answer {
  status: number;
  retryAfter: string | undefined;
  /** As UTF-8; our credential is redacted. */
  body: string;
}

export type Envelope = Readonly<Record<string, unknown>> | undefined;

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

/** True for codes that mean success: 200 in this API, 0 or another 2xx in others, and none at all. */
export const isSuccessCode = (code: number | undefined): boolean =>
  code === undefined || code === 0 || isSuccessStatus(code);

/** The id of a task, if the answer has one, whatever else it says. */
export function taskIdIn(envelope: Envelope): string | undefined {
  const data = isObject(envelope?.data) ? envelope.data : undefined;
  const id = data?.task_id ?? envelope?.task_id;
  return typeof id === "string" && TASK_ID.test(id) ? id : undefined;
}

/** For the log: status, code, task id and beginning. @param sent the request's body: what is repeated of it is left out */
export function describeAnswer({ status, body }: Answer, envelope: Envelope, sent = ""): string {
  const id = taskIdIn(envelope);
  const code =
    envelope?.code === undefined ? "no code" : `code ${JSON.stringify(envelope.code).slice(0, 20)}`;
  const named = id === undefined ? "" : `, task id ${id}`;
  return `HTTP ${status}, ${code}${named}: ${excerptOf(body, sent)}`;
}

/** The beginning of a text of the upstream, for the log: without values of URLs, and without what the request had. */
export function excerptOf(body: string, sent: string): string {
  // Cut twice: the work is bounded, and half of a value that ends at the first cut is not shown.
  const text = body
    .slice(0, 2 * EXCERPT_CHARS_MAX)
    .replace(ESCAPE, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  const shown = withoutEcho(text.replace(QUERY, "$1[redacted]"), sent);
  return shown.slice(0, EXCERPT_CHARS_MAX).toWellFormed() || "no body";
}

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
