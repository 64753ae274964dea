import type { Redis } from "ioredis";
import { hostText, type RedisAddress, type RedisHost } from "../domain/redis-address.ts";
import { placeOf } from "../redis/open-nodes.ts";
import { storeReason } from "../redis/reasons.ts";
import { readInfo } from "../redis/server-info.ts";
import { type RedisNodes, storedFacts } from "../redis/store-facts.ts";
import { createServerPolls } from "../redis/topology/server-polls.ts";
import { type Check, failed, good, warning } from "./check.ts";
import { type ClusterNode, clusterChecks, readClusterNodes } from "./cluster-checks.ts";
import { clockAheadMs, clocksCheck, fsyncOf, infoChecks } from "./server-checks.ts";

/** More than this and a failover loses what operators would miss: at 1,000 generations a second, about a second of them. */
const BEHIND_WARNING_BYTES = 1_048_576;

type Info = ReadonlyMap<string, string>;

interface Followed {
  name: string;
  info: Info;
  aheadMs: number;
  /** Undefined where CONFIG is not allowed. */
  fsync: string | undefined;
  replicas: RedisHost[];
  /** The cluster as it sees it; empty without one. */
  nodes: ClusterNode[];
}

type Replica = { name: string; of: Followed } & (
  | { info: Info; aheadMs: number; fsync?: string }
  | { why: string }
);

/** @param partitions counts while the store's own number cannot be read @returns also how many replicas are connected; undefined if no primary answers */
export async function nodesChecks(
  nodes: RedisNodes,
  address: RedisAddress,
  tlsCa: string | undefined,
  partitions: number,
): Promise<{ checks: Check[]; replicas: number | undefined }> {
  // A primary that does not answer has its own check.
  const looks = await Promise.all(
    nodes.all().map((redis) => lookAtPrimary(redis, address.kind).catch(() => undefined)),
  );
  const primaries = looks.filter((look) => look !== undefined);
  const replicas = await Promise.all(
    primaries.flatMap((of) => of.replicas.map((at) => lookAtReplica(at, of, address, tlsCa))),
  );
  const seen = replicas.filter((replica) => "info" in replica);
  const isCluster = address.kind === "cluster";
  const facts = isCluster ? await storedFacts(nodes).catch(() => undefined) : undefined;
  const views = primaries.map((primary) => primary.nodes);
  const checks = [
    ...(isCluster ? clusterChecks(views, Number(facts?.partitions ?? partitions)) : []),
    ...primaries.flatMap(({ name, info }) => guardCheck(name, info, isCluster)),
    ...replicas.flatMap(replicaChecks),
    ...(isCluster ? [] : promotableCheck(seen)),
    ...clocksCheck([...primaries, ...seen]),
    ...settingsCheck(primaries),
  ];
  return { checks, replicas: primaries.length === 0 ? undefined : replicas.length };
}

async function lookAtPrimary(redis: Redis, kind: RedisAddress["kind"]): Promise<Followed> {
  const info = readInfo(await redis.info());
  const nodes = kind === "cluster" ? readClusterNodes(String(await redis.cluster("NODES"))) : [];
  return {
    name: placeOf(redis),
    info,
    aheadMs: await clockAheadMs(redis),
    fsync: await fsyncOf(redis),
    replicas:
      kind === "cluster" ? replicasInSlots(await redis.cluster("SLOTS"), nodes) : connectedReplicas(info),
    nodes,
  };
}

/** The replicas that a primary names in INFO, as they announce themselves. */
export function connectedReplicas(info: Info): RedisHost[] {
  return [...info].flatMap(([name, value]) => {
    const found = /^slave\d+$/.test(name) ? /^ip=([^,]+),port=(\d+)/.exec(value) : null;
    return found ? [{ host: found[1]!, port: Number(found[2]) }] : [];
  });
}

/** Replicas of the node that was polled, from CLUSTER SLOTS, by the addresses that clients use. */
function replicasInSlots(slots: unknown, nodes: readonly ClusterNode[]): RedisHost[] {
  const own = nodes.find(({ isMyself }) => isMyself)?.id;
  const ranges = Array.isArray(slots) ? (slots as [number, number, ...[string, number, string][]][]) : [];
  const followers = ranges.flatMap(([, , primary, ...others]) => (primary?.[2] === own ? others : []));
  const hosts = followers.map(([host, port]) => ({ host, port: Number(port) }));
  return [...new Map(hosts.filter(({ host }) => host).map((host) => [hostText(host), host])).values()];
}

async function lookAtReplica(
  at: RedisHost,
  of: Followed,
  address: RedisAddress,
  tlsCa: string | undefined,
): Promise<Replica> {
  const name = hostText(at);
  const server = createServerPolls([at], { ...address, tlsCa });
  try {
    const { answers, failures } = await server.poll(async (redis) => ({
      info: readInfo(await redis.info()),
      aheadMs: await clockAheadMs(redis),
      fsync: (await fsyncOf(redis)) ?? "",
    }));
    const [look] = answers;
    return { name, of, ...(look ?? { why: storeReason(failures[0]?.error).why }) };
  } finally {
    server.close();
  }
}

