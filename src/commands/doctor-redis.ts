import type { Redis } from "ioredis";
import type { Config } from "../config/config.ts";
import { hostsIn } from "../domain/redis-address.ts";
import { storeNowMs } from "../store/keys.ts";
import { NEWEST_LAYOUT } from "../store/layout.ts";
import { lossInWords } from "../store/loss/loss-report.ts";
import type { RedisNodes } from "../store/nodes.ts";
import { type OpenedNodes, placeOf } from "../store/open-nodes.ts";
import { knownLoss } from "../store/operator-loss.ts";
import { tryScripts } from "../store/probes.ts";
import { storeReason } from "../store/reasons.ts";
import { storedFacts } from "../store/store-facts.ts";
import { type Check, failed, good, warning } from "./doctor-check.ts";
import { frozenChecks } from "./doctor-partitions.ts";
import { tasksCheck } from "./doctor-tasks.ts";
import { redisUrl } from "./local-config.ts";
import { connect } from "./redis.ts";

/** Expiry times are given by people's clocks and decided by Redis's. */
const CLOCK_WARNING_MS = 1000;
const CLOCK_FAILED_MS = 5000;
const MEMORY_WARNING_SHARE = 0.75;
const MEMORY_FAILED_SHARE = 0.9;
const PINGS = 20;
/** As many as a store may have. */
const PARTITIONS_MAX = 1024;
/** A generation waits for two scripts; more than this and it is felt. */
const LATENCY_WARNING_MS = 10;

interface StoreChecks {
  checks: Check[];
  /** By which settlements know their store; undefined where it has none, or cannot be asked. */
  storeId?: string | undefined;
}

/** Everything about Redis that can be seen from here. */
export async function storeChecks(config: Config | undefined): Promise<StoreChecks> {
  let opened: OpenedNodes;
  let place: string;
  try {
    const url = redisUrl();
    place = hostsIn(url);
    opened = await connect(url);
  } catch (error) {
    const [message = "", ...advice] = (error instanceof Error ? error.message : String(error)).split("; ");
    const check = failed("redis", message, advice.join("; ") || "set REDIS_URL to where your Redis is");
    return { checks: [check] };
  }
  const { nodes, close } = opened;
  const servers = nodes.all();
  const [first] = servers;
  const isOne = servers.length === 1;
  const checks: Check[] = [];
  try {
    checks.push(good("redis", foundAt(servers, place)));
    const own = servers.map((redis) =>
      isOne ? serverChecks(redis, config) : namedServerChecks(redis, nodes, config),
    );
    checks.push(...(await Promise.all(own)).flat());
    const { partitions, id, layout } = await storedFacts(nodes);
    checks.push(
      partitionsCheck(partitions, config?.store.partitions),
      ...layoutChecks(layout),
      await olderCheck(nodes, config?.store.journal),
      ...(await frozenChecks(nodes, isCount(partitions) ? Number(partitions) : 0)),
      ...(config ? [await tasksCheck(nodes, isCount(partitions) ? Number(partitions) : 0, config)] : []),
      ...(isOne ? [await scriptsCheck(first!, 0)] : []),
    );
    return { checks, storeId: id };
  } catch (error) {
    return { checks: [...(isOne ? [] : checks), errorCheck(error)] };
  } finally {
    close();
  }
}

/** @param place what REDIS_URL names: the server itself, Sentinels, or nodes of a cluster */
function foundAt(servers: readonly Redis[], place: string): string {
  const found = servers.map(placeOf);
  if (found.length > 1) return `${found.length} primaries are named at ${place}`;
  return found[0] === place || !place.includes(",")
    ? `answers at ${place}`
    : `the primary that ${place} name answers at ${found[0]}`;
}

