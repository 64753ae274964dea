import { keyRef } from "../store/names.ts";
import { readRegularFile } from "../store/process-files.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Settlement } from "./pending-settlement.ts";

/** The format of the lines: the arguments of the scripts, by name. */
const FORMAT = 1;

/** Some 1,700 bytes for each line that a gateway may have. Nothing is written beyond it, either. */
export const FILE_BYTES_MAX = 256 * 2 ** 20;

/** A settlement in a file. The Redis names of its key follow from the ids. */
interface Line extends Pick<Settlement, "script" | "atMs" | "untilMs" | "isCounted" | "isAnswered"> {
  format: number;
  store?: string | undefined;
  call: { key: { keyId: string; accountId: string; partition: number } };
}

/** The line of a settlement. */
export function lineOf({ script, storeId, call, ...settlement }: Settlement): string {
  const { atMs, untilMs, isCounted, isAnswered } = settlement;
  const { keyId, accountId, partition } = call.key;
  const inFile = { ...call, key: { keyId, accountId, partition }, tiers: undefined };
  const line = { format: FORMAT, store: storeId, atMs, untilMs, isCounted, isAnswered, script, call: inFile };
  return `${JSON.stringify(line)}\n`;
}

/** The content of a file. */
export interface JournalContent {
  settlements: Settlement[];
  /** The format of lines that another version of Tollgate has written. */
  otherFormat?: number;
}

/** Reads a journal file. Its last line may be cut if the writer crashed. */
export function readJournalFile(path: string, log?: Logger): JournalContent {
  const content: JournalContent = { settlements: [] };
  for (const text of readRegularFile(path, FILE_BYTES_MAX).split("\n")) {
    if (text === "") continue;
    let line: Line;
    try {
      line = JSON.parse(text) as Line;
    } catch {
      log?.warn({ file: path }, "the journal ends in half a line; its request's hold ends at the due time");
      continue;
    }
    if (line && line.format !== FORMAT && line.format) content.otherFormat = line.format;
    const settlement = line?.format === FORMAT && line.call ? settlementOf(line) : undefined;
    if (settlement) content.settlements.push(settlement);
    else log?.error({ file: path, line: text }, "a line of the journal makes no sense; settle it by hand");
  }
  return content;
}

/** The settlement in one line; undefined if it makes no sense, or is of another format. */
export function settlementOfLine(text: string): Settlement | undefined {
  try {
    const line = JSON.parse(text) as Line;
    return line.format === FORMAT ? settlementOf(line) : undefined;
  } catch {
    return undefined;
  }
}

function settlementOf({ store, script, atMs, untilMs, call, ...line }: Line): Settlement {
  const { keyId, accountId, partition } = call.key;
  const { isCounted = false, isAnswered = false } = line;
  const states = { ...(isCounted && { isCounted }), ...(isAnswered && { isAnswered }) };
  const fixed = { ...(untilMs !== undefined && { untilMs }), ...states };
  const key = keyRef(keyId, accountId, partition);
  return { script, storeId: store, atMs, ...fixed, call: { ...call, key } } as Settlement;
}
