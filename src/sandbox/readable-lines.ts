import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { styleText } from "node:util";

const STYLES = { warn: "yellow", error: "red", fatal: "red" } as const;
/** What each line has, or what its other parts say better. */
const LEFT_OUT = new Set(["level", "time", "service", "msg", "err", "pid", "hostname", "request_id"]);
/** Of one field. One with parts of its own, such as the configuration, is left out. */
const FIELD_CHARS_MAX = 400;

/** Prints the gateway's JSON lines for a person at a terminal. */
export function printReadably(from: Readable, to: { write(text: string): unknown }): void {
  createInterface({ input: from }).on("line", (line) => to.write(`${readable(line)}\n`));
}

/** One line of the log in short; a line that is no JSON stays as it is. */
export function readable(line: string): string {
  const fields = fieldsOf(line);
  if (!fields) return line;
  const { level = "", time = "", msg } = fields;
  const at = String(time).slice(11, 19);
  const shown = fields.route === undefined ? eventOf(fields) : requestOf(fields);
  const style = STYLES[level as keyof typeof STYLES];
  const word = String(level).padEnd(5);
  return `${at} ${style ? styleText(style, word) : word} ${msg === undefined ? "" : `${msg} `}${shown}`.trimEnd();
}

function fieldsOf(line: string): Record<string, unknown> | undefined {
  if (!line.startsWith("{")) return undefined;
  try {
    return JSON.parse(line) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}

/** A request: what was asked, how it ended, for whom. */
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
  const limit = more.limit === undefined ? "" : ` ${more.used ?? "?"} of ${more.limit}`;
  const parts = [`${method} ${route} ${status} ${outcome}${limit}`, `${duration_ms} ms`, key_id, detail];
  return parts.filter((part) => part !== undefined).join("  ");
}

function eventOf(fields: Record<string, unknown>): string {
  const error = fields.err as { message?: string } | undefined;
  const shown = Object.entries(fields).flatMap(([name, value]) => {
    if (LEFT_OUT.has(name) || typeof value === "object") return [];
    return [`${name}=${String(value).slice(0, FIELD_CHARS_MAX)}`];
  });
  return [...shown, ...(error?.message ? [error.message] : [])].join(" ");
}