/** What is looked at on each server. */
async function serverChecks(redis: Redis, config: Config | undefined): Promise<Check[]> {
  const sentMs = Date.now();
  const nowMs = await storeNowMs(redis);
  const aheadMs = Math.round(nowMs - (sentMs + Date.now()) / 2);
  const info = readInfo(await redis.info());
  return [
    ...infoChecks(info, await fsyncOf(redis)),
    ...replicasChecks(info, config?.store.confirm?.replicas),
    clockCheck(aheadMs),
    latencyCheck(await roundTripsMs(redis), config?.store.commandTimeoutMs),
  ];
}

/** The same for a server of several: one line where all is well, else a line for each check that is not. */
async function namedServerChecks(
  redis: Redis,
  nodes: RedisNodes,
  config: Config | undefined,
): Promise<Check[]> {
  const place = placeOf(redis);
  const partition = partitionOn(redis, nodes);
  const checks = await serverChecks(redis, config)
    .then(async (own) => [...own, ...(partition === undefined ? [] : [await scriptsCheck(redis, partition)])])
    .catch((error: unknown) => [errorCheck(error)]);
  const bad = checks.filter(({ status }) => status !== "ok");
  if (bad.length > 0) return bad.map((check) => ({ ...check, message: `${place}: ${check.message}` }));
  return [good("primary", `${place}: ${checks.map(({ name }) => name).join(", ")} are right`)];
}

/** A partition of a server, for the name that a script writes; undefined for a server without any. */
const partitionOn = (redis: Redis, nodes: RedisNodes): number | undefined =>
  Array.from({ length: PARTITIONS_MAX }, (_, at) => at).find((at) => nodes.of(at) === redis);

function errorCheck(error: unknown): Check {
  const { why, advice = "see Redis's log and its ACL" } = storeReason(error);
  return failed("redis", `answers with an error: ${why}`, advice);
}

/** The fields of INFO. */
export function readInfo(text: string): ReadonlyMap<string, string> {
  return new Map([...text.matchAll(/^(\w+):([^\r\n]*)/gm)].map(([, name = "", value = ""]) => [name, value]));
}

/** `appendfsync`; undefined where CONFIG is not allowed, as with many a hosted Redis. */
async function fsyncOf(redis: Redis): Promise<string | undefined> {
  const answer = await redis.config("GET", "appendfsync").catch(() => undefined);
  return Array.isArray(answer) ? (answer as string[])[1] : undefined;
}

/** What INFO tells of a Redis that is to keep money. */
export function infoChecks(info: ReadonlyMap<string, string>, fsync?: string): Check[] {
  const version = info.get("redis_version") ?? "unknown";
  const role = info.get("role") ?? "master";
  return [
    Number.parseInt(version, 10) >= 7
      ? good("version", version)
      : failed("version", `Redis is ${version}`, "use 7.0 or newer"),
    role === "master"
      ? good("role", role)
      : failed("role", "this is a read-only replica", "point REDIS_URL to the primary"),
    persistenceCheck(info, fsync),
    memoryCheck(info),
    evictionCheck(info.get("maxmemory_policy")),
  ];
}

/**
 * Whether as many replicas are connected as charges wait for.
 * @param wanted `store.confirm_replicas`; no check without it
 */
export function replicasChecks(info: ReadonlyMap<string, string>, wanted = 0): Check[] {
  if (wanted === 0) return [];
  const online = [...info].filter(([name, value]) => /^slave\d+$/.test(name) && /state=online/.test(value));
  const found = `${online.length} of the ${wanted} that store.confirm_replicas asks for`;
  if (online.length >= wanted) return [good("replicas", found)];
  const advice =
    "bring replicas back, or lower store.confirm_replicas; until then each charge waits for store.confirm_timeout and is written to the journal";
  return [warning("replicas", found, advice)];
}

