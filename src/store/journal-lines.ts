import { readFileSync } from "node:fs";
import type { Logger } from "../telemetry/log.ts";
import type { Settlement } from "./outbox.ts";

/**
 * The format of the lines that this release writes. Format 2 says it, and its times are those of the store's clock.
 * Lines of earlier releases say no format: their times are those of the gateway's clock, and some have no store.
 */
const FORMAT = 2;

/** A settlement as it stands in a file. */
type Line = Omit<Settlement, "storeId" | "settled"> & { format?: number; store?: string };

/** The line of a settlement, as it is appended. */
export function lineOf({ requestId, storeId, atMs, untilMs, verb, keys, args, own }: Settlement): string {
  const line: Line = { format: FORMAT, requestId, atMs, verb, keys, args };
  if (storeId !== undefined) line.store = storeId;
  if (untilMs !== undefined) line.untilMs = untilMs;
  if (own !== undefined) line.own = own;
  return `${JSON.stringify(line)}\n`;
}

/** What a file holds. */
export interface JournalContent {
  settlements: Settlement[];
  /** The latest format of its lines, if a later release than this one has written any. */
  laterFormat?: number;
}

/** Reads a journal file; a line may be cut where its writer ended. */
export function readJournalFile(path: string, log?: Logger): JournalContent {
  const content: JournalContent = { settlements: [] };
  for (const text of readFileSync(path, "utf8").split("\n")) {
    if (text === "") continue;
    let line: Line;
    try {
      line = JSON.parse(text) as Line;
    } catch {
      log?.warn({ file: path }, "the journal ends in half a line; its request's hold ends at the due time");
      continue;
    }
    const { format = 1, store, ...settlement } = line;
    if (format > FORMAT) content.laterFormat = format;
    content.settlements.push({ ...settlement, storeId: store });
  }
  return content;
}
