import type { Redis } from "ioredis";
import type { SentCharge } from "../../durability/losses/confirmed-charges.ts";
import { isMeantBy, type LastConfirmed, readLastConfirmed } from "../../durability/losses/last-confirmed.ts";
import {
  chargeOf,
  type Loss,
  type MissingEntry,
  missingEntries,
  readLossReport,
} from "../../durability/losses/loss-report.ts";
import { listMissing, type MissingList } from "../../durability/losses/missing-entries.ts";
import { readRecentEntries } from "../../durability/losses/recent-entries.ts";
import { META, partitionOfLedger } from "../../records/names.ts";
import { OperatorError } from "../../records/operator-error.ts";
import { placeOf } from "../../redis/open-nodes.ts";
import { type PartitionReads, readsOfAll, readsOfMost, unreadInWords } from "../../redis/partition-reads.ts";
import { storeNowMs } from "../../redis/server-info.ts";
import { partitionsOf, type RedisNodes, storedFacts } from "../../redis/store-facts.ts";

/** `charges` are sent again by gateways. */
export interface LossList extends Loss {
  lost: MissingList;
}

interface KnownLoss extends Loss {
  /** At least one name on each stale server; undefined if the whole store is stale. */
  staleAt: string[] | undefined;
}

/** From gateways' reports and the journal folder. @param reads may skip unavailable servers @returns undefined without any */
export async function knownLoss(
  nodes: RedisNodes,
  folder: string | undefined,
  reads = readsOfAll(nodes),
): Promise<KnownLoss | undefined> {
  const meta = nodes.ofName(META);
  const id = await meta.hget(META, "id");
  const { acceptedAt, loss: reported } = await readLossReport(meta);
  const known = id === null || folder === undefined ? undefined : readLastConfirmed(folder).get(id);
  const here = known && known.acceptedAt >= acceptedAt ? await missingOn(nodes, known.entries, reads) : [];
  const isBeforeAcceptance = known !== undefined && known.acceptedAt > acceptedAt;
  if (!reported && here.length === 0 && !isBeforeAcceptance) return undefined;
  const missing = new Map<string, MissingEntry>();
  for (const entry of [...(reported?.missing ?? []), ...here]) {
    const other = missing.get(entry.ledger);
    if (!other || entry.behindMs > other.behindMs) missing.set(entry.ledger, entry);
  }
  // A lost acceptance concerns the whole store.
  const isWhole = isBeforeAcceptance || (reported !== undefined && reported.ledgers === undefined);
  return {
    missing: [...missing.values()],
    charges: reported?.charges ?? [],
    staleAt: isWhole ? undefined : [...(reported?.ledgers ?? []), ...here.map(({ ledger }) => ledger)],
  };
}

async function missingOn(
  nodes: RedisNodes,
  entries: LastConfirmed["entries"],
  reads: PartitionReads,
): Promise<MissingEntry[]> {
  const missing: MissingEntry[] = [];
  for (const redis of nodes.all()) {
    const own = new Map([...entries].filter(([ledger]) => nodes.ofName(ledger) === redis));
    await reads.onServer([...own.keys()].map(partitionOfLedger), async () => {
      missing.push(...(await missingEntries(redis, own)));
    });
  }
  return missing;
}

/** Adds missing entries, and charges that are sent again. @param waiting charges in the folder's journal, of any store */
export async function listLoss(
  nodes: RedisNodes,
  folder: string | undefined,
  waiting: () => readonly SentCharge[],
  reads = readsOfAll(nodes),
): Promise<LossList | undefined> {
  const loss = await knownLoss(nodes, folder, reads);
  if (!loss) return undefined;
  const meta = nodes.ofName(META);
  const id = (await meta.hget(META, "id")) ?? "";
  const { acceptedAt } = await readLossReport(meta);
  const known = folder === undefined ? new Map() : readRecentEntries(folder, id, acceptedAt);
  // Some are known only as a last confirmed entry, or only to a gateway with another folder.
  for (const { ledger, endsAt: _, behindMs: __, ...entry } of loss.missing) {
    const entries = known.get(ledger) ?? new Map();
    known.set(ledger, entries);
    if (!entries.has(entry.id)) entries.set(entry.id, { ...entry, after: undefined });
  }
  const charges = new Map(loss.charges.map((charge) => [charge.requestId, charge]));
  for (const sent of waiting()) if (sent.storeId === id) charges.set(sent.call.requestId, chargeOf(sent));
  return { ...loss, charges: [...charges.values()], lost: await listMissing(reads, known) };
}

/** A stale server may be replaced by a newer copy, so nothing is written to it. Writes to other servers go on. */
export async function findWritable(
  nodes: RedisNodes,
  folder: string | undefined,
): Promise<Required<Pick<RedisNodes, "isWritable" | "requireWritable">>> {
  const loss = await knownLoss(nodes, folder, readsOfMost(nodes));
  const stale = new Set(loss && (loss.staleAt?.map(nodes.ofName) ?? nodes.all()));
  const isWritable = (redis: Redis): boolean => !stale.has(redis);
  return {
    isWritable,
    requireWritable(servers) {
      const refused = servers.find((redis) => !isWritable(redis));
      if (!refused) return;
      throw new OperatorError(
        `the store at ${placeOf(refused)} is older than what it confirmed, and nothing is written to it: restore a newer ` +
          "copy, or see `tollgate store show` and `tollgate store accept`; then run this again",
        "unavailable",
      );
    },
  };
}

/** Accepts another store in place of one that the folder knows. @returns false if nobody refuses this store */
export async function acceptReplaced(
  nodes: RedisNodes,
  folder: string | undefined,
  partitions: () => number,
): Promise<boolean> {
  const found = await storedFacts(nodes);
  if (found.id !== undefined && isMeantBy(folder, found)) return false;
  await partitionsOf(nodes, partitions);
  const meta = nodes.ofName(META);
  await meta.hset(META, "accepted_at", await storeNowMs(meta));
  return true;
}

/** Accepts the loss that was read. A loss that was reported since then would be accepted unseen: then nothing is written. */
const ACCEPT = `if (redis.call("HGET", KEYS[1], "loss") or "") ~= ARGV[1] then return 0 end
redis.call("HSET", KEYS[1], "accepted_at", ARGV[2])
redis.call("HDEL", KEYS[1], "loss")
return 1`;

/** Accepts a stale store. @throws OperatorError without a loss, and where one is not known yet: a server is away, or gateways find more */
export async function acceptStore(
  nodes: RedisNodes,
  folder: string | undefined,
  waiting: readonly SentCharge[],
): Promise<LossList> {
  const meta = nodes.ofName(META);
  const seen = (await meta.hget(META, "loss")) ?? "";
  const reads = readsOfMost(nodes);
  const loss = await listLoss(nodes, folder, () => waiting, reads);
  const unread = reads.unread();
  if (unread)
    throw new OperatorError(
      `${unreadInWords(unread)}, and what they lack is not known; nothing is accepted. Run it again when all servers answer`,
      "unavailable",
    );
  if (!loss)
    throw new OperatorError(
      "this store has all that it is known to have confirmed; there is nothing to accept",
    );
  const { acceptedAt, loss: reported } = await readLossReport(meta);
  const nowMs = await storeNowMs(meta);
  const acceptAt = Math.max(nowMs, 1 + Math.max(acceptedAt, reported?.acceptedAt ?? 0));
  if ((await meta.eval(ACCEPT, 1, META, seen, acceptAt)) === 1) return loss;
  throw new OperatorError(
    "gateways have found another loss meanwhile; nothing is accepted. See `tollgate store show`, and run it again",
    "unavailable",
  );
}
