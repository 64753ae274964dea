import { isUtf8 } from "node:buffer";
import { JSON_DEPTH_MAX, JSON_VALUES_MAX } from "./limits.ts";

declare global {
  interface JSON {
    rawJSON(text: string): unknown;
    parse(
      text: string,
      reviver: (name: string, value: unknown, context: { source?: string }) => unknown,
    ): unknown;
  }
}

type ParsedJson = { ok: true; value: unknown } | { ok: false; message: string };

const ANSWER_VALUES_MAX = 20_000;

export function parseJsonBytes(bytes: Buffer): ParsedJson {
  if (!isUtf8(bytes)) return { ok: false, message: "the body is not valid UTF-8" };
  return parseJson(bytes.toString("utf8"));
}

/** Refuses what JSON.parse accepts: duplicate names, deep nesting, too many values. RFC 8259 section 4. @param text well-formed Unicode */
export function parseJson(text: string): ParsedJson {
  const { members, fault } = survey(text, JSON_VALUES_MAX);
  if (fault === "depth")
    return { ok: false, message: `the body is nested deeper than ${JSON_DEPTH_MAX} levels` };
  if (fault === "values") return { ok: false, message: `the body has more than ${JSON_VALUES_MAX} values` };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { ok: false, message: syntaxFault(text) };
  }
  // A duplicate name leaves fewer members than the text has.
  if (keptMembers(value) !== members)
    return { ok: false, message: "the body has a duplicate name in an object" };
  return { ok: true, value };
}

function syntaxFault(text: string): string {
  if (text.trim() === "") return "the body is empty";
  // RFC 8259 section 8.1 forbids it, and editors do not show it.
  if (text.startsWith("\ufeff")) return "the body begins with a byte order mark; send UTF-8 without one";
  return "the body is not valid JSON";
}

/** Reads a JSON object of another program; undefined for anything else or beyond the limits. Long integers are kept as text. */
export function parseObject(received: string): Record<string, unknown> | undefined {
  const text = received.charCodeAt(0) === BYTE_ORDER_MARK ? received.slice(1) : received;
  const { hasLongNumber, fault } = survey(text, ANSWER_VALUES_MAX);
  if (fault) return undefined;
  try {
    const value: unknown = hasLongNumber ? JSON.parse(text, exactly) : JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** An integer beyond a double may be an id. */
function exactly(_name: string, value: unknown, { source }: { source?: string }): unknown {
  const isLong = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return isLong && source !== undefined ? JSON.rawJSON(source) : value;
}

interface Survey {
  members: number;
  hasLongNumber: boolean;
  fault: "depth" | "values" | undefined;
}

const LONG_NUMBER_DIGITS = 16;
const BYTE_ORDER_MARK = 0xfeff;

/** @param valuesMax counted by commas and opening brackets: an empty object counts double */
function survey(text: string, valuesMax: number): Survey {
  let members = 0;
  let values = 1;
  let depth = 0;
  let digits = 0;
  let hasLongNumber = false;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code >= 0x30 && code <= 0x39) {
      if (++digits >= LONG_NUMBER_DIGITS) hasLongNumber = true;
      continue;
    }
    digits = 0;
    switch (code) {
      case 0x22: // "
        at = endOfString(text, at + 1);
        break;
      case 0x3a: // :
        members++;
        break;
      case 0x2c: // ,
        values++;
        break;
      case 0x5b: // [
      case 0x7b: // {
        values++;
        if (++depth > JSON_DEPTH_MAX) return { members, hasLongNumber, fault: "depth" };
        break;
      case 0x5d: // ]
      case 0x7d: // }
        depth--;
        break;
    }
    if (values > valuesMax) return { members, hasLongNumber, fault: "values" };
  }
  return { members, hasLongNumber, fault: undefined };
}

function endOfString(text: string, from: number): number {
  let quote = text.indexOf('"', from);
  while (quote > 0) {
    let backslashes = 0;
    while (text.charCodeAt(quote - 1 - backslashes) === 0x5c) backslashes++;
    if (backslashes % 2 === 0) return quote;
    quote = text.indexOf('"', quote + 1);
  }
  return text.length;
}

function keptMembers(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  let members = 0;
  if (Array.isArray(value)) {
    for (const item of value) members += keptMembers(item);
    return members;
  }
  for (const item of Object.values(value)) members += 1 + keptMembers(item);
  return members;
}

/** JSON can contain half of a surrogate pair, which UTF-8 cannot. */
export function isUnicode(value: unknown): boolean {
  if (typeof value === "string") return value.isWellFormed();
  if (typeof value !== "object" || value === null) return true;
  return Object.entries(value).every(([name, item]) => name.isWellFormed() && isUnicode(item));
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
