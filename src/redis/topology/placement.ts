import type { Redis } from "ioredis";
import { hostText, type RedisAddress, type RedisHost } from "../../domain/redis-address.ts";
import { META, partitionNames } from "../../records/names.ts";
import { onOwnConnection } from "../client.ts";
import { Deadlines } from "../deadlines.ts";
import { inStoreWords, StoreError, storeReason } from "../reasons.ts";
import { isReply } from "../script-errors.ts";
import { readInfo } from "../server-info.ts";
import { createClusterSource, SLOTS, slotOf } from "./cluster-slots.ts";
import { createSentinels } from "./sentinels.ts";

export interface PlacedPrimary extends RedisHost {
  /** `host:port`, for log, metrics and console. */
  readonly name: string;
  /** The configuration epoch of Sentinel or of the cluster, which grows with each failover; 0 on one server. */
  readonly epoch: number;
  /** How many replicas may be promoted in its place now; 0 on one server, which says nothing of that. */
  readonly replicas: number;
}

export interface Placement {
  readonly primaries: readonly PlacedPrimary[];
  ofSlot(slot: number): PlacedPrimary | undefined;
}

export interface PlacementOptions {
  redisUrl: string;
  /** Certificates, PEM, that a `rediss` server is checked with; undefined for Node's own. */
  tlsCa?: string | undefined;
}

export interface PlacementSource {
  /** @throws StoreError with what was asked, what came, and what to do */
  find(): Promise<Placement>;
  /** How many servers did not answer the last question. */
  silent(): number;
  close(): void;
}

/** How long a server may take to connect and to say its role. */
const ROLE_MS = 2000;

export const SLOTS_WITHOUT_PRIMARY =
  "slots of the cluster have no primary, and accounts of these partitions get 503; assign the slots: redis-cli --cluster check, then fix";

/** Slots that no primary serves: how many, and the store's names in them. Undefined if there are none. */
export function gapsIn(
  { ofSlot }: Placement,
  partitions: number,
): { slots: number; partitions: number[]; meta?: true } | undefined {
  const isGap = (slot: number): boolean => ofSlot(slot) === undefined;
  const slots = Array.from({ length: SLOTS }, (_, slot) => slot).filter(isGap).length;
  if (slots === 0) return undefined;
  const all = Array.from({ length: partitions }, (_, partition) => partition);
  const gaps = {
    slots,
    partitions: all.filter((partition) => isGap(slotOf(partitionNames(partition).ledger))),
  };
  return isGap(slotOf(META)) ? { ...gaps, meta: true } : gaps;
}

export const everythingOnOne = (primary: PlacedPrimary): Placement => ({
  primaries: [primary],
  ofSlot: () => primary,
});

/** Asks once, and makes sure that they are primaries. @throws StoreError with what was asked, what came, and what to do */
export async function findPlacement(address: RedisAddress, options: PlacementOptions): Promise<Placement> {
  if (address.kind === "server") {
    const [server] = address.hosts;
    return everythingOnOne({ ...server!, name: hostText(server!), epoch: 0, replicas: 0 });
  }
  const source = placementSource(address, options);
  try {
    const placement = await source.find();
    // A node of a cluster says itself where a slot is that it does not have.
    if (address.kind === "sentinel")
      for (const primary of placement.primaries) await requirePrimary(primary, options);
    return placement;
  } finally {
    source.close();
  }
}

/** The placement look-up of a running gateway whose address names no primary itself. */
export function placementSource(address: RedisAddress, options: PlacementOptions): PlacementSource {
  if (address.kind === "cluster") return createClusterSource(address, options);
  const { find, ...sentinels } = createSentinels(address, options);
  return { find: async () => everythingOnOne(await find()), ...sentinels };
}

/** @throws StoreError if the server that was named cannot be reached, or is no primary */
async function requirePrimary(primary: PlacedPrimary, { redisUrl, tlsCa }: PlacementOptions): Promise<void> {
  const limit = new Deadlines(ROLE_MS);
  const limits = { connecting: limit, command: limit };
  const readRole = async (redis: Redis): Promise<void> =>
    requirePrimaryRole(await redis.info("replication"), primary.name);
  try {
    await onOwnConnection({ redisUrl, tlsCa, at: primary }, limits, readRole);
  } catch (error) {
    throw error instanceof StoreError ? error : notUsable(primary.name, error);
  }
}

/** @param replication what INFO says of replication @throws StoreError if the server is no primary */
export function requirePrimaryRole(replication: string, name: string): void {
  const info = readInfo(replication);
  const [role, host] = [info.get("role"), info.get("master_host")];
  if (role === undefined || role === "master") return;
  const of = host === undefined ? "" : ` of ${host}:${info.get("master_port")}`;
  throw new StoreError(`${name} was named as the primary, and says that it is a replica${of}`, IS_REPLICA);
}

/** Why a server that was named as a primary cannot be used. @param wasUsable its address is right then */
export function wordsOfNamed(name: string, wasUsable: () => boolean): (error: unknown) => string {
  return (error) => {
    if (error instanceof StoreError || (isReply(error) && !isReadOnly(error))) return inStoreWords(error);
    if (!wasUsable() || isReadOnly(error)) return notUsable(name, error).message;
    return `${name} is away: ${storeReason(error).why}; used again once it answers, or another is named in its place`;
  };
}

const IS_REPLICA =
  "wait for the failover to end; if this stays, see that REDIS_URL has the Sentinels or nodes of this store";

/** Explains why a named server cannot be used. */
function notUsable(name: string, error: unknown): StoreError {
  if (isReadOnly(error))
    return new StoreError(
      `${name} was named as the primary, and is a read-only replica (READONLY)`,
      IS_REPLICA,
    );
  const { why, advice } = storeReason(error);
  if (!UNREACHABLE.test(textOf(error)))
    return new StoreError(`${name}, which was named as the primary: ${why}`, advice);
  return new StoreError(
    `${name}, which was named as the primary, cannot be reached from here: ${why}`,
    "see that Redis runs there and that no firewall is between; if gateways reach it by another address (NAT, containers), " +
      "let it announce that one: replica-announce-ip and replica-announce-port of Redis, cluster-announce-ip of a cluster's node",
  );
}

const UNREACHABLE =
  /ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT|timed out|not connected/i;
const isReadOnly = (error: unknown): boolean => isReply(error) && error.message.startsWith("READONLY");
const textOf = (error: unknown): string =>
  error instanceof Error ? `${(error as NodeJS.ErrnoException).code ?? ""} ${error.message}` : String(error);
