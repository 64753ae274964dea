import type { Redis } from "ioredis";
import type { Config } from "../../config/config.ts";
import { hostsIn, parseRedisAddress, type RedisAddress } from "../../domain/redis-address.ts";
import { isMeantBy, replacedStore } from "../../durability/losses/last-confirmed.ts";
import { lossInWords } from "../../durability/losses/loss-report.ts";
import { knownLoss } from "../../operations/store/operator-loss.ts";
import { layoutRefusal } from "../../redis/layout.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { placeOf } from "../../redis/open-nodes.ts";
import { tryScripts } from "../../redis/probes.ts";
import { storeReason } from "../../redis/reasons.ts";
import { type FoundStore, storedFacts } from "../../redis/store-facts.ts";
import { redisUrl } from "../local-config.ts";
import { tlsCaFor, withAnyLayout } from "../redis.ts";
import { type Check, failed, good } from "./doctor-check.ts";
import { nodesChecks } from "./doctor-nodes.ts";
import { frozenChecks } from "./doctor-partitions.ts";
import { sentinelsChecks } from "./doctor-sentinels.ts";
import { errorCheck, serverChecks } from "./doctor-server.ts";
import { tasksCheck } from "./doctor-tasks.ts";
import { tiersCheck } from "./doctor-tiers.ts";

/** As many as a store may have. */
const PARTITIONS_MAX = 1024;

interface StoreChecks {
  checks: Check[];
  /** By which settlements know their store; undefined where it has none, or cannot be asked. */
  storeId?: string | undefined;
}

/** Everything about Redis that can be seen from here. */
export async function storeChecks(config: Config | undefined): Promise<StoreChecks> {
  let where: StoreAddress | undefined;
  try {
    const url = redisUrl();
    where = { address: parseRedisAddress(url), place: hostsIn(url), tlsCa: tlsCaFor(url) };
    const found = where;
    return await withAnyLayout((nodes) => openedChecks(nodes, found, config));
  } catch (error) {
    const [message = "", ...advice] = (error instanceof Error ? error.message : String(error)).split("; ");
    const check = failed("redis", message, advice.join("; ") || "set REDIS_URL to where your Redis is");
    // Where the primary cannot be used, the Sentinels may say why.
    return { checks: [check, ...(where ? await sentinelsChecks(where.address, where.tlsCa) : [])] };
  }
}

/** What REDIS_URL names. */
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
      ...(isOne ? [await scriptsCheck(servers[0]!, 0)] : []),
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
    .then(async (own) => [...own, ...(partition === undefined ? [] : [await scriptsCheck(redis, partition)])])
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

/** Nothing where the layout is that of gateways. */
function layoutChecks(layout: string | undefined): Check[] {
  const refusal = layoutRefusal(layout);
  return refusal ? [failed("layout", refusal.why, refusal.advice)] : [];
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
