import { TASK } from "../domain/answers.ts";
import { SMALL_ANSWER_BYTES } from "./large-answers.ts";

/**
 * Longest data of a task that are kept whole, characters of JSON. They are stored, and pass through Redis several times at
 * each poll: 0.7 ms of Redis each time, 12 ms for 1 MiB. Decision 0034.
 */
export const TASK_DATA_CHARS_MAX = SMALL_ANSWER_BYTES;

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
