import type { Redis } from "ioredis";
import type { Config } from "../config/config.ts";
import { storeReason } from "../redis/reasons.ts";
import { memoryOf, readInfo, replicasOnline, storeNowMs } from "../redis/server-info.ts";
import { HOW_TO_PERSIST, type Persistence, persistenceOf } from "../redis/store-facts.ts";
import { type Check, failed, good, warning } from "./check.ts";

/** Expiry times are given by people's clocks and decided by Redis's. */
const CLOCK_WARNING_MS = 1000;
const CLOCK_FAILED_MS = 5000;
const MEMORY_WARNING_SHARE = 0.75;
const MEMORY_FAILED_SHARE = 0.9;
const PINGS = 20;
/** A generation waits for two scripts; more than this and it is felt. */
const LATENCY_WARNING_MS = 10;

export async function serverChecks(redis: Redis, config: Config | undefined): Promise<Check[]> {
  const aheadMs = await clockAheadMs(redis);
  const info = readInfo(await redis.info());
  return [
    ...infoChecks(info, await fsyncOf(redis), await persistenceOf(redis), config?.store.allowNoPersistence),
    ...replicasChecks(info, config?.store.confirm?.replicas),
    clockCheck(aheadMs),
    latencyCheck(await roundTripsMs(redis), config?.store.commandTimeoutMs),
  ];
}

export async function clockAheadMs(redis: Redis): Promise<number> {
  const sentMs = Date.now();
  const nowMs = await storeNowMs(redis);
  return Math.round(nowMs - (sentMs + Date.now()) / 2);
}

/** `appendfsync`; undefined where CONFIG is not allowed, as with many a hosted Redis. */
export async function fsyncOf(redis: Redis): Promise<string | undefined> {
  const answer = await redis.config("GET", "appendfsync").catch(() => undefined);
  return Array.isArray(answer) ? (answer as string[])[1] : undefined;
}

export function infoChecks(
  info: ReadonlyMap<string, string>,
  fsync?: string,
  kept: Persistence = "none",
  allowNone = false,
): Check[] {
  const version = info.get("redis_version") ?? "unknown";
  const role = info.get("role") ?? "master";
  return [
    Number.parseInt(version, 10) >= 7
      ? good("version", version)
      : failed("version", `Redis is ${version}`, "use 7.0 or newer"),
    role === "master"
      ? good("role", role)
      : failed("role", "this is a read-only replica", "point REDIS_URL to the primary"),
    persistenceCheck(info, fsync, kept, allowNone),
    memoryCheck(info),
    evictionCheck(info.get("maxmemory_policy")),
  ];
}

/** @param wanted `store.confirm_replicas`; no check without it */
export function replicasChecks(info: ReadonlyMap<string, string>, wanted = 0): Check[] {
  if (wanted === 0) return [];
  const online = replicasOnline(info);
  const found = `${online} of the ${wanted} that store.confirm_replicas requires`;
  if (online >= wanted) return [good("replicas", found)];
  const advice =
    "bring replicas back, or lower store.confirm_replicas; until then each charge waits for store.confirm_timeout and is written to the journal";
  return [warning("replicas", found, advice)];
}

function persistenceCheck(
  info: ReadonlyMap<string, string>,
  fsync: string | undefined,
  kept: Persistence,
  allowNone: boolean,
): Check {
  const name = "persistence";
  if (info.get("aof_enabled") !== "1") {
    const found = `the append-only file is off, so a restart loses credits${WITHOUT_FILE[kept]}`;
    if (kept === "none" && allowNone)
      return warning(name, `${found}; store.allow_no_persistence is on`, HOW_TO_PERSIST);
    return failed(name, found, HOW_TO_PERSIST);
  }
  if (info.get("aof_last_write_status") === "err") {
    return failed(name, "the append-only file cannot be written", "see Redis's log and its disk");
  }
  if (fsync === "no") {
    const found =
      "the append-only file is on, but appendfsync is no: a power cut loses half a minute of charges";
    return warning(name, found, "set `appendfsync everysec`");
  }
  if (info.get("aof_last_bgrewrite_status") === "err") {
    const found = "the append-only file is on, but its last rewrite failed, so it only grows";
    return warning(name, found, "see Redis's log; a rewrite needs disk and memory");
  }
  return good(name, `append-only file is on${fsync === undefined ? "" : `, appendfsync ${fsync}`}`);
}