function persistenceCheck(info: ReadonlyMap<string, string>, fsync: string | undefined): Check {
  const name = "persistence";
  if (info.get("aof_enabled") !== "1") {
    const advice = "set `appendonly yes` and `appendfsync everysec`";
    return failed(name, "the append-only file is off, so a restart loses credits", advice);
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

/** Without memory to spare every generation is refused, while what is under way still settles. */
function memoryCheck(info: ReadonlyMap<string, string>): Check {
  const bytes = (field: string): number => Number(info.get(field) ?? 0);
  const [used, limit, machine] = [bytes("used_memory"), bytes("maxmemory"), bytes("total_system_memory")];
  const all = limit || machine;
  const share = all === 0 ? 0 : used / all;
  const of =
    all === 0
      ? ""
      : ` of ${mebibytes(all)}${limit === 0 ? " that the machine has; maxmemory is not set" : ""}`;
  const found = `${mebibytes(used)} used${of}`;
  const advice =
    limit === 0
      ? "give it more memory, and set maxmemory below what the machine has: then generations are refused before Redis is killed"
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
  const advice = "limits, days and expiry follow Redis's clock: let NTP set both";
  if (apartMs > CLOCK_FAILED_MS) return failed("clock", found, advice);
  return apartMs > CLOCK_WARNING_MS ? warning("clock", found, advice) : good("clock", found);
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

/**
 * How long Redis takes to answer, seen from here.
 * @param timeoutMs after which a gateway takes it for away
 */
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
    "each generation waits for two of them: bring Redis nearer, or see what keeps it busy",
  );
}

function partitionsCheck(fixed: string | undefined, configured: number | undefined): Check {
  if (fixed === undefined) return good("partitions", "a new store; its first use fixes them");
  if (!isCount(fixed)) {
    const advice =
      "restore tg:meta from a backup before anything else writes; the number decides where accounts are";
    return failed("partitions", `tg:meta is damaged: partitions are ${fixed}`, advice);
  }
  const differs = configured !== undefined && configured !== Number(fixed);
  return good(
    "partitions",
    `${fixed}${differs ? ` (the config's ${configured} counted at the first start only)` : ""}`,
  );
}

/** Nothing where the layout is the newest, or fixed at the store's next use. */
function layoutChecks(layout: string | undefined): Check[] {
  switch (layout) {
    case undefined:
    case NEWEST_LAYOUT:
      return [];
    case "1":
      return [
        warning(
          "layout",
          "the store has layout 1, of an earlier release",
          "run `tollgate store migrate` once all gateways are of this release",
        ),
      ];
    case "1>2":
      return [
        warning("layout", "a migration of the store has not ended", "run `tollgate store migrate` again"),
      ];
    default:
      return [
        failed(
          "layout",
          `the store has layout ${layout}, of a later release`,
          "run that release; this one does not use the store",
        ),
      ];
  }
}

const isCount = (fixed: string | undefined): fixed is string => /^0*[1-9]\d{0,3}$/.test(fixed ?? "");

/** Whether the store has what it confirmed, as far as it is known in the store and in the journal folder here. */
async function olderCheck(nodes: RedisNodes, folder: string | undefined): Promise<Check> {
  const loss = await knownLoss(nodes, folder);
  if (!loss) return good("history", "has all that it is known to have confirmed");
  const advice = "restore a newer copy, or run `tollgate store accept`; until then gateways do not use it";
  return failed("history", lossInWords(loss).split(";")[0]!, advice);
}

/** Whether this Redis takes and runs the gateway's scripts, a writing one among them. */
async function scriptsCheck(redis: Redis, partition: number): Promise<Check> {
  try {
    return good("scripts", `all ${await tryScripts(redis, partition)} load, and one that writes has run`);
  } catch (error) {
    const { why, advice = "see Redis's log" } = storeReason(error);
    const allow =
      "the user in REDIS_URL must be allowed EVALSHA, EVAL, SCRIPT and writing to tg:*; see `ACL LIST`";
    return failed("scripts", `Redis refuses them (${why})`, why.startsWith("NOPERM") ? allow : advice);
  }
}
