import type { Redis } from "ioredis";
import type { Config } from "../config/config.ts";
import { keysUse, missingTiers } from "../config/tiers-in-use.ts";
import { hostsIn, parseRedisAddress, type RedisAddress } from "../domain/redis-address.ts";
import { isMeantBy, replacedStore } from "../durability/losses/last-confirmed.ts";
import { lossInWords } from "../durability/losses/loss-report.ts";
import { gapsInWords, readTierCounts } from "../operations/keys/tier-counts.ts";
import { listPartitions, type PartitionView } from "../operations/store/freezing.ts";
import { knownLoss } from "../operations/store/operator-loss.ts";
import { upstreamTags } from "../operations/tasks/operator-tasks.ts";
import { PARTITIONS_MAX } from "../records/names.ts";
import type { RedisEndpoint } from "../redis/client.ts";
import { placeOf } from "../redis/open-nodes.ts";
import { readsOfMost } from "../redis/partition-reads.ts";
import { refusedCommands, tryScripts } from "../redis/probes.ts";
import { storeReason } from "../redis/reasons.ts";
import { type FoundStore, layoutRefusal, type RedisNodes, storedFacts } from "../redis/store-facts.ts";
import { routeOf } from "../upstream/task-route.ts";
import { type Check, failed, good, warning } from "./check.ts";
import { nodesChecks } from "./nodes-checks.ts";
import { sentinelsChecks } from "./sentinels-checks.ts";
import { errorCheck, serverChecks } from "./server-checks.ts";

/** As many as a store may have. */

interface StoreChecks {
  checks: Check[];
  /** By which settlements know their store; undefined where it has none, or cannot be asked. */
  storeId?: string | undefined;
}

/** @param run runs work on the store at `endpoint`, whatever layout it has, and throws an error in words */
export async function storeChecks(
  { redisUrl, tlsCa }: RedisEndpoint,
  run: <T>(work: (nodes: RedisNodes) => Promise<T>) => Promise<T>,
  config: Config | undefined,
): Promise<StoreChecks> {
  const where = { address: parseRedisAddress(redisUrl), place: hostsIn(redisUrl), tlsCa };
  try {
    return await run((nodes) => openedChecks(nodes, where, config));
  } catch (error) {
    // Where the primary cannot be used, the Sentinels may say why.
    return { checks: [unusable(error), ...(await sentinelsChecks(where.address, tlsCa))] };
  }
}

/** @param error whose message is what is wrong, a semicolon, and advice */
export function unusable(error: unknown): Check {
  const [message = "", ...advice] = (error instanceof Error ? error.message : String(error)).split("; ");
  return failed("redis", message, advice.join("; ") || "set REDIS_URL to where your Redis is");
}

interface StoreAddress {
  address: RedisAddress;
  /** Its hosts, as they are written. */
  place: string;
  tlsCa: string | undefined;
}

