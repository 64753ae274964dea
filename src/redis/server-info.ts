import type { Redis } from "ioredis";

type ServerInfo = ReadonlyMap<string, string>;

export function readInfo(text: string): ServerInfo {
  return new Map(
    [...text.matchAll(/^([\w|-]+):([^\r\n]*)/gm)].map(([, name = "", value = ""]) => [name, value]),
  );
}

/** Bytes: in use, `maxmemory` (0: not set), and what there is at most; 0 where INFO does not say. */
export function memoryOf(info: ServerInfo): { used: number; limit: number; all: number } {
  const bytes = (field: string): number => Number(info.get(field) ?? 0);
  const limit = bytes("maxmemory");
  return { used: bytes("used_memory"), limit, all: limit || bytes("total_system_memory") };
}

export const replicasOnline = (info: ServerInfo): number =>
  [...info].filter(([name, value]) => /^slave\d+$/.test(name) && /state=online/.test(value)).length;

export const isPersistent = (info: ServerInfo): boolean =>
  info.get("aof_enabled") === "1" && info.get("aof_last_write_status") !== "err";

export interface PrimaryRun {
  run: string;
  replid: string;
}

/** @returns undefined for a server that is no primary, or does not say */
export async function primaryRunOf(redis: Redis): Promise<PrimaryRun | undefined> {
  // One section at a time: Redis before 7.0 takes no more.
  const texts = await Promise.all([redis.info("server"), redis.info("replication")]);
  const info = readInfo(texts.join("\n"));
  const [run, replid] = [info.get("run_id"), info.get("master_replid")];
  return info.get("role") === "master" && run && replid ? { run, replid } : undefined;
}

/** A server's clock, Unix ms. Times in a record are those of its own server. */
export async function storeNowMs(redis: Redis): Promise<number> {
  const [seconds, microseconds] = await redis.time();
  return Number(seconds) * 1000 + Math.floor(Number(microseconds) / 1000);
}

/** Asks each server's clock once; the same server has the same answer from then on. */
export function clocks(): (redis: Redis) => Promise<number> {
  const times = new Map<Redis, Promise<number>>();
  return (redis) => {
    const nowMs = times.get(redis) ?? storeNowMs(redis);
    times.set(redis, nowMs);
    return nowMs;
  };
}
