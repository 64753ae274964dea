import type { Actor } from "../../records/actor.ts";
import {
  compareIds,
  kindOf,
  LEDGER_PAGE,
  LEDGER_START,
  type LedgerEntry,
  ledgerEntry,
  RECLAIM,
  recordOf,
  type StreamEntry,
} from "../../records/ledger-entries.ts";
import { partitionNames, partitionOf } from "../../records/names.ts";
import { OperatorError } from "../../records/operator-error.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { partitionsOf, type RedisNodes } from "../../redis/store-facts.ts";
import { type ChargeEntry, type Refunded, refund } from "../../scripts/credit-changes.ts";
import { findTask } from "../tasks/operator-tasks.ts";
import { book, fromArchive, type ReadArchived, requireReason, requireReference } from "./references.ts";
import type { FindArchivedEntry } from "./transactions.ts";

const SEARCHED_MAX = 500_000;

interface ArchivedCharge {
  charge: ChargeEntry;
  isRefunded: boolean;
  /** Its refund was taken back, since its task completed late. */
  isChargedAgain: boolean;
  /** The newest entry of the partition in the archive. */
  archivedTo: string;
}

/** By either id; undefined if the archive has none. @throws Error if it is unavailable, another store's, or not complete */
export type FindArchivedCharge = (nodes: RedisNodes, id: string) => Promise<ArchivedCharge | undefined>;

/** All undefined without an archive. */
export interface ArchiveLookUps {
  readArchived?: ReadArchived | undefined;
  findCharge?: FindArchivedCharge | undefined;
  findEntry?: FindArchivedEntry | undefined;
}

/**
 * Refunds a finished task's charge once, also a collected one's. @param wanted.reason for operators; customers see `refund`
 * @param wanted.accounts undefined: all @throws OperatorError `not_found`; `conflict`; `unavailable` if the archive is needed
 */
export async function refundTask(
  nodes: RedisNodes,
  id: string,
  wanted: { reason: string; reference: string; accounts?: readonly string[] | undefined },
  actor: Actor,
  archive: ArchiveLookUps = {},
) {
  const { reference, accounts } = wanted;
  const reason = requireReason(wanted.reason);
  requireReference(reference);
  const place = await placeOf(nodes, id, archive, accounts);
  const { accountId, requestId, partition } = place;
  const redis = nodes.of(partition);
  nodes.requireWritable?.([redis]);
  const booked = await book(
    {
      ...{ nodes, partition, accountId, reference, standsFor: `refund ${requestId}` },
      readArchived: archive.readArchived,
    },
    "refunded",
    async (lookedUp) => {
      const call = { partition, accountId, requestId, reference, reason, lookedUp, actor };
      const run = (charge: ChargeEntry | undefined) => scriptsOf(redis).run(refund, { ...call, charge });
      const reply = await run(place.found && chargeOf(place.found));
      if (reply.outcome !== "search") return reply;
      const found = place.found ?? (await findCharge(nodes, requestId, archive, [accountId]));
      if (found.isChargedAgain) throw chargedAgain(id, accountId);
      if (found.isRefunded) throw refundedBefore(id);
      return run(found.charge);
    },
    ({ outcome }) => refusalOf(outcome, id, accountId),
  );
  return { ...booked, accountId, requestId };
}

/** Of a refunded charge the script only checks whether this reference refunded it. */
const chargeOf = (found: FoundCharge): ChargeEntry | undefined =>
  found.isRefunded ? undefined : found.charge;

function refusalOf(outcome: Refunded["outcome"], id: string, accountId: string): OperatorError {
  switch (outcome) {
    case "charged_again":
      return chargedAgain(id, accountId);
    case "unfinished":
      return new OperatorError(
        `${id} has not finished, and nothing is changed; release it, which refunds it`,
        "task_running",
        undefined,
        `\`tollgate tasks release ${id}\` does`,
      );
    case "uncharged":
      return new OperatorError(`${id} was not charged, so there is nothing to refund`, "not_charged");
    default:
      return refundedBefore(id);
  }
}

const refundedBefore = (id: string): OperatorError =>
  new OperatorError(`${id} was refunded before, or corrected; nothing is changed`, "already_refunded");

const chargedAgain = (id: string, accountId: string): OperatorError =>
  new OperatorError(
    `${id} was refunded as too old, and charged again since it completed late; a request is refunded once, and nothing is changed`,
    "charged_again",
    undefined,
    `\`tollgate credits grant ${accountId} CREDITS --kind goodwill --reference REFERENCE\` gives credits back`,
  );

interface FoundCharge {
  charge: ChargeEntry;
  isRefunded: boolean;
  isChargedAgain: boolean;
}