/** A primary that is cut off must stop taking writes. */
export function guardCheck(name: string, info: Info, isCluster: boolean): Check[] {
  const check = "min-replicas";
  const connected = Number(info.get("connected_slaves") ?? 0);
  // INFO has this field only where both settings are above 0.
  const inTime = info.get("min_slaves_good_slaves");
  if (inTime === undefined) {
    if (isCluster || connected < 2) return [];
    const found = `${name}: min-replicas-to-write is 0: if this primary is cut off, it takes writes that are lost once another serves`;
    return [
      warning(check, found, "set `min-replicas-to-write 1` and `min-replicas-max-lag 5` on each server"),
    ];
  }
  if (Number(inTime) === 0) {
    const found = `${name}: min-replicas-to-write is set, and no replica has answered within min-replicas-max-lag: it refuses writes`;
    return [failed(check, found, "bring a replica back; see Redis's log on both sides")];
  }
  if (connected > 1) return [];
  const found = `${name}: min-replicas-to-write is set, and there is one replica: without it, or after a failover, all writes are refused`;
  return [
    warning(
      check,
      found,
      "bring the second replica back, or set `min-replicas-to-write 0` where there is one only",
    ),
  ];
}

function replicaChecks(replica: Replica): Check[] {
  const { name, of } = replica;
  if ("why" in replica) {
    const advice =
      "see that it runs; if gateways reach it by another address (NAT, containers), let it announce that one: " +
      "replica-announce-ip, in a cluster cluster-announce-ip. After a failover it is where they would look";
    return [failed("replica", `${name}, of ${of.name}, cannot be used from here: ${replica.why}`, advice)];
  }
  const behind = Math.max(
    0,
    offsetOf(of.info, "master_repl_offset") - offsetOf(replica.info, "slave_repl_offset"),
  );
  const checks = [
    linkCheck(replica.info, behind),
    ...guardDiffers(of, replica.info),
    // It may become the primary.
    ...infoChecks(replica.info, replica.fsync || undefined).filter((check) => check.name !== "role"),
  ];
  const bad = checks.filter(({ status }) => status !== "ok");
  if (bad.length > 0)
    return bad.map((check) => ({ ...check, message: `${name}, replica: ${check.message}` }));
  const others = checks.slice(1).map((check) => check.name);
  return [good("replica", `${name} ${checks[0]!.message} of ${of.name}; ${others.join(", ")} are right`)];
}

const offsetOf = (info: Info, field: string): number => Number(info.get(field) ?? 0);

/** @param behindBytes of the replication stream, since its primary was asked */
export function linkCheck(info: Info, behindBytes: number): Check {
  const check = "replica";
  if (info.get("role") === "master") {
    const found = "says that it is a primary itself";
    return failed(
      check,
      found,
      "wait for a failover to end; if this stays, stop it: two primaries take writes",
    );
  }
  if (info.get("master_sync_in_progress") === "1")
    return warning(check, "copies everything from its primary", "wait; until then it cannot take over");
  if (info.get("master_link_status") !== "up") {
    const since = info.get("master_link_down_since_seconds");
    const found = `has no connection to its primary${since === undefined || since === "-1" ? "" : ` since ${since} s`}`;
    return failed(
      check,
      found,
      "see its log: address, user and password of the primary (masteruser, masterauth), TLS, firewall",
    );
  }
  if (behindBytes > BEHIND_WARNING_BYTES) {
    const found = `is ${Math.round(behindBytes / 1_048_576)} MiB behind its primary, which a failover would lose`;
    return warning(check, found, "see its CPU and disk, and the network between the two");
  }
  return good(
    check,
    behindBytes === 0 ? "has everything" : `is ${behindBytes} bytes behind, with everything else`,
  );
}

function guardDiffers(of: Followed, info: Info): Check[] {
  const field = "min_slaves_good_slaves";
  if (of.info.has(field) === info.has(field)) return [];
  const found = `min-replicas-to-write is ${info.has(field) ? "set here, and not" : "not set here, but"} on its primary`;
  return [warning("min-replicas", found, "give all servers the same settings: each may become the primary")];
}

/** Sentinel promotes no replica of priority 0. */
export function promotableCheck(replicas: readonly { name: string; info: Info }[]): Check[] {
  const never = replicas.filter(({ info }) => info.get("slave_priority") === "0").map(({ name }) => name);
  if (never.length === 0) return [];
  const advice = "set `replica-priority 100` on servers that may become the primary";
  const found = `replica-priority is 0 on ${never.join(", ")}`;
  return never.length === replicas.length
    ? [failed("priority", `${found}: Sentinel promotes none of the replicas`, advice)]
    : [warning("priority", `${found}: Sentinel promotes only the others`, advice)];
}

function settingsCheck(primaries: readonly Followed[]): Check[] {
  const refused = primaries.filter(({ fsync }) => fsync === undefined).map(({ name }) => name);
  if (refused.length === 0) return [];
  const found = `CONFIG GET is not allowed at ${refused.join(", ")}: appendfsync was not looked at`;
  return [good("settings", found)];
}
