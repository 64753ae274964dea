import { once } from "node:events";
import path from "node:path";
import { hasColours, plain } from "./terminal.ts";

/** What a command has to say: one JSON object for programs, text for people. */
export interface CommandOutput {
  json: Record<string, unknown>;
  text: string;
  /** False makes the exit code 1 though the answer is printed. */
  ok?: boolean;
}

/** Prints what a command answers. */
export function print(answer: CommandOutput, options: { json?: boolean }): void {
  process.stdout.write(options.json ? `${JSON.stringify(answer.json)}\n` : `${answer.text}\n`);
  if (answer.ok !== false) return;
  process.exitCode = 1;
  if (options.json) note(answer.text);
}

/** Waits while the reader is slower than the store. */
export async function writeOut(text: string): Promise<void> {
  if (text !== "" && !process.stdout.write(text)) await once(process.stdout, "drain");
}

/** One JSON object on standard output whose list is written page by page. */
export function jsonList(name: string) {
  let before = `{"${name}":[`;
  return {
    async write(items: readonly object[]): Promise<void> {
      if (items.length === 0) return;
      await writeOut(before + items.map((item) => JSON.stringify(item)).join());
      before = ",";
    },
    /** Writes the last member after the list, unless it is undefined. */
    end(last: string, value: string | undefined): Promise<void> {
      const member = value === undefined ? "" : `,"${last}":${JSON.stringify(value)}`;
      return writeOut(`${before === "," ? "" : before}]${member}}\n`);
    },
  };
}

/** A line for people on standard error. */
export function note(text: string): void {
  process.stderr.write(`${hasColours(process.stderr) ? text : plain(text)}\n`);
}

/** Masks API keys in a message: errors end up in logs and tickets. A semicolon at the end belongs to the message. */
export const withoutKeys = (text: string): string =>
  text.replaceAll(/\bsk_[\x21-\x2b\x2d-\x7e]{5,}/g, (key) => (key.endsWith(";") ? "sk_...;" : "sk_..."));

/** A path as one would type it here. */
export const shownPath = (file: string): string => {
  const relative = path.relative(process.cwd(), file);
  return relative === "" || relative.startsWith("..") ? file : relative;
};