/** By its record or else by its charge. @throws OperatorError `not_found`, `unavailable` */
async function placeOf(
  nodes: RedisNodes,
  id: string,
  archive: ArchiveLookUps,
  accounts: readonly string[] | undefined,
) {
  try {
    const { requestId, partition, record } = await findTask(nodes, id);
    const { account_id: accountId = "" } = record;
    if (accounts === undefined || accounts.includes(accountId))
      return { requestId, partition, accountId, found: undefined };
  } catch (error) {
    if (!(error instanceof OperatorError) || error.code !== "not_found") throw error;
  }
  const found = await findCharge(nodes, id, archive, accounts);
  const { requestId, accountId, partition } = found.charge;
  return { requestId, accountId, partition, found };
}

/** @param accounts undefined: all @throws OperatorError `not_found`; `unavailable` if it may be where nothing could be read */
async function findCharge(
  nodes: RedisNodes,
  id: string,
  { findCharge: findArchived }: ArchiveLookUps,
  accounts: readonly string[] | undefined,
): Promise<FoundCharge> {
  const isAllowed = ({ accountId }: LedgerEntry): boolean =>
    accounts === undefined || accounts.includes(accountId);
  const inArchive = await fromArchive(
    async () => findArchived?.(nodes, id),
    (why) =>
      `nothing is changed: the record of ${id} is gone, and the archive cannot be used (${why}); run this again later`,
  );
  const archived = inArchive && isAllowed(inArchive.charge) ? inArchive : undefined;
  const search = createSearch(nodes, id, isAllowed);
  if (archived) {
    // Newer entries are only in Redis.
    const { charge, archivedTo } = archived;
    const newer = await search.newestFirst(charge.partition, archivedTo);
    const isRefunded = archived.isRefunded || newer.isRefunded;
    return { charge, isRefunded, isChargedAgain: archived.isChargedAgain || newer.isChargedAgain };
  }
  const count = await partitionsOf(nodes);
  const partitions = accounts
    ? new Set(accounts.map((accountId) => partitionOf(accountId, count)))
    : Array.from({ length: count }, (_, partition) => partition);
  for (const partition of partitions) {
    const { charge, ...found } = await search.newestFirst(partition, LEDGER_START);
    if (charge) return { ...found, charge };
  }
  const hasLeft = await search.hasLeft(partitions);
  if (hasLeft && !findArchived) {
    throw new OperatorError(
      `${id} is not in Redis, and may be in the archive; set ARCHIVE_URL and run this again`,
      "unavailable",
    );
  }
  throw new OperatorError(`no task or request ${id} was charged`, "not_found");
}

export function chargeEntry(partition: number, stored: StreamEntry): ChargeEntry {
  const { admitted_at: admittedAt } = recordOf(stored[1]);
  return {
    ...ledgerEntry(partition, stored),
    admittedMs: admittedAt === undefined ? undefined : Number(admittedAt),
  };
}

/** Reads a bounded number of entries in all. */
function createSearch(nodes: RedisNodes, id: string, isAllowed: (entry: LedgerEntry) => boolean) {
  let searched = 0;
  return {
    /** @param until exclusive */
    async newestFirst(
      partition: number,
      until: string,
    ): Promise<{ charge?: ChargeEntry; isRefunded: boolean; isChargedAgain: boolean }> {
      const { ledger } = partitionNames(partition);
      let [isRefunded, isChargedAgain] = [false, false];
      for (let from = "+"; ; ) {
        const page = await nodes.of(partition).xrevrange(ledger, from, "-", "COUNT", LEDGER_PAGE);
        for (const one of page) {
          if (compareIds(one[0], until) <= 0) return { isRefunded, isChargedAgain };
          // Entries of other requests are not parsed.
          if (!one[1].some((text) => text.includes(id))) continue;
          const entry = ledgerEntry(partition, one);
          if ((entry.requestId !== id && entry.taskId !== id) || !isAllowed(entry)) continue;
          if (kindOf(entry) === "charge")
            return { charge: chargeEntry(partition, one), isRefunded, isChargedAgain };
          if (kindOf(entry) === "refund") isRefunded = true;
          if (entry.type === RECLAIM) isChargedAgain = true;
        }
        const last = page.at(-1);
        if (page.length < LEDGER_PAGE || !last) return { isRefunded, isChargedAgain };
        searched += page.length;
        if (searched > SEARCHED_MAX) {
          throw new OperatorError(
            `${id} is not among the latest ${SEARCHED_MAX} ledger entries, and Redis is not searched further; with an archive it is found`,
            "unavailable",
          );
        }
        from = `(${last[0]}`;
      }
    },
    async hasLeft(partitions: Iterable<number>): Promise<boolean> {
      const cuts = await Promise.all(
        Array.from(partitions, (partition) => nodes.of(partition).exists(partitionNames(partition).trimmed)),
      );
      return cuts.includes(1);
    },
  };
}
