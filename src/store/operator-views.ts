import type { Redis } from "ioredis";
import { type AccountRow, accountRow, OperatorError, requireAccountId } from "./accounts.ts";
import { clocks, membersOf } from "./keys.ts";
import { accountNames, listsOfOpenRequests, partitionNames, requestName, taskName } from "./names.ts";
import type { RedisNodes } from "./nodes.ts";
import { readsOfAll, readsOfMost, type Unread } from "./partition-reads.ts";
import { many, manyByNode } from "./pipelines.ts";
import { type AccountRecord, type RequestRecord, taskRecord } from "./records.ts";
import { partitionsOf } from "./store-facts.ts";

/** Names or records read at a time: about a millisecond of Redis. */
const PAGE = 500;
/** ZSCAN calls that one page of accounts may take; it may then have fewer rows. */
const ACCOUNT_SCANS_MAX = 200;
/** Open requests looked at, at most, to find the old ones. */
export const OPEN_LOOKED_AT_MAX = 20_000;

/**
 * Some accounts, in no particular order.
 * @param prefix of their ids; empty for all
 * @param cursor where an earlier page ended; empty for the first
 * @param least the size of a page; it may have the rows of one ZSCAN more
 * @returns `next` is undefined after the last page; a page may be empty and still have a next. `unread`: partitions that this
 *   page should have looked at
 * @throws OperatorError for a cursor or prefix that makes no sense
 */
export async function pageAccounts(
  nodes: RedisNodes,
  prefix: string,
  cursor: string,
  least: number,
): Promise<{ accounts: AccountRow[]; next: string | undefined; unread: Unread | undefined }> {
  const start = /^(\d{1,4}):(\d{1,20})$/.exec(cursor || "0:0");
  if (!start) throw new OperatorError("the cursor is not one of an earlier page", "invalid", "cursor");
  if (prefix !== "") requireAccountId(prefix);
  const partitions = await partitionsOf(nodes);
  let [partition, scan] = [Number(start[1]), start[2] ?? "0"];
  const reads = readsOfMost(nodes);
  const accounts: AccountRow[] = [];
  for (let scans = 0; scans < ACCOUNT_SCANS_MAX && partition < partitions; scans++) {
    const { accounts: name } = partitionNames(partition);
    const found = await reads.at(partition, async (redis) => {
      const [next, flat] = await redis.zscan(name, scan, "MATCH", `${prefix}*`, "COUNT", PAGE);
      return { next, rows: await accountRows(redis, partition, membersOf(flat)) };
    });
    accounts.push(...(found?.rows ?? []));
    scan = found?.next ?? "0";
    if (scan === "0") partition++;
    if (accounts.length >= least) break;
  }
  const next = partition < partitions ? `${partition}:${scan}` : undefined;
  return { accounts, next, unread: reads.unread() };
}

async function accountRows(redis: Redis, partition: number, ids: readonly string[]): Promise<AccountRow[]> {
  const records = await many<AccountRecord, string>(redis, ids, (pipe, id) =>
    pipe.hgetall(accountNames(partition, id).account),
  );
  return records.map((record, at) => accountRow(ids[at]!, record));
}

/** A request that has not ended, for operators. Times are Unix ms. */
export interface OpenView {
  requestId: string;
  taskId: string;
  accountId: string;
  keyId: string;
  state: string;
  endpoint: string;
  price: number;
  admittedAtMs: number;
  dueAtMs: number;
  /** When it was looked at, by its server's clock, from which all these times are. */
  seenAtMs: number;
  /** The task's latest status; empty before the first poll. */
  status: string;
}

export interface OpenRequests {
  /** Oldest first. */
  requests: OpenView[];
  /** How many are that old among those looked at. */
  old: number;
  /** Of all accounts, all gateways. */
  open: number;
  complete: boolean;
  /** Nothing of these is among the other figures. */
  unread: Unread | undefined;
}

/** Holds and unfinished tasks that were admitted at least so long ago. @param most how many are answered */
export async function oldOpenRequests(
  nodes: RedisNodes,
  olderThanMs: number,
  most: number,
): Promise<OpenRequests> {
  const partitions = await partitionsOf(nodes);
  const old: (OpenView & { partition: number })[] = [];
  const reads = readsOfMost(nodes);
  const nowOf = clocks();
  let lookedAt = 0;
  for (const { name, partition } of listsOfOpenRequests(partitions)) {
    await reads.at(partition, async (redis) => {
      const seenAtMs = await nowOf(redis);
      for (let from = 0; lookedAt < OPEN_LOOKED_AT_MAX; from += PAGE) {
        const places = await placesOf(redis, name, from);
        lookedAt += places.length;
        for (const view of await openViews(redis, partition, places)) {
          if (view.admittedAtMs <= seenAtMs - olderThanMs) old.push({ ...view, seenAtMs, partition });
        }
        if (places.length < PAGE) break;
      }
    });
  }
  old.sort((a, b) => a.admittedAtMs - b.admittedAtMs);
  const shown = old.slice(0, most);
  const names = shown.map(({ taskId, partition }) => taskName(taskId, partition));
  const texts = await manyByNode<string | null, string>(names, nodes.ofName, (pipe, name) => pipe.get(name));
  const open = await countOpen(nodes, partitions, reads);
  return {
    requests: shown.map(({ partition: _, ...view }, at) => ({
      ...view,
      status: taskRecord(texts[at] ?? "").seen?.status ?? "",
    })),
    old: old.length,
    open,
    complete: lookedAt < OPEN_LOOKED_AT_MAX || lookedAt >= open,
    unread: reads.unread(),
  };
}

type Place = Pick<OpenView, "requestId" | "dueAtMs">;

/** A page of a list of open requests, in the order in which they are due. */
async function placesOf(redis: Redis, name: string, from: number): Promise<Place[]> {
  const flat = await redis.zrange(name, String(from), String(from + PAGE - 1), "WITHSCORES");
  return Array.from({ length: flat.length / 2 }, (_, at) => ({
    requestId: flat[2 * at] ?? "",
    dueAtMs: Number(flat[2 * at + 1]),
  }));
}

async function openViews(
  redis: Redis,
  partition: number,
  places: readonly Place[],
): Promise<Omit<OpenView, "seenAtMs">[]> {
  const records = await many<RequestRecord, Place>(redis, places, (pipe, place) =>
    pipe.hgetall(requestName(partition, place.requestId)),
  );
  return records.flatMap((record, at) => {
    // Ended since the list was read.
    const place = places[at];
    if (!place || (record.state !== "held" && record.state !== "bound")) return [];
    return {
      ...place,
      taskId: record.task_id ?? "",
      accountId: record.account_id ?? "",
      keyId: record.key_id ?? "",
      state: record.state,
      endpoint: record.endpoint ?? "",
      price: Number(record.price ?? 0),
      // Missing where the record had been deleted before the BIND.
      admittedAtMs: Number(record.admitted_at ?? record.bound_at ?? 0),
      status: "",
    };
  });
}

/**
 * How many slots are taken over all gateways: holds and unfinished tasks.
 * @param reads may go on without the servers that are away
 */
export async function countOpen(
  nodes: RedisNodes,
  partitions: number,
  reads = readsOfAll(nodes),
): Promise<number> {
  const lists = listsOfOpenRequests(partitions);
  const counts = await reads.many<number, (typeof lists)[number]>(lists, (pipe, { name }) =>
    pipe.zcard(name),
  );
  return counts.reduce<number>((sum, count = 0) => sum + count, 0);
}