async function openedChecks(
  nodes: RedisNodes,
  { address, place, tlsCa }: StoreAddress,
  config: Config | undefined,
): Promise<StoreChecks> {
  const servers = nodes.all();
  const isOne = servers.length === 1;
  const checks: Check[] = [];
  try {
    checks.push(good("redis", foundAt(servers, place)));
    const own = servers.map((redis) =>
      isOne ? serverChecks(redis, config) : namedServerChecks(redis, nodes, config),
    );
    checks.push(...(await Promise.all(own)).flat());
    if (address.kind !== "server") {
      const { checks: ofNodes, replicas } = await nodesChecks(
        nodes,
        address,
        tlsCa,
        config?.store.partitions ?? 0,
      );
      checks.push(...ofNodes, ...(await sentinelsChecks(address, tlsCa, replicas)));
    }
    const found = await storedFacts(nodes);
    const { partitions, id, layout } = found;
    checks.push(
      ...replacedChecks(found, config?.store.journal),
      partitionsCheck(partitions, config?.store.partitions),
      ...(partitions === undefined ? [] : layoutChecks(layout)),
      await olderCheck(nodes, config?.store.journal),
      ...(await frozenChecks(nodes, isCount(partitions) ? Number(partitions) : 0)),
      ...(config ? [await tasksCheck(nodes, isCount(partitions) ? Number(partitions) : 0, config)] : []),
      ...(config ? [await tiersCheck(nodes, config)] : []),
      ...(isOne ? await scriptsChecks(servers[0]!, 0) : []),
    );
    return { checks, storeId: id };
  } catch (error) {
    return { checks: address.kind === "server" ? [errorCheck(error)] : [...checks, unreadCheck(error)] };
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

/** Checks one server of several: one line where all is well, else a line for each check that fails. */
async function namedServerChecks(
  redis: Redis,
  nodes: RedisNodes,
  config: Config | undefined,
): Promise<Check[]> {
  const place = placeOf(redis);
  const partition = partitionOn(redis, nodes);
  const checks = await serverChecks(redis, config)
    .then(async (own) => [...own, ...(partition === undefined ? [] : await scriptsChecks(redis, partition))])
    .catch((error: unknown) => [awayCheck(error)]);
  const bad = checks.filter(({ status }) => status !== "ok");
  if (bad.length > 0) return bad.map((check) => ({ ...check, message: `${place}: ${check.message}` }));
  return [good("primary", `${place}: ${checks.map(({ name }) => name).join(", ")} are right`)];
}

/** A primary that does not answer, or not as it should. */
function awayCheck(error: unknown): Check {
  if (error instanceof Error && error.name === "ReplyError") return errorCheck(error);
  const { why, advice = "see that it runs, and its log" } = storeReason(error);
  return failed("primary", `is unavailable: ${why}`, advice);
}

/** Some of what concerns the whole store is on a server that is away. */
function unreadCheck(error: unknown): Check {
  const found = `records of the whole store were not checked: ${storeReason(error).why}`;
  return failed("store", found, "run this again when all primaries answer");
}

/** A partition of a server, for the name that a script writes; undefined for a server without any. */
const partitionOn = (redis: Redis, nodes: RedisNodes): number | undefined =>
  Array.from({ length: PARTITIONS_MAX }, (_, at) => at).find((at) => nodes.of(at) === redis);

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

/** Nothing where the store is the one that the journal folder here knows, or the first. */
function replacedChecks(found: FoundStore, folder: string | undefined): Check[] {
  if (isMeantBy(folder, found)) return [];
  const { why, advice } = replacedStore(found.id);
  return [failed("store", `${why}: gateways do not use it`, advice!)];
}

function layoutChecks(layout: string | undefined): Check[] {
  const refusal = layoutRefusal(layout);
  return refusal ? [failed("layout", refusal.why, refusal.advice)] : [];
}

const isCount = (fixed: string | undefined): fixed is string => /^0*[1-9]\d{0,3}$/.test(fixed ?? "");

/** As far as it is known in the store and in the journal folder here. */
async function olderCheck(nodes: RedisNodes, folder: string | undefined): Promise<Check> {
  const loss = await knownLoss(nodes, folder);
  if (!loss) return good("history", "has all that it is known to have confirmed");
  const advice = "restore a newer copy, or run `tollgate store accept`; until then gateways do not use it";
  return failed("history", lossInWords(loss).split(";")[0]!, advice);
}

async function scriptsChecks(redis: Redis, partition: number): Promise<Check[]> {
  try {
    const loaded = `all ${await tryScripts(redis, partition)} load, and one that writes has run`;
    return [good("scripts", loaded), ...(await rewriteCheck(redis, partition))];
  } catch (error) {
    const { why, advice = "see Redis's log" } = storeReason(error);
    const allow =
      "the user in REDIS_URL must be allowed EVALSHA, EVAL, SCRIPT and writing to tg:*; see `ACL LIST`";
    return [failed("scripts", `Redis refuses them (${why})`, why.startsWith("NOPERM") ? allow : advice)];
  }
}

/** Gateways have the append-only file rewritten after each start of Redis, and after a full disk. Decision 0043. */
async function rewriteCheck(redis: Redis, partition: number): Promise<Check[]> {
  if ((await refusedCommands(redis, partition, ["BGREWRITEAOF"])).length === 0) return [];
  const found =
    "gateways may not run BGREWRITEAOF: after a power cut or a full disk a later start may play half a script, or not read the file";
  const advice =
    "allow it (+bgrewriteaof) and do not rename it, or run it by hand: docs/operations/redis.md, The append-only file";
  return [warning("persistence", found, advice)];
}

/** Leftovers of a move of slots; nothing on one server. */
async function frozenChecks(nodes: RedisNodes, partitions: number): Promise<Check[]> {
  const views = await listPartitions(nodes, readsOfMost(nodes), partitions);
  if (views[0]?.slot === undefined) return [];
  const frozen = views.filter(
    ({ frozenSinceMs, hasFreezeFlag }) => frozenSinceMs !== undefined || hasFreezeFlag,
  );
  const moving = views.filter(({ isMoving }) => isMoving);
  if (frozen.length + moving.length === 0)
    return [good("frozen", "no partition is frozen, and none has a slot between two nodes")];
  const found = [
    ...(frozen.length > 0 ? [`frozen: ${numbersOf(frozen)}; their accounts get 503`] : []),
    ...(moving.length > 0 ? [`with a slot between two nodes: ${numbersOf(moving)}`] : []),
  ];
  const advice =
    "if no move goes on, run `redis-cli --cluster check`, `--cluster fix`, and `tollgate partitions thaw`";
  return [warning("frozen", `partitions ${found.join("; ")}`, advice)];
}

const numbersOf = (views: readonly PartitionView[]): string =>
  views.map(({ partition }) => partition).join(", ");

const TASKS = "open tasks";
/** Tasks that are looked at in each partition; former upstreams that are named. */
const LOOKED_AT_MAX = 50;
const UPSTREAMS_NAMED_MAX = 3;

/** The upstreams of open tasks must be known to a gateway that starts with this configuration. */
async function tasksCheck(
  nodes: RedisNodes,
  partitions: number,
  { upstream }: Pick<Config, "upstream">,
): Promise<Check> {
  const tags = await upstreamTags(nodes, partitions, LOOKED_AT_MAX);
  const unknown = new Map<string, number>();
  let checked = 0;
  for (const [tag, count] of tags) {
    checked += count;
    const route = routeOf(tag || undefined, upstream);
    if (route.to !== "unroutable") continue;
    const what =
      route.lacks === "adapter"
        ? `the adapter ${route.adapter} of ${route.origin}`
        : `the ${route.lacks} of ${route.origin}`;
    unknown.set(what, (unknown.get(what) ?? 0) + count);
  }
  if (unknown.size === 0) return good(TASKS, `of ${checked} checked, all can be polled at their upstreams`);
  const named = [...unknown].slice(0, UPSTREAMS_NAMED_MAX).map(([what, count]) => `${what} (${count})`);
  if (unknown.size > UPSTREAMS_NAMED_MAX) named.push(`${unknown.size - UPSTREAMS_NAMED_MAX} more`);
  return warning(
    TASKS,
    `of ${checked} checked, some were made by another upstream and cannot be polled; unknown is ${named.join(", ")}`,
    "set UPSTREAM_PREVIOUS_URL, whole and with its path, and UPSTREAM_PREVIOUS_API_KEY if the key was another; or upstream.replaces if it is the same upstream; for an adapter, upstream.previous_adapter",
  );
}

const TIERS = "tiers";
const TIERS_NAMED_MAX = 5;

async function tiersCheck(nodes: RedisNodes, { tiers }: Pick<Config, "tiers">): Promise<Check> {
  const counts = await readTierCounts(nodes);
  const missing = missingTiers(counts.keys, tiers);
  if (missing.length > 0) {
    const named = missing.slice(0, TIERS_NAMED_MAX).map(({ tier, keys }) => `${keysUse(keys)} tier ${tier}`);
    if (missing.length > TIERS_NAMED_MAX) named.push(`${missing.length - TIERS_NAMED_MAX} more tiers`);
    return failed(
      TIERS,
      `${named.join(", ")}, which the config does not name: they have the limits of standard`,
      "add the tier to the config, with deprecated: true if no new key should get it; or move its keys with `tollgate keys set`",
    );
  }
  const gaps = gapsInWords(counts);
  if (gaps !== undefined) return warning(TIERS, gaps, "run this again once a gateway has run for a minute");
  return good(TIERS, "the config names every tier that keys use");
}
