import { TASK } from "../core/answers.ts";
import { JSON_BODY_BYTES_MAX } from "../core/request-limits.ts";

/**
 * Longest data of a task that pass whole, characters of JSON: what a request may carry, so that an upstream may repeat
 * it. They are stored, and read again at each poll. Decision 0034.
 */
export const TASK_DATA_CHARS_MAX = JSON_BODY_BYTES_MAX;

const SPEC_FIELDS = Object.keys(TASK.properties);
/** A text of these, with which all of them together stay within the bound. */
const FIELD_CHARS_MAX = 16 * 1024;

/** Data of a task as JSON. Beyond the bound only the spec's fields remain, and of these no text that is long itself. */
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
