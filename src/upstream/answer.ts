import { TASK_ID } from "../domain/answers.ts";
import { isObject } from "../domain/json.ts";

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

// Finds and replaces a credential in a JSON text, however its characters are escaped.

const REDACTED = "[redacted]";
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
const ASCII = 128;
/** The two-character escapes of JSON, by the code after the backslash; 0 for no escape. RFC 8259 section 7. */
const ESCAPES = new Uint8Array(ASCII);
for (const [letter, char] of Object.entries({ b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" }))
  ESCAPES[letter.charCodeAt(0)] = char.charCodeAt(0);
for (const char of '"\\/') ESCAPES[char.charCodeAt(0)] = char.charCodeAt(0);
/** The values of hexadecimal digits, by their codes; -1 for no digit. */
const DIGITS = new Int8Array(ASCII).fill(-1);
for (const char of "0123456789abcdefABCDEF") DIGITS[char.charCodeAt(0)] = Number.parseInt(char, 16);

/** True if the text contains the credential in any spelling. Nearly always it does not, and `redact` takes longer. */
function holds(text: string, wanted: Uint16Array, borders: Uint32Array): boolean {
  const { length } = text;
  for (let at = 0, matched = 0; at < length; ) {
    let code = text.charCodeAt(at);
    if (code === BACKSLASH) {
      const char = escapeAt(text, at);
      code = char >> UNITS_BITS;
      at += char & UNITS_MASK;
    } else {
      at++;
    }
    while (matched > 0 && code !== wanted[matched]) matched = borders[matched - 1]!;
    if (code === wanted[matched] && ++matched === wanted.length) return true;
  }
  return false;
}

/** Knuth, Morris and Pratt: per prefix the longest proper prefix that is its suffix. A search never goes back in the text. */
function bordersOf(wanted: Uint16Array): Uint32Array {
  const borders = new Uint32Array(wanted.length);
  for (let at = 1, border = 0; at < wanted.length; at++) {
    while (border > 0 && wanted[at] !== wanted[border]) border = borders[border - 1]!;
    if (wanted[at] === wanted[border]) border++;
    borders[at] = border;
  }
  return borders;
}

function redact(text: string, wanted: Uint16Array, borders: Uint32Array, standsAlone: boolean): string {
  // A ring of the latest characters, one more than the credential has: where each begins and which it is.
  const size = wanted.length + 1;
  const begins = new Uint32Array(size);
  const codes = new Uint16Array(size);
  let slot = 0;
  let kept = 0;
  let clean = "";
  let matched = 0;
  for (let at = 0, count = 0; at < text.length; count++) {
    const char = charAt(text, at);
    const code = char >> UNITS_BITS;
    slot = slot + 1 === size ? 0 : slot + 1;
    begins[slot] = at;
    codes[slot] = code;
    at += char & UNITS_MASK;
    while (matched > 0 && code !== wanted[matched]) matched = borders[matched - 1]!;
    if (code === wanted[matched]) matched++;
    if (matched < wanted.length) continue;
    const before = count >= wanted.length ? codes[(slot + 1) % size] : undefined;
    const after = at < text.length ? charAt(text, at) >> UNITS_BITS : undefined;
    if (standsAlone && (isWordCode(before) || isWordCode(after))) {
      matched = borders[matched - 1]!;
      continue;
    }
    clean += text.slice(kept, begins[(slot + 2) % size]) + REDACTED;
    kept = at;
    matched = 0;
  }
  return kept === 0 ? text : clean + text.slice(kept);
}

/** A character of a JSON text as one number: its code, and in the lowest bits the number of text units that spell it. */
const UNITS_BITS = 3;
const UNITS_MASK = 7;

function charAt(text: string, at: number): number {
  const code = text.charCodeAt(at);
  return code === BACKSLASH ? escapeAt(text, at) : (code << UNITS_BITS) | 1;
}

/** The character of the escape at a backslash; the backslash itself if no escape follows. */
function escapeAt(text: string, at: number): number {
  const letter = text.charCodeAt(at + 1);
  const char = letter < ASCII ? ESCAPES[letter]! : 0;
  if (char !== 0) return (char << UNITS_BITS) | 2;
  const code = letter === LETTER_U ? hexAt(text, at + 2) : -1;
  return code < 0 ? (BACKSLASH << UNITS_BITS) | 1 : (code << UNITS_BITS) | 6;
}

function hexAt(text: string, from: number): number {
  let value = 0;
  for (let at = from; at < from + 4; at++) {
    const code = text.charCodeAt(at);
    const digit = code < ASCII ? DIGITS[code]! : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

function isWordCode(code: number | undefined): boolean {
  if (code === undefined) return false;
  const letter = code | 0x20;
  const isAlphanumeric = (code >= 0x30 && code <= 0x39) || (letter >= 0x61 && letter <= 0x7a);
  return isAlphanumeric || code === 0x5f || code === 0x2d;
}
