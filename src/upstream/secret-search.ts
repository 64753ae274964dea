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
export function holds(text: string, wanted: Uint16Array, borders: Uint32Array): boolean {
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
export function bordersOf(wanted: Uint16Array): Uint32Array {
  const borders = new Uint32Array(wanted.length);
  for (let at = 1, border = 0; at < wanted.length; at++) {
    while (border > 0 && wanted[at] !== wanted[border]) border = borders[border - 1]!;
    if (wanted[at] === wanted[border]) border++;
    borders[at] = border;
  }
  return borders;
}

export function redact(
  text: string,
  wanted: Uint16Array,
  borders: Uint32Array,
  standsAlone: boolean,
): string {
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
