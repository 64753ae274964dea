import type { Redis } from "ioredis";
import { msOf } from "../../records/entry-ids.ts";
import type { StreamEntry } from "../../records/ledger-entries.ts";
import { META } from "../../records/names.ts";
import { many } from "../../redis/pipelines.ts";
import type { SentCharge } from "./confirmed-charges.ts";
import { goneEntries, lostAmong } from "./entry-judge.ts";
import type { ConfirmedEntry, LastConfirmed } from "./last-confirmed.ts";
import type { StorePart } from "./store-part.ts";

/** The last confirmed entry of a ledger that the store lacks: it proves that the store is older. */
export interface MissingEntry extends ConfirmedEntry {
  ledger: string;
  has: string;
  olderMs: number;
}

interface LostCharge {
  requestId: string;
  accountId: string;
  credits: number;
  taskId: string;
}

/** Kept in `older` of `tg:meta` until an operator accepts it. */
export interface Loss {
  missing: MissingEntry[];
  charges: LostCharge[];
}

export interface LossReport extends Loss {
  epoch: number;
  /** Undefined for the whole store. */
  ledgers?: string[];
}

export const concerns = ({ ledgers }: LossReport, { has }: Pick<StorePart, "has">): boolean =>
  ledgers === undefined || ledgers.some(has);

export async function readLossReport(
  redis: Redis,
): Promise<{ epoch: number; older: LossReport | undefined }> {
  const [epochText, olderText] = await redis.hmget(META, "epoch", "older");
  const epoch = Number(epochText ?? 0);
  const older = olderText ? (JSON.parse(olderText) as LossReport) : undefined;
  // A paused gateway may write an older loss after the acceptance.
  return { epoch, older: older && older.epoch >= epoch ? older : undefined };
}

export async function missingEntries(
  redis: Redis,
  entries: LastConfirmed["entries"],
): Promise<MissingEntry[]> {
  const all = [...entries].map(([ledger, entry]) => ({ ...entry, ledger }));
  const gone = await goneEntries(redis, ledgerOf, all);
  return endsOf(redis, await lostAmong(redis, ledgerOf, gone));
}

export async function endsOf(
  redis: Redis,
  lost: readonly (ConfirmedEntry & { ledger: string })[],
): Promise<MissingEntry[]> {
  const before = await many<StreamEntry[], (typeof lost)[number]>(redis, lost, (pipe, { ledger, id }) =>
    pipe.xrevrange(ledger, id, "-", "COUNT", 1),
  );
  return lost.map((entry, at) => {
    const has = before[at]?.[0]?.[0] ?? "";
    return { ...entry, has, olderMs: has === "" ? 0 : msOf(entry.id) - msOf(has) };
  });
}

const ledgerOf = ({ ledger }: { ledger: string }): string => ledger;

export const chargeOf = ({ call }: SentCharge): LostCharge => ({
  requestId: call.requestId,
  accountId: call.key.accountId,
  credits: call.price,
  taskId: call.task.taskId,
});

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
