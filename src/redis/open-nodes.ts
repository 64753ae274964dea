import type { Redis } from "ioredis";
import { hostText, parseRedisAddress } from "../domain/redis-address.ts";
import { partitionNames } from "../records/names.ts";
import { clientOf, connectOnce, connectTimeoutMs, type RedisEndpoint, SILENT } from "./client.ts";
import { Deadlines } from "./deadlines.ts";
import { oneNode, type RedisNodes } from "./store-facts.ts";
import { slotOf } from "./topology/cluster-slots.ts";
import { findPlacement } from "./topology/placement.ts";

export interface OpenedNodes {
  nodes: RedisNodes;
  close(): void;
}

const CONNECT_MS = 2000;

/**
 * Opens the primaries of a store. Of several, one must be in reach; those that are away fail each command. Nothing follows a failover: who
 * works for longer opens them again. @throws StoreError or the error of the connection
 */
export async function openNodes(endpoint: RedisEndpoint, commandTimeoutMs: number): Promise<OpenedNodes> {
  const { redisUrl, tlsCa } = endpoint;
  const address = parseRedisAddress(redisUrl);
  const open = (at = address.hosts[0]!): Redis =>
    clientOf(
      { redisUrl, tlsCa, at },
      { commandTimeout: commandTimeoutMs, connectTimeout: connectTimeoutMs(commandTimeoutMs) },
    );
  if (address.kind === "server") {
    const redis = open();
    await connected(redis);
    return { nodes: oneNode(redis), close: () => redis.disconnect() };
  }
  const placement = await findPlacement(address, { redisUrl, tlsCa });
  const clients = new Map(placement.primaries.map((at) => [at.name, open(at)]));
  const all = [...clients.values()];
  const results = await Promise.allSettled(all.map(connected));
  const [failure] = results;
  if (failure?.status === "rejected" && results.every(({ status }) => status === "rejected"))
    throw failure.reason;
  const absent = absentClient(open());
  const replicas = new Map(placement.primaries.map(({ name, ...at }) => [clients.get(name), at.replicas]));
  const ofName = (name: string): Redis => clients.get(placement.ofSlot(slotOf(name))?.name ?? "") ?? absent;
  return {
    nodes: {
      ofName,
      of: (partition) => ofName(partitionNames(partition).ledger),
      all: () => all,
      replicasOf: (redis) => replicas.get(redis) ?? 0,
    },
    close(): void {
      for (const redis of all) redis.disconnect();
    },
  };
}

const connected = (redis: Redis): Promise<unknown> =>
  connectOnce(redis, new Deadlines(CONNECT_MS), () =>
    redis.status === "connect" ? new Error(SILENT) : new Error("no answer within 2 seconds"),
  );

/** On connections of its own. @param signal closes them @throws StoreError or the error of the connection */
export async function onOwnNodes<T>(
  endpoint: RedisEndpoint,
  commandTimeoutMs: number,
  work: (nodes: RedisNodes) => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  const { nodes, close } = await openNodes(endpoint, commandTimeoutMs);
  signal?.addEventListener("abort", close, { once: true });
  try {
    signal?.throwIfAborted();
    return await work(nodes);
  } finally {
    signal?.removeEventListener("abort", close);
    close();
  }
}

/** Stands for the server of slots that no primary serves. */
function absentClient(redis: Redis): Redis {
  redis.disconnect();
  return redis;
}

export const placeOf = ({ options: { host = "", port = 0 } }: Redis): string => hostText({ host, port });
