import type { Redis } from "ioredis";
import type { Logger } from "../telemetry/log.ts";
import { LEDGER_START, recordOf, type StreamEntry } from "./ledger-entries.ts";
import { type Mark, type MarksFile, msOf, type StoreMarks } from "./marks-file.ts";
import { META, partitionNames, requestName } from "./names.ts";
import { many } from "./pipelines.ts";
import type { LedgerPage, RecentEntries } from "./recent-entries.ts";
import type { BindCall, Binding } from "./scripts/bind.ts";

/** How long a charge that the store has confirmed is kept, to be sent again if the store comes back without it. */
const CONFIRMED_MS = 30_000;
const CONFIRMED_MAX = 5000;
/** Charges that a report names. */
const NAMED_MAX = 100;
/**
 * Entries that may be read in each look over the time, and at once after a time with fewer; of more, only the latest of
 * each partition are read. One costs this process a tenth of a generation. Decision 0031.
 */
const READ_PER_LOOK = 250;
const READ_AT_ONCE_MAX = 5000;

/** An entry of the ledger that the store confirmed and does not have any more. */
export interface MissingEntry extends Mark {
  /** Name of the partition's stream. */
  ledger: string;
  /** The last entry that the store has from before it; empty if there is none. */
  has: string;
  /** How much older the store is, as far as this entry tells, ms. */
  olderMs: number;
}

/** A charge that the store confirmed and does not have any more; it is sent again. */
export interface LostCharge {
  requestId: string;
  accountId: string;
  credits: number;
  taskId: string;
}

/** A BIND as it was sent: to which store, and until when it may be sent again, Unix ms by the store's clock. */
export interface SentCharge {
  storeId?: string | undefined;
  atMs: number;
  settleWithinMs?: number;
  untilMs?: number;
  call: BindCall;
}

/** What is known to be missing in a store. `tg:meta` keeps it in `older` until an operator accepts it. */
export interface Loss {
  missing: MissingEntry[];
  charges: LostCharge[];
}

/** A loss as it stands in `tg:meta`, with the latest acceptance that its gateway knew of. */
type Report = Loss & { epoch: number };

/** What `tg:meta` says of losses. */
export async function readAcceptance(redis: Redis): Promise<{ epoch: number; older: Report | undefined }> {
  const [epochText, olderText] = await redis.hmget(META, "epoch", "older");
  const epoch = Number(epochText ?? 0);
  const older = olderText ? (JSON.parse(olderText) as Report) : undefined;
  // A gateway that was held up writes down after an acceptance what it had found before.
  return { epoch, older: older && older.epoch >= epoch ? older : undefined };
}

/** Which of these entries the store does not have, in one pipeline; the ledger is never trimmed. */
export async function missingEntries(redis: Redis, marks: StoreMarks["marks"]): Promise<MissingEntry[]> {
  const all = [...marks].map(([ledger, mark]) => ({ ledger, mark }));
  const found = await many<StreamEntry[], (typeof all)[number]>(redis, all, (pipe, { ledger, mark }) =>
    pipe.xrange(ledger, mark.id, mark.id),
  );
  const lost = all.filter((_, at) => found[at]?.length === 0);
  const before = await many<StreamEntry[], (typeof all)[number]>(redis, lost, (pipe, { ledger, mark }) =>
    pipe.xrevrange(ledger, mark.id, "-", "COUNT", 1),
  );
  return lost.map(({ ledger, mark }, at) => {
    const has = before[at]?.[0]?.[0] ?? "";
    return { ...mark, ledger, has, olderMs: has === "" ? 0 : msOf(mark.id) - msOf(has) };
  });
}

/** The charge of a BIND. */
export const chargeOf = ({ call }: SentCharge): LostCharge => ({
  requestId: call.requestId,
  accountId: call.key.accountId,
  credits: call.price,
  taskId: call.task.taskId,
});

/** What is wrong with an older store, and what to do. */
export function lossInWords({ missing, charges }: Loss): string {
  const worst = missing.toSorted((a, b) => b.olderMs - a.olderMs)[0];
  const example = worst
    ? `; ${worst.ledger} ends at ${worst.has || "nothing"} before ${worst.id} (${worst.olderMs} ms)`
    : "";
  return (
    "the store is older than what it confirmed: the last known entries of " +
    `${missing.length} ledgers and ${charges.length} recent charges are missing${example}; ` +
    "restore a newer copy, or see `tollgate store accept`"
  );
}

/**
 * Remembers what the store has confirmed: the last ledger entry of each partition, and the charges of the last seconds.
 * A store that comes back without them is older than what gateways and customers were told. Decision 0031.
 * @param options.file keeps the last entries beyond this process
 * @param options.recent keeps those before them, for the list of what is lost
 * @param options.sendAgain takes a charge that the store has lost
 */
