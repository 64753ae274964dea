import { isUtf8 } from "node:buffer";
import { JSON_DEPTH_MAX } from "./request-limits.ts";

/** ECMAScript 2026, which the compiler's library does not know yet. */
declare global {
  interface JSON {
    rawJSON(text: string): unknown;
    parse(
      text: string,
      reviver: (name: string, value: unknown, context: { source?: string }) => unknown,
    ): unknown;
  }
}

export type ParsedJson = { ok: true; value: unknown } | { ok: false; message: string };

/** `parseJson` of a body's bytes. */
export function parseJsonBytes(bytes: Buffer): ParsedJson {
  if (!isUtf8(bytes)) return { ok: false, message: "the body is not valid UTF-8" };
  return parseJson(bytes.toString("utf8"));
}

/**
 * Parses a request body and refuses what JSON.parse lets through: duplicate names (the last would win) and
 * nesting that later overflows the stack. RFC 8259 section 4.
 * @param text well-formed Unicode
 */
export function parseJson(text: string): ParsedJson {
  const members = countMembers(text);
  if (members < 0) return { ok: false, message: `the body is nested deeper than ${JSON_DEPTH_MAX} levels` };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { ok: false, message: text.trim() === "" ? "the body is empty" : "the body is not valid JSON" };
  }
  // A duplicate name collapses in the parsed value, so then it has fewer members than the text.
  if (keptMembers(value) !== members)
    return { ok: false, message: "the body has a duplicate name in an object" };
  return { ok: true, value };
}

/**
 * Reads a JSON object that another program sent, such as the upstream's envelope; undefined for anything else, and
 * for nesting that would overflow the stack when it is written again. Meant to be written again: long whole numbers
 * are kept for JSON.stringify, not for counting.
 */
export function parseObject(text: string): Record<string, unknown> | undefined {
  if (countMembers(text) < 0) return undefined;
  try {
    const value: unknown = LONG_NUMBER.test(text) ? JSON.parse(text, exactly) : JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

const LONG_NUMBER = /[0-9]{16}/;

/** A whole number beyond what a double holds is written again as it came: it may be somebody's id. */
function exactly(_name: string, value: unknown, { source }: { source?: string }): unknown {
  const isLong = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return isLong && source !== undefined ? JSON.rawJSON(source) : value;
}

/** Members of all objects in a JSON text: the colons outside strings. -1 when nested too deeply. */
function countMembers(text: string): number {
  let members = 0;
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case 0x22: // "
        at = endOfString(text, at + 1);
        break;
      case 0x3a: // :
        members++;
        break;
      case 0x5b: // [
      case 0x7b: // {
        if (++depth > JSON_DEPTH_MAX) return -1;
        break;
      case 0x5d: // ]
      case 0x7d: // }
        depth--;
        break;
    }
  }
  return members;
}

/** Index of the quote that closes a string, or the text's length. */
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

/** A JSON object, as opposed to null, an array or a scalar. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
