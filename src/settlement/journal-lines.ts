import { keyRef } from "../store/names.ts";
import { readRegularFile } from "../store/process-files.ts";
import type { Logger } from "../telemetry/log.ts";
import { type EarlierLine, settlementOfEarlier } from "./journal-earlier-lines.ts";
import type { Settlement } from "./pending-settlement.ts";

/**
 * The format of the lines that this release writes: the arguments of the scripts, by name. Releases that do not know
 * `isAnswered` read such a line as a settlement that waits, and send it once more, which changes nothing.
 */
const FORMAT = 3;

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
  // Lines of earlier releases have `clustered`.
  const inFile = { ...call, key: { keyId, accountId, partition }, tiers: undefined, clustered: undefined };
  const line = { format: FORMAT, store: storeId, atMs, untilMs, isCounted, isAnswered, script, call: inFile };
  return `${JSON.stringify(line)}\n`;
}

/** The content of a file. */
export interface JournalContent {
  settlements: Settlement[];
  /** The latest format of its lines, if a later release than this one has written any. */
  laterFormat?: number;
}

/** Reads a journal file. Its last line may be cut if the writer crashed. */
export function readJournalFile(path: string, log?: Logger): JournalContent {
  const content: JournalContent = { settlements: [] };
  for (const text of readRegularFile(path, FILE_BYTES_MAX).split("\n")) {
    if (text === "") continue;
    let line: Line | EarlierLine;
    try {
      line = JSON.parse(text) as Line | EarlierLine;
    } catch {
      log?.warn({ file: path }, "the journal ends in half a line; its request's hold ends at the due time");
      continue;
    }
    const { format = 1 } = line;
    if (format > FORMAT) content.laterFormat = format;
    const settlement = "call" in line ? settlementOf(line) : settlementOfEarlier(line);
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
