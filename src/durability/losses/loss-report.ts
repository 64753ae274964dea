import type { Redis } from "ioredis";
import { entryFields, isLater, LEDGER_START, msOf, type StreamEntry } from "../../records/ledger-entries.ts";
import { accountNames, META, partitionNames, partitionOfLedger, requestName } from "../../records/names.ts";
import { requestOf } from "../../records/records.ts";
import { many } from "../../redis/pipelines.ts";
import type { SentCharge } from "./confirmed-charges.ts";
import type { ConfirmedEntry, LastConfirmed } from "./last-confirmed.ts";

export interface PrimaryView {
  redis: Redis;
  within<T>(work: Promise<T>): Promise<T>;
  has(name: string): boolean;
  nowMs(): number;
  confirmed?: (() => Promise<boolean>) | undefined;
  meta: {
    redis: Redis;
    /** Its last known losses count while it is unavailable. */
    isAway: boolean;
  };
}

/** The last confirmed entry of a ledger that the store does not have: it proves that the store is stale. */
export interface MissingEntry extends ConfirmedEntry {
  ledger: string;
  /** The last entry before it; empty for none. */
  endsAt: string;
  behindMs: number;
}

interface MissingCharge {
  requestId: string;
  accountId: string;
  credits: number;
  taskId: string;
}

export interface Loss {
  missing: MissingEntry[];
  charges: MissingCharge[];
}

/** Kept in `loss` of `tg:meta` until an operator accepts it. */
export interface LossReport extends Loss {
  /** The acceptance that it was found after (Unix ms); 0 for none. */
  acceptedAt: number;
  /** Undefined for the whole store. */
  ledgers?: string[];
}

interface Acceptance {
  acceptedAt: number;
  loss: LossReport | undefined;
}

export async function readLossReport(redis: Redis): Promise<Acceptance> {
  const [acceptedAtText, lossText] = await redis.hmget(META, "accepted_at", "loss");
  const acceptedAt = Number(acceptedAtText ?? 0);
  const loss = lossText ? (JSON.parse(lossText) as LossReport) : undefined;
  // A paused gateway may write an older loss after the acceptance.
  return { acceptedAt, loss: loss && loss.acceptedAt >= acceptedAt ? loss : undefined };
}

/** Losses in `tg:meta`. @param changed whether any primary is stale */
export function createReportedLosses(changed: (isStale: boolean) => void) {
  /** Counts while the primary of `tg:meta` is unavailable. */
  let latest: Acceptance | undefined;
  const stale = new Set<Redis>();

  function setStale(redis: Redis, isStale: boolean): void {
    if (isStale) stale.add(redis);
    else stale.delete(redis);
    for (const one of stale) if (one.status === "end") stale.delete(one);
    changed(stale.size > 0);
  }

  return {
    async read({ meta, within, has }: PrimaryView): Promise<Acceptance> {
      if (!latest || !meta.isAway) latest = await within(readLossReport(meta.redis));
      const { acceptedAt, loss } = latest;
      const isHere = loss && (loss.ledgers === undefined || loss.ledgers.some(has));
      return { acceptedAt, loss: isHere ? loss : undefined };
    },
    complete: ({ redis }: PrimaryView): void => setStale(redis, false),
    refuse({ redis }: PrimaryView, loss: Loss): never {
      setStale(redis, true);
      throw new Error(lossInWords(loss));
    },
    /** Writes a loss into `tg:meta`, so that gateways which never used the store refuse it, too. */
    async write({ meta, within }: PrimaryView, loss: LossReport): Promise<void> {
      const read = await within(readLossReport(meta.redis)).catch(() => undefined);
      const report = read?.loss ? together(read.loss, loss) : loss;
      const written = meta.redis.hset(META, "loss", JSON.stringify(report));
      await within(written).catch(() => undefined);
    },
  };
}

function together(one: LossReport, other: LossReport): LossReport {
  const missing = new Map([...one.missing, ...other.missing].map((entry) => [entry.ledger, entry]));
  const report: LossReport = {
    acceptedAt: Math.max(one.acceptedAt, other.acceptedAt),
    missing: [...missing.values()],
    charges: [...one.charges, ...other.charges],
  };
  if (one.ledgers && other.ledgers) report.ledgers = [...new Set([...one.ledgers, ...other.ledgers])];
  return report;
}

export async function missingEntries(
  redis: Redis,
  entries: LastConfirmed["entries"],
): Promise<MissingEntry[]> {
  const all = [...entries].map(([ledger, entry]) => ({ ...entry, ledger }));
  const absent = await absentEntries(redis, ledgerOf, all);
  return withEnds(redis, await missingAmong(redis, ledgerOf, absent));
}

