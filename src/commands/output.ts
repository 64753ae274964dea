import { once } from "node:events";
import path from "node:path";
import { visible } from "../domain/operator-texts.ts";
import type { Findings } from "../ledger/fold.ts";
import { type Unread, unreadInWords } from "../redis/partition-reads.ts";
import { hasColours, paint, plain, table } from "./terminal.ts";

/** Done as far as possible: a part of the store could not be read, or replicas do not have what was written. */
const PARTLY_EXIT_CODE = 2;
const REPEAT = "Repeat it when they are back: it is not done twice.";

export interface CommandOutput {
  json: Record<string, unknown>;
  text: string;
  /** False makes the exit code 1 though the answer is printed. */
  ok?: boolean;
  /** Where the next page of a list begins. */
  more?: string | undefined;
  /** Parts that could not be read: then the exit code is 2, unless `ok` is false. */
  unread?: Unread | undefined;
  /** False if replicas do not have it yet: then the exit code is 2. Undefined where no replica is asked. */
  confirmed?: boolean | undefined;
  /** Advice if they do not; by default to repeat the command. */
  ifUnconfirmed?: string;
}

export function print(answer: CommandOutput, options: { json?: boolean }): void {
  const { confirmed, ifUnconfirmed = REPEAT } = answer;
  const json = confirmed === undefined ? answer.json : { ...answer.json, confirmed };
  process.stdout.write(options.json ? `${visible(JSON.stringify(json))}\n` : `${answer.text}\n`);
  if (answer.more !== undefined && !options.json) note(`There are more: --after ${answer.more}`);
  if (answer.unread) noteUnread(answer.unread);
  if (confirmed === false) {
    process.exitCode = PARTLY_EXIT_CODE;
    note(
      `Not confirmed: Redis has done this, but too few replicas have it, and a failover may lose it. ${ifUnconfirmed}`,
    );
  }
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
      await writeOut(before + items.map((item) => visible(JSON.stringify(item))).join());
      before = ",";
    },
    /** Writes the members after the list, without those that are undefined. */
    end(members: object): Promise<void> {
      const text = visible(JSON.stringify(members)).slice(1);
      return writeOut(`${before === "," ? "" : before}]${text === "}" ? "" : ","}${text}\n`);
    },
  };
}

export function note(text: string): void {
  process.stderr.write(`${hasColours(process.stderr) ? text : plain(text)}\n`);
}

/** Says on standard error what could not be read, and makes the exit code 2. */
export function noteUnread(unread: Unread): void {
  process.exitCode = PARTLY_EXIT_CODE;
  note(`${unreadInWords(unread)}: ${unread.partitions.join(", ")}. Run it again when all servers answer.`);
}

/** @param what was verified @param seen how much of it */
export function findingsText({ ok, violations, unlisted = 0 }: Findings, what: string, seen: string): string {
  if (!ok && violations.length === 0)
    return `${paint("yellow", `Not all of the ${what} could be read`)}; what could be is right: ${seen}.`;
  if (ok) return `${paint("green", `The ${what} is right`)}: ${seen}.`;
  const rows = violations.map((one) => [one.invariant, one.account_id, one.request_id, one.message]);
  const more = unlisted > 0 ? `\n... and ${unlisted} more` : "";
  const found = numbered(violations.length + unlisted, "violation", "violations");
  const all = table(["INVARIANT", "ACCOUNT", "REQUEST", "WHAT"], rows);
  return `${all}${more}\n\n${paint("red", found)} in ${seen}.`;
}

export const numbered = (count: number, one: string, many: string): string =>
  `${count} ${count === 1 ? one : many}`;

export const shownPath = (file: string): string => {
  const relative = path.relative(process.cwd(), file);
  return relative === "" || relative.startsWith("..") ? file : relative;
};
