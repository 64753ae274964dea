import type { Redis } from "ioredis";
import { isLater, LEDGER_START, type StreamEntry } from "../../records/ledger-entries.ts";
import { partitionNames } from "../../records/names.ts";
import { many } from "../../redis/pipelines.ts";
import { createWriteWatch } from "../../redis/write-watch.ts";
import type { LastConfirmedFile } from "./last-confirmed.ts";
import { confirmedEntry, mustSurvive, type PrimaryView, trimmedTo } from "./loss-report.ts";
import type { LedgerPage, RecentEntries } from "./recent-entries.ts";

/** On average; unused reads are saved up. Of more entries only the latest of each partition are read. Decision 0031. */
const READ_PER_SECOND = 250;
const READ_AT_ONCE_MAX = 5000;
/** With replicas, the last entry may be one that does not count. */
const FIRST_READ = 10;

/** `LEDGER_START`: had none; undefined: before the first read. */
interface Position {
  ledger: string;
  after: string | undefined;
}

type View = Pick<PrimaryView, "redis" | "has" | "confirmed">;

export function createEntryReader(lastConfirmed: LastConfirmedFile, recent: RecentEntries) {
  const read = new EntryReads(lastConfirmed, recent);
  const watch = createWriteWatch();
  /** Servers whose last read found new entries, or a missing one: they are read without asking for news. */
  const busy = new WeakSet<Redis>();
  let forgotten = 0;
  return {
    /** @returns false if a ledger lacks its last known entry: a proxy may lead to another server */
    async readNewEntries(view: View, storeId: string, partitions: number): Promise<boolean> {
      const all = Array.from({ length: partitions }, (_, partition) => partitionNames(partition).ledger);
      const ledgers = all.filter(view.has);
      if (ledgers.length === 0) return true;
      read.refill(ledgers.length / partitions);
      const { redis } = view;
      let isRead = (): void => undefined;
      if (!busy.has(redis)) {
        const { acceptedAt } = lastConfirmed.of(storeId);
        const news = await watch.news(redis, [storeId, acceptedAt, forgotten, ...ledgers].join(" "));
        if (!news) {
          await lastConfirmed.save();
          return true;
        }
        isRead = news;
      }
      const { isWhole, hasNew } = await read.from(view, storeId, ledgers, partitions);
      if (!isWhole || hasNew) busy.add(redis);
      else {
        busy.delete(redis);
        isRead();
      }
      return isWhole;
    },
    forget(storeId: string, ledger: string): void {
      forgotten++;
      read.forget(storeId, ledger);
    },
  };
}

class EntryReads {
  readonly #lastConfirmed: LastConfirmedFile;
  readonly #recent: RecentEntries;
  #known = nothingKnown("", 0);
  #allowance = READ_AT_ONCE_MAX;

  constructor(lastConfirmed: LastConfirmedFile, recent: RecentEntries) {
    this.#lastConfirmed = lastConfirmed;
    this.#recent = recent;
  }

  refill(share: number): void {
    this.#allowance = Math.min(READ_AT_ONCE_MAX, this.#allowance + READ_PER_SECOND * share);
  }

  forget(storeId: string, ledger: string): void {
    this.#known.readUntil.delete(ledger);
    this.#lastConfirmed.forget(storeId, ledger);
  }

  async from(view: View, storeId: string, ledgers: readonly string[], partitions: number) {
    const { redis, confirmed } = view;
    const { acceptedAt, entries } = this.#lastConfirmed.of(storeId);
    if (this.#known.storeId !== storeId || this.#known.acceptedAt !== acceptedAt)
      this.#known = nothingKnown(storeId, acceptedAt);
    const { empty, readUntil } = this.#known;
    const endOf = (ledger: string): string | undefined =>
      readUntil.get(ledger) ?? entries.get(ledger)?.id ?? (empty.has(ledger) ? LEDGER_START : undefined);
    const positions = ledgers.map((ledger) => ({ ledger, after: endOf(ledger) }));
    const most = Math.max(0, Math.floor(this.#allowance / partitions));
    const answers = await many<StreamEntry[], Position>(redis, positions, (pipe, { ledger, after }) =>
      after === undefined
        ? pipe.xrevrange(ledger, "+", "-", "COUNT", confirmed ? FIRST_READ : 1)
        : pipe.xrevrange(ledger, "+", after, "COUNT", most + 1),
    );
    // An acceptance meanwhile: the last confirmed entries start anew.
    if (this.#lastConfirmed.of(storeId).acceptedAt !== acceptedAt) return { isWhole: true, hasNew: true };
    const pages: LedgerPage[] = [];
    const compared = await compareWithLedgers(redis, positions, answers, most);
    for (const [at, { ledger, after }] of positions.entries()) {
      const found = compared[at];
      if (found === undefined) readUntil.delete(ledger);
      else if (found.entries.length > 0) pages.push({ storeId, acceptedAt, ledger, ...found });
      else if (after === undefined) empty.add(ledger);
      this.#allowance -= found?.entries.length ?? 0;
    }
    await (confirmed ? this.#keepConfirmed(pages, readUntil, confirmed) : this.#keepAll(pages));
    return { isWhole: !compared.includes(undefined), hasNew: pages.length > 0 };
  }

  /** Kept once replicas have them; else they are read again. */
  async #keepConfirmed(
    pages: readonly LedgerPage[],
    readUntil: Map<string, string>,
    confirmed: () => Promise<boolean>,
  ): Promise<void> {
    if (pages.length === 0 || !(await confirmed())) return;
    const kept = pages.map((page) => ({
      ...page,
      entries: page.entries.map((entry) => ({ ...entry, onReplicas: true as const })),
    }));
    for (const { storeId, acceptedAt, ledger, entries } of kept) {
      if (this.#lastConfirmed.of(storeId).acceptedAt !== acceptedAt) return;
      readUntil.set(ledger, entries.at(-1)!.id);
      const last = entries.findLast(mustSurvive);
      if (last) this.#lastConfirmed.keep(storeId, ledger, last);
    }
    await this.#recent.keep(kept);
    await this.#lastConfirmed.save();
  }

  async #keepAll(pages: readonly LedgerPage[]): Promise<void> {
    for (const { storeId, ledger, entries } of pages)
      this.#lastConfirmed.keep(storeId, ledger, entries.at(-1)!);
    await this.#recent.keep(pages);
    await this.#lastConfirmed.save();
  }
}

const nothingKnown = (storeId: string, acceptedAt: number) => ({
  storeId,
  acceptedAt,
  empty: new Set<string>(),
  readUntil: new Map<string, string>(),
});

/** If the last known entry was trimmed, the page begins after a gap. */
async function compareWithLedgers(
  redis: Redis,
  positions: readonly Position[],
  answers: readonly StreamEntry[][],
  most: number,
): Promise<ReturnType<typeof newEntriesIn>[]> {
  const compared = positions.map(({ after }, at) => newEntriesIn(answers[at]!, after, most));
  const missing = positions.filter((_, at) => compared[at] === undefined).map(({ ledger }) => ledger);
  if (missing.length === 0) return compared;
  const trimmed = await trimmedTo(redis, missing);
  return positions.map(({ ledger, after }, at) => {
    const end = trimmed.get(ledger);
    const isTrimmed = end !== undefined && after !== undefined && !isLater(after, end);
    return isTrimmed ? newEntriesIn(answers[at]!, undefined, most) : compared[at];
  });
}

function newEntriesIn(
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