export function createStoreMarks(options: {
  file: MarksFile;
  recent: RecentEntries;
  nowMs(): number;
  sendAgain(settlement: SentCharge): Promise<void>;
  changed(isOlder: boolean): void;
  log: Logger;
}) {
  const { file, recent, log } = options;
  /** Ledgers that had no entry at the last look. */
  let empty = { storeId: "", epoch: 0, ledgers: new Set<string>() };
  /** How many entries may still be read. */
  let allowance = READ_AT_ONCE_MAX;
  /** Oldest first. Nothing is added while the store is away, so an outage takes nothing from it. */
  let confirmed: SentCharge[] = [];
  /** Those that the store has lost: the outbox keeps them, too. */
  const sentAgain = new WeakSet<SentCharge>();

  /** Charges of the last seconds that the store does not have. */
  async function lostCharges(redis: Redis, storeId: string): Promise<SentCharge[]> {
    const nowMs = options.nowMs();
    confirmed = confirmed.filter(
      ({ atMs, settleWithinMs = 0, untilMs = atMs + settleWithinMs }) => nowMs < untilMs,
    );
    const own = confirmed.filter((settlement) => settlement.storeId === storeId);
    const states = await many<string | null, SentCharge>(redis, own, (pipe, { call }) =>
      pipe.hget(requestName(call.key.partition, call.requestId), "state"),
    );
    return own.filter((_, at) => states[at] !== "bound" && states[at] !== "finished");
  }

  /** From here on the outbox keeps these charges. Resolves once they are on disk: an operator may take hours. */
  async function sendAgain(lost: SentCharge[]): Promise<void> {
    const fresh = lost.filter((settlement) => !sentAgain.has(settlement));
    for (const settlement of fresh) sentAgain.add(settlement);
    await Promise.all(fresh.map(options.sendAgain));
  }
  const forgetSentAgain = (): void => {
    confirmed = confirmed.filter((settlement) => !sentAgain.has(settlement));
  };

  return {
    /** A BIND that the store has confirmed. */
    charged(settlement: SentCharge, outcome: Binding): void {
      if (outcome === "conflict" || settlement.storeId === undefined) return;
      confirmed.push(settlement);
      if (confirmed.length < CONFIRMED_MAX && settlement.atMs - confirmed[0]!.atMs < 2 * CONFIRMED_MS) return;
      const since = settlement.atMs - CONFIRMED_MS;
      confirmed = confirmed.slice(-CONFIRMED_MAX / 2).filter(({ atMs }) => atMs >= since);
    },
    /**
     * Compares the store with what it has confirmed.
     * @throws Error while it is older, in words that say what is missing
     */
    async requireNotOlder(redis: Redis, storeId: string): Promise<void> {
      const { epoch, older } = await readAcceptance(redis);
      const lost = await lostCharges(redis, storeId);
      const known = file.of(storeId);
      const isAccepted = epoch > known.epoch;
      const kept = sendAgain(lost);
      if (isAccepted) {
        if (known.marks.size > 0)
          log.warn({ epoch }, "an operator has accepted this store; what it confirmed before is forgotten");
        file.accept(storeId, epoch);
        forgetSentAgain();
      }
      const missing = await missingEntries(redis, file.of(storeId).marks);
      await kept;
      const isOlder = missing.length > 0 || (lost.length > 0 && !isAccepted) || epoch < known.epoch;
      options.changed(isOlder || older !== undefined);
      if (!isOlder && !older) return forgetSentAgain();
      const loss = { missing, charges: lost.slice(0, NAMED_MAX).map(chargeOf) };
      // So that gateways that have never met it do not serve from it either, and the command can say what is missing. If
      // it cannot be written, this one refuses the store all the same.
      const report: Report = { epoch: Math.max(epoch, known.epoch), ...loss };
      if (!older) await redis.hset(META, "older", JSON.stringify(report)).catch(() => undefined);
      throw new Error(lossInWords(older ?? loss));
    },
    /**
     * Learns what each partition's ledger has got since the last look, whoever wrote it.
     * @returns false if a ledger lacks the last entry that is known of it, which `requireNotOlder` has to judge: behind a
     *   proxy a store can be replaced while the connection stays
     */
    async learn(redis: Redis, storeId: string, partitions: number): Promise<boolean> {
      const { epoch, marks } = file.of(storeId);
      if (empty.storeId !== storeId || empty.epoch !== epoch) empty = { storeId, epoch, ledgers: new Set() };
      const looks = Array.from({ length: partitions }, (_, partition) => {
        const { ledger } = partitionNames(partition);
        return {
          ledger,
          after: marks.get(ledger)?.id ?? (empty.ledgers.has(ledger) ? LEDGER_START : undefined),
        };
      });
      allowance = Math.min(READ_AT_ONCE_MAX, allowance + READ_PER_LOOK);
      const most = Math.max(0, Math.floor(allowance / partitions));
      const answers = await many<StreamEntry[], (typeof looks)[number]>(
        redis,
        looks,
        (pipe, { ledger, after }) =>
          after === undefined
            ? pipe.xrevrange(ledger, "+", "-", "COUNT", 1)
            : pipe.xrevrange(ledger, "+", after, "COUNT", most + 1),
      );
      // An acceptance came in between: what is known has begun anew.
      if (file.of(storeId).epoch !== epoch) return true;
      const pages: LedgerPage[] = [];
      let isWhole = true;
      for (const [at, { ledger, after }] of looks.entries()) {
        const found = sinceLastLook(answers[at]!, after, most);
        if (found === undefined) isWhole = false;
        else if (found.entries.length > 0) pages.push({ storeId, epoch, ledger, ...found });
        else if (after === undefined) empty.ledgers.add(ledger);
      }
      for (const { entries } of pages) allowance -= entries.length;
      for (const { ledger, entries } of pages) file.learn(storeId, ledger, entries.at(-1)!);
      await recent.keep(pages);
      await file.save();
      return isWhole;
    },
    close: file.save,
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
  return { after: isFound ? after : undefined, entries: newer.reverse().map(markOf) };
}

function markOf([id, fields]: StreamEntry): Mark {
  const {
    account_id = "",
    type = "",
    amount = "0",
    reason = "",
    reference = "",
    request_id,
  } = recordOf(fields);
  const kind = type === "consume" ? "charge" : reason === "" ? "grant" : reason;
  const mark: Mark = { id, accountId: account_id, kind, credits: Math.abs(Number(amount)), reference };
  if (request_id !== undefined) mark.requestId = request_id;
  return mark;
}
