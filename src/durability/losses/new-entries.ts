import type { Redis } from "ioredis";
import { isLater } from "../../records/entry-ids.ts";
import { LEDGER_START, type StreamEntry } from "../../records/ledger-entries.ts";
import { partitionNames } from "../../records/names.ts";
import { many } from "../../redis/pipelines.ts";
import { createWriteWatch } from "../../redis/write-watch.ts";
import { confirmedEntry, cutsOf, mustSurvive } from "./entry-judge.ts";
import type { LastConfirmedFile } from "./last-confirmed.ts";
import type { LedgerPage, RecentEntries } from "./recent-entries.ts";
import type { StorePart } from "./store-part.ts";

/** On average; unused reads are saved up. Of more entries only the latest of each partition are read. Decision 0031. */
const READ_PER_LOOK = 250;
const READ_AT_ONCE_MAX = 5000;
/** With replicas, the last entry may be one that does not count. */
const FIRST_LOOK = 10;

/** `LEDGER_START`: had none; undefined: before the first poll. */
interface Position {
  ledger: string;
  after: string | undefined;
}

type Part = Pick<StorePart, "redis" | "has" | "confirmed">;

/** Reads new ledger entries of any writer since the last poll. */
export function createEntryReader(lastConfirmed: LastConfirmedFile, recent: RecentEntries) {
  const looks = createLooks(lastConfirmed, recent);
  const watch = createWriteWatch();
  let forgotten = 0;
  return {
    /** @returns false if a ledger lacks its last known entry: a proxy may lead to another server */
    async readNewEntries(part: Part, storeId: string, partitions: number): Promise<boolean> {
      const all = Array.from({ length: partitions }, (_, partition) => partitionNames(partition).ledger);
      const ledgers = all.filter(part.has);
      if (ledgers.length === 0) return true;
      const { epoch } = lastConfirmed.of(storeId);
      const subject = [storeId, epoch, forgotten, ...ledgers].join(" ");
      const looked = await watch.news(part.redis, subject);
      if (!looked) {
        looks.refill(ledgers.length / partitions);
        await lastConfirmed.save();
        return true;
      }
      const { isWhole, isKept } = await looks.look(part, storeId, ledgers, partitions);
      if (isWhole && isKept) looked();
      return isWhole;
    },
    forget(storeId: string, ledger: string): void {
      forgotten++;
      looks.forget(storeId, ledger);
    },
  };
}

function createLooks(lastConfirmed: LastConfirmedFile, recent: RecentEntries) {
  let known = { storeId: "", epoch: 0, ...NOTHING_KNOWN() };
  let allowance = READ_AT_ONCE_MAX;

  function refill(share: number): void {
    allowance = Math.min(READ_AT_ONCE_MAX, allowance + READ_PER_LOOK * share);
  }

  async function look(
    { redis, confirmed }: Part,
    storeId: string,
    ledgers: readonly string[],
    partitions: number,
  ): Promise<{ isWhole: boolean; isKept: boolean }> {
    const { epoch, entries } = lastConfirmed.of(storeId);
    if (known.storeId !== storeId || known.epoch !== epoch) known = { storeId, epoch, ...NOTHING_KNOWN() };
    const { empty, readUntil } = known;
    const endOf = (ledger: string): string | undefined =>
      readUntil.get(ledger) ?? entries.get(ledger)?.id ?? (empty.has(ledger) ? LEDGER_START : undefined);
    const positions = ledgers.map((ledger) => ({ ledger, after: endOf(ledger) }));
    refill(positions.length / partitions);
    const most = Math.max(0, Math.floor(allowance / partitions));
    const answers = await many<StreamEntry[], Position>(redis, positions, (pipe, { ledger, after }) =>
      after === undefined
        ? pipe.xrevrange(ledger, "+", "-", "COUNT", confirmed ? FIRST_LOOK : 1)
        : pipe.xrevrange(ledger, "+", after, "COUNT", most + 1),
    );
    // An acceptance meanwhile: the last confirmed entries start anew.
    if (lastConfirmed.of(storeId).epoch !== epoch) return { isWhole: true, isKept: false };
    const pages: LedgerPage[] = [];
    const looks = await looksAt(redis, positions, answers, most);
    for (const [at, { ledger, after }] of positions.entries()) {
      const found = looks[at];
      if (found === undefined) readUntil.delete(ledger);
      else if (found.entries.length > 0) pages.push({ storeId, epoch, ledger, ...found });
      else if (after === undefined) empty.add(ledger);
      allowance -= found?.entries.length ?? 0;
    }
    const isKept = confirmed
      ? await keepConfirmed(pages, readUntil, confirmed)
      : await keepPages(lastConfirmed, recent, pages);
    return { isWhole: looks.every((found) => found !== undefined), isKept };
  }

  /** Kept once replicas have them; else they are read again. */
  async function keepConfirmed(
    pages: readonly LedgerPage[],
    readUntil: Map<string, string>,
    confirmed: () => Promise<boolean>,
  ): Promise<boolean> {
    if (pages.length === 0) return true;
    if (!(await confirmed())) return false;
    const kept = pages.map((page) => ({
      ...page,
      entries: page.entries.map((entry) => ({ ...entry, onReplicas: true as const })),
    }));
    for (const { storeId, epoch, ledger, entries } of kept) {
      if (lastConfirmed.of(storeId).epoch !== epoch) return false;
      readUntil.set(ledger, entries.at(-1)!.id);
      const last = entries.findLast(mustSurvive);
      if (last) lastConfirmed.keep(storeId, ledger, last);
    }
    await recent.keep(kept);
    await lastConfirmed.save();
    return true;
  }

  return {
    look,
    refill,
    forget(storeId: string, ledger: string): void {
      known.readUntil.delete(ledger);
      lastConfirmed.forget(storeId, ledger);
    },
  };
}

async function keepPages(
  lastConfirmed: LastConfirmedFile,
  recent: RecentEntries,
  pages: readonly LedgerPage[],
): Promise<boolean> {
  for (const { storeId, ledger, entries } of pages) lastConfirmed.keep(storeId, ledger, entries.at(-1)!);
  await recent.keep(pages);
  await lastConfirmed.save();
  return true;
}

const NOTHING_KNOWN = () => ({
  empty: new Set<string>(),
  readUntil: new Map<string, string>(),
});

/** If the last known entry was trimmed, the page begins after a gap. */
async function looksAt(
  redis: Redis,
  positions: readonly Position[],
  answers: readonly StreamEntry[][],
  most: number,
): Promise<ReturnType<typeof sinceLastLook>[]> {
  const looks = positions.map(({ after }, at) => sinceLastLook(answers[at]!, after, most));
  const unfound = positions.filter((_, at) => looks[at] === undefined).map(({ ledger }) => ledger);
  if (unfound.length === 0) return looks;
  const cuts = await cutsOf(redis, unfound);
  return positions.map(({ ledger, after }, at) => {
    const cut = cuts.get(ledger);
    const hasLeft = cut !== undefined && after !== undefined && !isLater(after, cut);
    return hasLeft ? sinceLastLook(answers[at]!, undefined, most) : looks[at];
  });
}

/** New entries of a ledger, oldest first; undefined if the last known one is missing. */
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
