import type { Redis } from "ioredis";
import { hostText, type RedisAddress, type RedisHost } from "../../domain/redis-address.ts";
import { StoreError, storeReason } from "../reasons.ts";
import type { PlacedPrimary, Placement, PlacementOptions, PlacementSource } from "./placement.ts";
import { ANSWER_MS, createServerPolls, type Failure } from "./server-polls.ts";

/** Nodes that are polled at a time, in a cluster of any size: enough that one that is cut off does not decide. */
const POLLED_MAX = 5;

interface SlotView {
  ranges: { first: number; last: number; primary: PlacedPrimary }[];
}

/**
 * For each slot the answer of the highest epoch counts: a node that was cut off names primaries that were left.
 * https://redis.io/docs/latest/commands/cluster-slots/, https://redis.io/docs/latest/commands/cluster-nodes/
 */
export function createClusterSource(address: RedisAddress, { tlsCa }: PlacementOptions): PlacementSource {
  const { tls, username, password, family } = address;
  const nodes = createServerPolls(address.hosts, { tls, username, password, db: 0, family, tlsCa });

  let last: Placement | undefined;

  return {
    async find() {
      const { answers, failures } = await nodes.poll(viewOf);
      if (answers.length === 0) throw nobodyAnswers(failures);
      const placement = merged(answers, last);
      if (placement.primaries.length === 0) throw noSlots(answers);
      last = placement;
      nodes.replace(nextPolled(address.hosts, placement.primaries));
      return placement;
    },
    silent: nodes.silent,
    close: nodes.close,
  };
}

/** @throws Error in Redis's or our own words */
async function viewOf(redis: Redis, at: RedisHost): Promise<SlotView> {
  const replies = await redis.pipeline().call("CLUSTER", "SLOTS").call("CLUSTER", "NODES").exec();
  const [[slotsError, slots], [nodesError, nodes]] = replies as [Reply, Reply];
  if (slotsError) throw /cluster support disabled/i.test(slotsError.message) ? notClustered() : slotsError;
  if (nodesError) throw nodesError;
  return readSlotView({ slots, nodes: String(nodes), at });
}

type Reply = [error: Error | null, reply: unknown];

/**
 * @param reply.slots `[first, last, [endpoint, port, id], ...replicas]`: no endpoint, or `?`, where the node was asked
 * @param reply.nodes CLUSTER NODES, with the epochs @param reply.at where the node was asked
 */
export function readSlotView(reply: { slots: unknown; nodes: string; at: RedisHost }): SlotView {
  const nodes = reply.nodes.split("\n").map((line) => {
    const [id = "", , flags = "", primaryId = "", , , epoch = 0] = line.split(" ");
    return { id, flags: flags.split(","), primaryId, epoch: Number(epoch) };
  });
  const epochs = new Map(nodes.map(({ id, epoch }) => [id, epoch]));
  const replicasOf = (id: string): number =>
    nodes.filter(({ primaryId, flags }) => primaryId === id && !flags.some((flag) => NOT_PROMOTED.has(flag)))
      .length;
  const ranges = Array.isArray(reply.slots) ? reply.slots : [];
  return {
    ranges: ranges.map(([first, last, [endpoint, port, id]]) => {
      const host =
        typeof endpoint === "string" && endpoint !== "" && endpoint !== "?" ? endpoint : reply.at.host;
      const at = { host, port: Number(port) };
      const primary = { ...at, name: hostText(at), epoch: epochs.get(String(id)) ?? 0 };
      return {
        first: Number(first),
        last: Number(last),
        primary: { ...primary, replicas: replicasOf(String(id)) },
      };
    }),
  };
}

/** Flags of a replica that most primaries have agreed is away, or that is told never to take over. */
const NOT_PROMOTED = new Set(["fail", "nofailover"]);

/** Per slot the highest epoch's primary; a replica that any view may promote counts. @param before another name alone changes nothing */
export function merged(views: readonly SlotView[], before?: Placement): Placement {
  const bySlot = new Array<PlacedPrimary | undefined>(SLOTS).fill(undefined);
  for (const { ranges } of views)
    for (const { first, last, primary } of ranges)
      for (let slot = first; slot <= last; slot++) {
        const { epoch = -1 } = bySlot[slot] ?? {};
        const isInUse = primary.epoch === epoch && primary.name === before?.ofSlot(slot)?.name;
        if (primary.epoch > epoch || isInUse) bySlot[slot] = primary;
      }
  const primaries = new Map<string, PlacedPrimary>();
  for (const primary of bySlot) if (primary !== undefined) primaries.set(primary.name, primary);
  const replicas = mostReplicas(views);
  return {
    primaries: [...primaries.values()].map((primary) => ({
      ...primary,
      replicas: replicas.get(primary.name) ?? 0,
    })),
    ofSlot: (slot) => bySlot[slot],
  };
}

function mostReplicas(views: readonly SlotView[]): Map<string, number> {
  const most = new Map<string, number>();
  for (const { primary } of views.flatMap(({ ranges }) => ranges))
    most.set(primary.name, Math.max(primary.replicas, most.get(primary.name) ?? 0));
  return most;
}

/** Some of the primaries, others each time, and a host of the address: all primaries may have been replaced. */
function nextPolled(given: readonly RedisHost[], primaries: readonly PlacedPrimary[]): RedisHost[] {
  const some = <Host>(of: readonly Host[], count: number): Host[] => {
    const from = Math.floor(Math.random() * of.length);
    return [...of.slice(from), ...of.slice(0, from)].slice(0, count);
  };
  const hosts = [...some(primaries, POLLED_MAX - 2), ...some(given, 2)];
  return [...new Map(hosts.map(({ host, port }) => [hostText({ host, port }), { host, port }])).values()];
}

class NotClusteredError extends StoreError {}

const notClustered = (): NotClusteredError =>
  new NotClusteredError("is a Redis server without cluster support");

function nobodyAnswers(failures: readonly Failure[]): StoreError {
  const list = failures.map(({ server, error }) => `${server} ${reasonOf(error)}`).join("; ");
  const wasAsked = `no node of the cluster says who has its slots: ${list}`;
  if (failures.some(({ error }) => error instanceof NotClusteredError))
    return new StoreError(
      wasAsked,
      "use redis:// for one server and redis+sentinel:// for a primary with Sentinels, or set `cluster-enabled yes`",
    );
  const [first] = failures;
  return new StoreError(wasAsked, first === undefined ? undefined : storeReason(first.error).advice);
}

const noSlots = (views: readonly SlotView[]): StoreError =>
  new StoreError(
    `the cluster has no primary with slots (${views.length} of its nodes were polled)`,
    "assign all slots: redis-cli --cluster create, or redis-cli --cluster fix",
  );

function reasonOf(error: unknown): string {
  if (error instanceof NotClusteredError) return error.why;
  if (error instanceof Error && /timed out/i.test(error.message))
    return `gave no answer within ${ANSWER_MS} ms`;
  return `(${storeReason(error).why})`;
}

export const SLOTS = 16_384;

/** The slot of a name: CRC16 (XMODEM) of its hash tag where it has one, else of all of it. */
export function slotOf(name: string): number {
  let crc = 0;
  for (const byte of Buffer.from(/\{([^}]+)\}/.exec(name)?.[1] ?? name)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = ((crc & 0x8000) === 0 ? crc << 1 : (crc << 1) ^ 0x1021) & 0xffff;
  }
  return crc % SLOTS;
}
