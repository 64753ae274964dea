const REDACTED = "[redacted]";
/** A shorter credential may well be a part of a word that means something else, as `task` is of `task_id`. */
const SHORT = 8;
const BACKSLASH = 0x5c;
/** The two-character escapes of JSON, by the character behind the backslash. RFC 8259 section 7. */
const ESCAPES = new Map(
  Object.entries({ '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" }).map(
    ([letter, char]) => [letter.charCodeAt(0), char.charCodeAt(0)],
  ),
);

/**
 * An upstream that repeats our credential in an answer must not bring it to a customer or into the log.
 * @returns replaces the credential in an answer's text, in every way that JSON may write it; a credential of less than
 *   eight characters only where it stands alone. Takes time linear in the text, whatever the text is. Decision 0034.
 */
export function withoutSecret(secret: string | undefined): (text: string) => string {
  if (!secret) return (text) => text;
  const wanted = Array.from({ length: secret.length }, (_, at) => secret.charCodeAt(at));
  const borders = bordersOf(wanted);
  const standsAlone = secret.length < SHORT;
  return (text) => (holds(text, wanted, borders) ? redact(text, wanted, borders, standsAlone) : text);
}

/** Whether the credential stands in the text, in any spelling: nearly always not, and `redact` takes ten times as long. */
function holds(text: string, wanted: readonly number[], borders: readonly number[]): boolean {
  for (let at = 0, matched = 0; at < text.length; ) {
    const width = widthAt(text, at);
    const code = codeAt(text, at, width);
    at += width;
    while (matched > 0 && code !== wanted[matched]) matched = borders[matched - 1]!;
    if (code === wanted[matched]) matched++;
    if (matched === wanted.length) return true;
  }
  return false;
}

/**
 * The failure function of Knuth, Morris and Pratt: for each prefix the length of its longest proper prefix that is also
 * its suffix. With it a search never goes back in the text.
 */
function bordersOf(wanted: readonly number[]): number[] {
  const borders = [0];
  for (let at = 1, border = 0; at < wanted.length; at++) {
    while (border > 0 && wanted[at] !== wanted[border]) border = borders[border - 1]!;
    if (wanted[at] === wanted[border]) border++;
    borders.push(border);
  }
  return borders;
}

function redact(
  text: string,
  wanted: readonly number[],
  borders: readonly number[],
  standsAlone: boolean,
): string {
  // Of the latest characters as many as the credential has, and the one before: where each begins and what it means.
  const size = wanted.length + 1;
  const begins = new Array<number>(size).fill(0);
  const codes = new Array<number>(size).fill(0);
  let kept = 0;
  let clean = "";
  let matched = 0;
  for (let at = 0, count = 0; at < text.length; count++) {
    const width = widthAt(text, at);
    const code = codeAt(text, at, width);
    begins[count % size] = at;
    codes[count % size] = code;
    at += width;
    while (matched > 0 && code !== wanted[matched]) matched = borders[matched - 1]!;
    if (code === wanted[matched]) matched++;
    if (matched < wanted.length) continue;
    const before = count >= wanted.length ? codes[(count + 1) % size] : undefined;
    const after = at < text.length ? codeAt(text, at, widthAt(text, at)) : undefined;
    if (standsAlone && (isWordCode(before) || isWordCode(after))) {
      matched = borders[matched - 1]!;
      continue;
    }
    clean += text.slice(kept, begins[(count + 2) % size]) + REDACTED;
    kept = at;
    matched = 0;
  }
  return kept === 0 ? text : clean + text.slice(kept);
}

/** How many code units of the text write the character at this place: 6, 2 or 1. A broken escape is a backslash. */
function widthAt(text: string, at: number): 1 | 2 | 6 {
  if (text.charCodeAt(at) !== BACKSLASH) return 1;
  const letter = text.charCodeAt(at + 1);
  if (ESCAPES.has(letter)) return 2;
  return letter === 0x75 && hexAt(text, at + 2) >= 0 ? 6 : 1;
}

function codeAt(text: string, at: number, width: 1 | 2 | 6): number {
  if (width === 1) return text.charCodeAt(at);
  return width === 2 ? ESCAPES.get(text.charCodeAt(at + 1))! : hexAt(text, at + 2);
}

/** Four hexadecimal digits as a number; -1 for anything else. */
function hexAt(text: string, from: number): number {
  let value = 0;
  for (let at = from; at < from + 4; at++) {
    const digit = digitOf(text.charCodeAt(at));
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

function digitOf(code: number): number {
  if (code >= 0x30 && code <= 0x39) return code - 0x30;
  const letter = code | 0x20;
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : -1;
}

/** A letter, a digit, `_` or `-`. */
function isWordCode(code: number | undefined): boolean {
  if (code === undefined) return false;
  const letter = code | 0x20;
  const isAlphanumeric = (code >= 0x30 && code <= 0x39) || (letter >= 0x61 && letter <= 0x7a);
  return isAlphanumeric || code === 0x5f || code === 0x2d;
}