const WITHOUT_FILE: Readonly<Record<Persistence, string>> = {
  file: "",
  "save points": " since the last save point",
  none: ": it keeps nothing on disk",
  unknown: "; whether it has save points is not known, since the user may not run CONFIG GET",
};

/** Without memory to spare every generation is refused, while what is under way still settles. */
function memoryCheck(info: ReadonlyMap<string, string>): Check {
  const { used, limit, all } = memoryOf(info);
  const share = all === 0 ? 0 : used / all;
  const of =
    all === 0
      ? ""
      : ` of ${mebibytes(all)}${limit === 0 ? " that the machine has; maxmemory is not set" : ""}`;
  const found = `${mebibytes(used)} used${of}`;
  const advice =
    limit === 0
      ? "give it more memory, and set maxmemory below the memory of the machine: then generations are refused before Redis is killed"
      : "raise maxmemory before generations are refused, or lower tasks.retention";
  if (share >= MEMORY_FAILED_SHARE) return failed("memory", found, advice);
  return share >= MEMORY_WARNING_SHARE ? warning("memory", found, advice) : good("memory", found);
}

const mebibytes = (bytes: number): string => `${Math.round(bytes / 1_048_576)} MiB`;

function evictionCheck(policy: string | undefined): Check {
  if (policy === undefined || policy === "noeviction") return good("eviction", policy ?? "unknown");
  const found = `maxmemory-policy is ${policy}, which may evict money and limits`;
  return failed(
    "eviction",
    found,
    "set `maxmemory-policy noeviction`; until then the gateway refuses to work",
  );
}

/** @param aheadMs how far Redis's clock is ahead of this machine's */
export function clockCheck(aheadMs: number): Check {
  const apartMs = Math.abs(aheadMs);
  const found = `Redis's clock is ${apartMs} ms ${aheadMs < 0 ? "behind" : "ahead of"} this one`;
  return judgeClocks(
    "clock",
    apartMs,
    found,
    "limits, days and expiry follow Redis's clock: let NTP set both",
  );
}

/** The servers of a store must agree on the time. @param ahead how far each is ahead of this machine's clock */
export function clocksCheck(ahead: readonly { name: string; aheadMs: number }[]): Check[] {
  const sorted = ahead.toSorted((a, b) => a.aheadMs - b.aheadMs);
  const [slow, fast] = [sorted[0], sorted.at(-1)];
  if (slow === undefined || fast === undefined || slow === fast) return [];
  const apartMs = fast.aheadMs - slow.aheadMs;
  const found = `of ${sorted.length} servers, the clock of ${fast.name} is ${apartMs} ms ahead of that of ${slow.name}`;
  const advice = "after a failover, limits, days and expiry follow the other clock: let NTP set them all";
  return [judgeClocks("clocks", apartMs, found, advice)];
}

function judgeClocks(name: "clock" | "clocks", apartMs: number, found: string, advice: string): Check {
  if (apartMs > CLOCK_FAILED_MS) return failed(name, found, advice);
  return apartMs > CLOCK_WARNING_MS ? warning(name, found, advice) : good(name, found);
}

async function roundTripsMs(redis: Redis): Promise<number[]> {
  const took: number[] = [];
  for (let at = 0; at < PINGS; at++) {
    const startedMs = performance.now();
    await redis.ping();
    took.push(performance.now() - startedMs);
  }
  return took;
}

/** @param timeoutMs after which a gateway takes it for away */
export function latencyCheck(tookMs: readonly number[], timeoutMs = Number.POSITIVE_INFINITY): Check {
  const sorted = tookMs.toSorted((a, b) => a - b);
  const [median, worst] = [sorted[Math.floor(sorted.length / 2)] ?? 0, sorted.at(-1) ?? 0];
  const found = `a round trip takes ${median.toFixed(1)} ms, the longest of ${sorted.length} ${worst.toFixed(1)} ms`;
  if (median >= timeoutMs) {
    return failed(
      "latency",
      found,
      `store.command_timeout is ${timeoutMs} ms: raise it, or bring Redis nearer`,
    );
  }
  if (median < LATENCY_WARNING_MS && worst < timeoutMs) return good("latency", found);
  return warning(
    "latency",
    found,
    "each generation waits for two of them: bring Redis nearer, or find the cause of its load",
  );
}

/** A server that answers, but not to what it was asked. */
export function errorCheck(error: unknown): Check {
  const { why, advice = "see Redis's log, its disk and its ACL" } = storeReason(error);
  return failed("redis", `answers with an error: ${why}`, advice);
}
