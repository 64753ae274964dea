import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { styleText } from "node:util";
import { parseObject } from "../domain/json.ts";
import { visible } from "../domain/operator-texts.ts";

const STYLES = { warn: "yellow", error: "red", fatal: "red" } as const;
const LEFT_OUT = new Set([
  "level",
  "time",
  "service",
  "msg",
  "err",
  "pid",
  "hostname",
  "request_id",
  "config",
]);
const FIELD_CHARS_MAX = 400;

/** @param ownRequestId lines of these requests are left out */
export function printReadably(
  from: Readable,
  to: { write(text: string): unknown },
  ownRequestId: string,
): void {
  createInterface({ input: from }).on("line", (line) => {
    if (parseObject(line)?.client_request_id !== ownRequestId) to.write(`${readable(line)}\n`);
  });
}

/** Text from outside may contain escape sequences, so it is made visible. */
export function readable(line: string): string {
  const fields = parseObject(line);
  if (!fields) return visible(line);
  const { level = "", time = "", msg } = fields;
  const at = String(time).slice(11, 19);
  const shown = fields.route === undefined ? eventOf(fields) : requestOf(fields);
  const text = visible(`${msg === undefined ? "" : `${msg} `}${shown}`);
  const style = STYLES[level as keyof typeof STYLES];
  const word = visible(String(level)).padEnd(5);
  return `${visible(at)} ${style ? styleText(style, word) : word} ${text}`.trimEnd();
}

function requestOf({
  method,
  route,
  status,
  outcome,
  duration_ms,
  key_id,
  detail,
  ...more
}: Record<string, unknown>): string {
  const whose = more.limit_of === "account" ? " of the account" : "";
  const limit = more.limit === undefined ? "" : ` ${more.used ?? "?"} of ${more.limit}${whose}`;
  const seconds = more.retry_after_seconds;
  const retry = seconds === undefined ? undefined : `retry in ${seconds} s`;
  const answered = `${method} ${route} ${status} ${outcome}${limit}`;
  const parts = [answered, retry, `${duration_ms} ms`, key_id, detail];
  return parts.filter((part) => part !== undefined).join("  ");
}

function eventOf(fields: Record<string, unknown>): string {
  const error = fields.err as { message?: string } | undefined;
  const shown = Object.entries(fields).flatMap(([name, value]) => {
    if (LEFT_OUT.has(name) || value === null) return [];
    return [`${name}=${cut(inWords(value))}`];
  });
  return [...shown, ...(error?.message ? [error.message] : [])].join(" ");
}

const isPlain = (value: unknown): boolean => typeof value !== "object" || value === null;

function inWords(value: unknown): string {
  if (typeof value !== "object" || value === null) return String(value);
  if (!Object.values(value).every(isPlain)) return JSON.stringify(value);
  if (Array.isArray(value)) return value.join(", ");
  return Object.entries(value)
    .map(([name, one]) => `${name}: ${one}`)
    .join(", ");
}

const cut = (text: string): string =>
  text.length > FIELD_CHARS_MAX ? `${text.slice(0, FIELD_CHARS_MAX)}…` : text;
