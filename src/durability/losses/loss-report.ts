import type { Redis } from "ioredis";
import { msOf } from "../../records/entry-ids.ts";
import type { StreamEntry } from "../../records/ledger-entries.ts";
import { META } from "../../records/names.ts";
import { many } from "../../redis/pipelines.ts";
import type { SentCharge } from "./confirmed-charges.ts";
import { goneEntries, lostAmong } from "./entry-judge.ts";
import type { ConfirmedEntry, LastConfirmed } from "./last-confirmed.ts";
import type { StorePart } from "./store-part.ts";

/**
 * The last confirmed entry of a ledger that the store does not have any more. It shows that the store is older; `LostEntry`
 * in lost-entries.ts lists all entries that are known to be lost.
 */
export interface MissingEntry extends ConfirmedEntry {
  /** Name of the partition's stream. */
  ledger: string;
  /** The last entry that the store has from before it; empty if there is none. */
  has: string;
  /** How much older the store is, as far as this entry tells, ms. */
  olderMs: number;
}

/** A charge that the store confirmed and does not have any more; it is sent again. */
interface LostCharge {
  requestId: string;
  accountId: string;
  credits: number;
  taskId: string;
}

/** What is known to be missing in a store. `tg:meta` keeps it in `older` until an operator accepts it. */
export interface Loss {
  missing: MissingEntry[];
  charges: LostCharge[];
}

/** A loss in `tg:meta`. */
export interface LossReport extends Loss {
  /** The latest acceptance that its gateway knew of. */
  epoch: number;
  /** The ledgers of the primaries that are older; missing where the whole store is. */
  ledgers?: string[];
}

/** Whether a loss is one of this part of the store. */
export const concerns = ({ ledgers }: LossReport, { has }: Pick<StorePart, "has">): boolean =>
  ledgers === undefined || ledgers.some(has);

/** What `tg:meta` says of losses: the latest acceptance (0 before any), and a loss that is not accepted. */
export async function readLossReport(
  redis: Redis,
): Promise<{ epoch: number; older: LossReport | undefined }> {
  const [epochText, olderText] = await redis.hmget(META, "epoch", "older");
  const epoch = Number(epochText ?? 0);
  const older = olderText ? (JSON.parse(olderText) as LossReport) : undefined;
  // A gateway that was paused may write an older loss after the acceptance.
  return { epoch, older: older && older.epoch >= epoch ? older : undefined };
}

/** Which of these entries a server has lost. */
export async function missingEntries(
  redis: Redis,
  entries: LastConfirmed["entries"],
): Promise<MissingEntry[]> {
  const all = [...entries].map(([ledger, entry]) => ({ ...entry, ledger }));
  const gone = await goneEntries(redis, ledgerOf, all);
  return endsOf(redis, await lostAmong(redis, ledgerOf, gone));
}

/** Lost entries with what their ledgers have instead. */
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
