import type { Redis } from "ioredis";
import { dueTime, partitionNames, requestName, taskName } from "../../records/names.ts";
import { requestOf, taskRecord } from "../../records/records.ts";
import { readsOfAll, readsOfMost } from "../../redis/partition-reads.ts";
import { many, manyByNode, pairsOf } from "../../redis/pipelines.ts";
import { clocks } from "../../redis/server-info.ts";
import { partitionsOf, type RedisNodes } from "../../redis/store-facts.ts";

const PAGE = 500;
export const OPEN_LOOKED_AT_MAX = 20_000;

interface OpenView {
  requestId: string;
  taskId: string;
  accountId: string;
  keyId: string;
  state: string;
  endpoint: string;
  price: number;
  admittedAtMs: number;
  dueAtMs: number;
  /** By its server's clock, as all of these times. */
  seenAtMs: number;
  status: string;
}

export async function oldOpenRequests(nodes: RedisNodes, olderThanMs: number, most: number) {
  const partitions = await partitionsOf(nodes);
  const old: (OpenView & { partition: number })[] = [];
  const reads = readsOfMost(nodes);
  const nowOf = clocks();
  let lookedAt = 0;
  for (let partition = 0; partition < partitions; partition++) {
    const { due: name } = partitionNames(partition);
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

async function placesOf(redis: Redis, name: string, from: number): Promise<Place[]> {
  const flat = await redis.zrange(name, String(from), String(from + PAGE - 1), "WITHSCORES");
  return pairsOf(flat).map(([requestId, due]) => ({ requestId, dueAtMs: dueTime(Number(due)).atMs }));
}

async function openViews(
  redis: Redis,
  partition: number,
  places: readonly Place[],
): Promise<Omit<OpenView, "seenAtMs">[]> {
  const records = await many<string | null, Place>(redis, places, (pipe, place) =>
    pipe.get(requestName(partition, place.requestId)),
  );
  return records.flatMap((stored, at) => {
    const place = places[at];
    const record = requestOf(stored);
    if (!place || (record.state !== "held" && record.state !== "bound")) return [];
    return {
      ...place,
      taskId: record.task_id ?? "",
      accountId: record.account_id ?? "",
      keyId: record.key_id ?? "",
      state: record.state,
      endpoint: record.endpoint ?? "",
      price: Number(record.price ?? 0),
      // Missing if the record had been deleted before BIND.
      admittedAtMs: Number(record.admitted_at ?? record.bound_at ?? 0),
      status: "",
    };
  });
}

export async function countOpen(
  nodes: RedisNodes,
  partitions: number,
  reads = readsOfAll(nodes),
): Promise<number> {
  const places = Array.from({ length: partitions }, (_, partition) => ({ partition }));
  const counts = await reads.many<number, (typeof places)[number]>(places, (pipe, { partition }) =>
    pipe.zcard(partitionNames(partition).due),
  );
  return counts.reduce<number>((sum, count = 0) => sum + count, 0);
}
