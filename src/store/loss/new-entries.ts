import { LEDGER_START, recordOf, type StreamEntry } from "../ledger-entries.ts";
import { partitionNames } from "../names.ts";
import { many } from "../pipelines.ts";
import type { ConfirmedEntry, LastConfirmedFile } from "./last-confirmed.ts";
import type { LedgerPage, RecentEntries } from "./recent-entries.ts";
import type { StorePart } from "./store-part.ts";

/**
 * Each look may read so many entries on average, and unused reads are saved up to a maximum. If there are more, only the
 * latest of each partition are read. An entry costs this process a tenth of a generation. Decision 0031.
 */
const READ_PER_LOOK = 250;
const READ_AT_ONCE_MAX = 5000;

/** A ledger, and the last entry of it that is known: `LEDGER_START` if it had none, undefined before the first look. */
interface Position {
  ledger: string;
  after: string | undefined;
}

/**
 * Reads what the ledgers have got since the last look, whoever wrote it, one part of the store after the other.
 * @param lastConfirmed keeps the last entry of each ledger
 * @param recent keeps the entries before them, for the list of what is lost
 */
export function createEntryReader(lastConfirmed: LastConfirmedFile, recent: RecentEntries) {
  /** Ledgers that had no entry at the last look. */
  let empty = { storeId: "", epoch: 0, ledgers: new Set<string>() };
  /** How many entries may still be read. */
  let allowance = READ_AT_ONCE_MAX;

  /**
   * @returns false if a ledger lacks the last entry that is known of it: behind a proxy a store can be replaced while the
   *   connection stays
   */
  return async (
    { redis, has }: Pick<StorePart, "redis" | "has">,
    storeId: string,
    partitions: number,
  ): Promise<boolean> => {
    const { epoch, entries } = lastConfirmed.of(storeId);
    if (empty.storeId !== storeId || empty.epoch !== epoch) empty = { storeId, epoch, ledgers: new Set() };
    const ledgers = Array.from({ length: partitions }, (_, partition) => partitionNames(partition).ledger);
    const positions = ledgers.filter(has).map((ledger) => {
      const start = empty.ledgers.has(ledger) ? LEDGER_START : undefined;
      return { ledger, after: entries.get(ledger)?.id ?? start };
    });
    if (positions.length === 0) return true;
    allowance = Math.min(READ_AT_ONCE_MAX, allowance + (READ_PER_LOOK * positions.length) / partitions);
    const most = Math.max(0, Math.floor(allowance / partitions));
    const answers = await many<StreamEntry[], Position>(redis, positions, (pipe, { ledger, after }) =>
      after === undefined
        ? pipe.xrevrange(ledger, "+", "-", "COUNT", 1)
        : pipe.xrevrange(ledger, "+", after, "COUNT", most + 1),
    );
    // An operator accepted the store meanwhile: the last confirmed entries start anew.
    if (lastConfirmed.of(storeId).epoch !== epoch) return true;
    const pages: LedgerPage[] = [];
    let isWhole = true;
    for (const [at, { ledger, after }] of positions.entries()) {
      const found = sinceLastLook(answers[at]!, after, most);
      if (found === undefined) isWhole = false;
      else if (found.entries.length > 0) pages.push({ storeId, epoch, ledger, ...found });
      else if (after === undefined) empty.ledgers.add(ledger);
    }
    for (const { ledger, entries } of pages) {
      allowance -= entries.length;
      lastConfirmed.keep(storeId, ledger, entries.at(-1)!);
    }
    await recent.keep(pages);
    await lastConfirmed.save();
    return isWhole;
  };
}

/**
 * What a ledger has got since the last look.
 * @param answer newest first, down to the last entry that was known then, unless there are too many
 * @param after that entry; `LEDGER_START` if there was none, undefined if this is the first look
 * @param most entries that were asked for besides `after`
 * @returns oldest first; undefined if that entry is gone
 */
function sinceLastLook(
  answer: readonly StreamEntry[],
  after: string | undefined,
  most: number,
): Pick<LedgerPage, "after" | "entries"> | undefined {
  const newer = answer.filter(([id]) => id !== after);
  const isCut = newer.length > most;
  const isFound = newer.length < answer.length || (after === LEDGER_START && !isCut);
  if (after !== undefined && !isFound && !isCut) return undefined;
  return { after: isFound ? after : undefined, entries: newer.reverse().map(confirmedEntry) };
}

function confirmedEntry([id, fields]: StreamEntry): ConfirmedEntry {
  const record = recordOf(fields);
  const { account_id = "", type = "", amount = "0", reason = "", reference = "", request_id } = record;
  const kind = type === "consume" ? "charge" : reason === "" ? "grant" : reason;
  const entry: ConfirmedEntry = {
    id,
    accountId: account_id,
    kind,
    credits: Math.abs(Number(amount)),
    reference,
  };
  if (request_id !== undefined) entry.requestId = request_id;
  return entry;
}