/** Adds where the ledgers end before their missing entries. */
export async function withEnds(
  redis: Redis,
  missing: readonly (ConfirmedEntry & { ledger: string })[],
): Promise<MissingEntry[]> {
  const before = await many<StreamEntry[], (typeof missing)[number]>(redis, missing, (pipe, { ledger, id }) =>
    pipe.xrevrange(ledger, id, "-", "COUNT", 1),
  );
  return missing.map((entry, at) => {
    const endsAt = before[at]?.[0]?.[0] ?? "";
    return { ...entry, endsAt, behindMs: endsAt === "" ? 0 : msOf(entry.id) - msOf(endsAt) };
  });
}

export const ledgerOf = ({ ledger }: { ledger: string }): string => ledger;

export const chargeOf = ({ call }: SentCharge): MissingCharge => ({
  requestId: call.requestId,
  accountId: call.key.accountId,
  credits: call.price,
  taskId: call.task.taskId,
});

export function lossInWords({ missing, charges }: Loss): string {
  const worst = missing.toSorted((a, b) => b.behindMs - a.behindMs)[0];
  const example = worst
    ? `; ${worst.ledger} ends at ${worst.endsAt || "nothing"} before ${worst.id} (${worst.behindMs} ms)`
    : "";
  return (
    "the store is older than what it confirmed: the last known entries of " +
    `${missing.length} ledgers and ${charges.length} recent charges are missing${example}; ` +
    "restore a newer copy, or see `tollgate store accept`"
  );
}

export function confirmedEntry([id, fields]: StreamEntry): ConfirmedEntry {
  const record = entryFields(fields);
  const { account_id = "", type = "", amount = "0", reason = "", reference = "", request_id = "" } = record;
  const isOfRequest = request_id !== "";
  const byHand = reason === "" && type === "recharge" ? "grant" : "adjustment";
  const kind = !isOfRequest ? byHand : type === "consume" ? "charge" : "refund";
  const entry: ConfirmedEntry = {
    id,
    accountId: account_id,
    kind,
    credits: Math.abs(Number(amount)),
    reference,
  };
  if (isOfRequest) entry.requestId = request_id;
  return entry;
}

/** Charges and operators' entries. The next poll repeats a refund. */
export const mustSurvive = ({ kind, reference }: ConfirmedEntry): boolean =>
  kind === "charge" || reference !== "";

/** Entries that are not in the ledger, except trimmed ones. A changed primary may have given the id to another entry. */
export async function absentEntries<E extends ConfirmedEntry>(
  redis: Redis,
  ledgerOf: (entry: E) => string,
  entries: readonly E[],
): Promise<E[]> {
  const found = await many<StreamEntry[], E>(redis, entries, (pipe, entry) =>
    pipe.xrange(ledgerOf(entry), entry.id, entry.id),
  );
  const absent = entries.filter((entry, at) => {
    const stored = found[at]?.[0];
    return !stored || (entry.onReplicas === true && !isSame(confirmedEntry(stored), entry));
  });
  const trimmed = await trimmedTo(redis, absent.map(ledgerOf));
  return absent.filter((entry) => isLater(entry.id, trimmed.get(ledgerOf(entry))!));
}

export async function trimmedTo(redis: Redis, ledgers: readonly string[]): Promise<Map<string, string>> {
  const names = [...new Set(ledgers)];
  const ids = await many<string | null, string>(redis, names, (pipe, ledger) =>
    pipe.hget(partitionNames(partitionOfLedger(ledger)).trimmed, "last_entry"),
  );
  return new Map(names.map((ledger, at) => [ledger, ids[at] ?? LEDGER_START]));
}

const isSame = (a: ConfirmedEntry, b: ConfirmedEntry): boolean =>
  a.accountId === b.accountId &&
  a.kind === b.kind &&
  a.reference === b.reference &&
  (b.requestId === undefined || a.requestId === b.requestId);

/** Absent entries that are missing altogether: not charged again under another id, and not known by their reference. */
export async function missingAmong<E extends ConfirmedEntry>(
  redis: Redis,
  ledgerOf: (entry: E) => string,
  absent: readonly E[],
): Promise<E[]> {
  const answers = await many<string | null, E>(redis, absent, (pipe, entry) => {
    const partition = partitionOfLedger(ledgerOf(entry));
    return entry.kind === "charge"
      ? pipe.get(requestName(partition, entry.requestId ?? ""))
      : pipe.hget(accountNames(partition, entry.accountId).references, entry.reference);
  });
  return absent.filter((entry, at) => {
    if (entry.onReplicas !== true) return true;
    const answer = answers[at];
    if (entry.kind !== "charge") return mustSurvive(entry) && answer === null;
    const { state } = requestOf(answer);
    return state !== "bound" && state !== "finished";
  });
}
