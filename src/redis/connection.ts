import type { Redis } from "ioredis";
import { parseRedisAddress, type RedisAddress } from "../domain/redis-address.ts";
import { META } from "../records/names.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { RedisEndpoint } from "./client.ts";
import type { ConfirmationRule } from "./confirmation.ts";
import type { Deadlines } from "./deadlines.ts";
import { createPrimary, type Primary, type StoreHooks } from "./primary.ts";
import { onceMoved } from "./script-errors.ts";
import {
  type FoundStore,
  oneNode,
  type RedisNodes,
  readFacts,
  requireDurable,
  type StoreFacts,
  type StoreRules,
} from "./store-facts.ts";
import { PlacementFollower } from "./topology/follow-placement.ts";
import { FrozenPartitions, listFrozen } from "./topology/frozen-partitions.ts";
import {
  gapsIn,
  type PlacedPrimary,
  placementSource,
  requirePrimaryRole,
  SLOTS_WITHOUT_PRIMARY,
} from "./topology/placement.ts";
import {
  everythingOn,
  mapOf,
  nothingPlaced,
  PrimariesInUse,
  type PrimaryMap,
} from "./topology/primary-map.ts";

export type OpenPrimary = (endpoint: RedisEndpoint, name?: string, isSuccessor?: boolean) => Primary;

export interface ConnectionOptions extends RedisEndpoint {
  commandTimeoutMs: number;
  /** Used at the very first start of a store; later the store's own number counts. */
  partitions: number;
  allowNoPersistence?: boolean | undefined;
  /** A clock for the scripts instead of the store's, Unix ms; for tests. */
  nowMs?: (() => number) | undefined;
  /** Writes that replicas must have before they are acknowledged; without it none. */
  confirm?: ConfirmationRule | undefined;
  /** Makes the first map of primaries; without it, everything is on the one server of the address. */
  place?: ((open: OpenPrimary) => PrimaryMap) | undefined;
  log: Logger;
  metrics: Metrics;
}

interface DurabilityHooks {
  /** @throws StoreError for an empty store, or one of another id, in place of another that is known */
  requireMeant(found: FoundStore): void;
  /** Called with the store's id at the start, and whenever the facts are read again. */
  identified(storeId: string): Promise<void>;
  /** Part of each probe of a primary, after which its breaker closes. @throws to keep it open */
  beforeUse(primary: Primary): Promise<void>;
  /** Called as a primary's breaker closes. @returns why it has to open again at once, if it has to */
  unfinished(primary: Primary): string | undefined;
  /** Called when partitions that were frozen, or whose slot was on its way, or a primary of a cluster, are in use again. */
  released(): void;
}

/** One connection per primary: `of(partition)` for an account, `ofName(name)` for a global name. If one is away, the others work. Decision 0042. */
export function createConnection(options: ConnectionOptions) {
  const { metrics, commandTimeoutMs, log } = options;
  let attached: DurabilityHooks | undefined;
  const facts = createKnownFacts({
    identified: (storeId) => attached?.identified(storeId),
    replaced: () => inForce.trip("the store has another id"),
  });
  const store = createStoreHooks(options, {
    facts,
    map: () => map(),
    attached: () => attached,
    changed: () => inForce.reportUsable(),
    findPrimaries: () => inForce.findPrimaries(),
    primariesFound: () => inForce.primariesFound(),
  });
  const open: OpenPrimary = (endpoint, name, isSuccessor) => {
    const named = name === undefined ? log : log.child({ primary: name });
    return createPrimary({ ...options, ...endpoint, name, isSuccessor, store, log: named });
  };
  const inForce: MapInForce = new MapInForce(open, options, {
    unfinished: (primary) => attached?.unfinished(primary),
    partitions: () => facts.known.facts?.partitions ?? options.partitions,
  });
  const { map } = inForce;
  const { of, ofName, isUsable, requireUsable } = inForce.inUse;
  inForce.start();

  return {
    metrics,
    commandTimeoutMs,
    confirms: options.confirm !== undefined,
    of,
    ofName,
    primaries: (): readonly Primary[] => map().all,
    partitionOn: (primary: Primary): number => map().partitionOn(primary),
    nodes: nodesIn(map),
    /** `facts`: undefined until they were read once. */
    known: facts.known,
    /** @throws StoreError for a store that this gateway does not take for its own */
    requireMeant: (found: FoundStore): void => attached?.requireMeant(found),
    nowMs: (): number => map().ofName(META).nowMs(),
    isUsable,
    isFrozen: store.frozen.has,
    requireUsable,
    usable: inForce.usable,
    attach(one: DurabilityHooks): void {
      attached = one;
    },
    replaceMap: inForce.replaceMap,
    findPrimaries: inForce.findPrimaries,
    epochOf: inForce.epochOf,
    async close(): Promise<void> {
      store.frozen.stop();
      await inForce.close();
    },
  };
}

export type Connection = ReturnType<typeof createConnection>;

const nodesIn = (map: () => PrimaryMap): RedisNodes => ({
  of: (partition) => map().of(partition).redis,
  ofName: (name) => map().ofName(name).redis,
  all: () => map().all.map(({ redis }) => redis),
});

class MapInForce {
  readonly inUse: PrimariesInUse;
  readonly #options: ConnectionOptions;
  readonly #whole: { unfinished(primary: Primary): string | undefined; partitions(): number };
  readonly #open: OpenPrimary;
  readonly #address: RedisAddress;
  /** Undefined where the address names the one server. */
  readonly #absent: Primary | undefined;
  /** Resolves once there is a map with primaries. */
  readonly #placed = Promise.withResolvers<void>();
  #follower: PlacementFollower | undefined;

  constructor(
    open: OpenPrimary,
    options: ConnectionOptions,
    whole: { unfinished(primary: Primary): string | undefined; partitions(): number },
  ) {
    this.#open = open;
    this.#options = options;
    this.#whole = whole;
    this.#address = parseRedisAddress(options.redisUrl);
    const isFollowed = options.place === undefined && this.#address.kind !== "server";
    this.#absent = isFollowed ? absentPrimary(open, { ...options, at: this.#address.hosts[0] }) : undefined;
    this.inUse = new PrimariesInUse(
      this.#absent ? nothingPlaced(this.#absent) : (options.place?.(open) ?? everythingOn(open(options))),
    );
    if (!this.#absent) this.#placed.resolve();
  }

  readonly map = (): PrimaryMap => this.inUse.map;

  readonly isWhole = (): boolean => {
    const { all, hasGaps } = this.inUse.map;
    return all.length > 0 && hasGaps !== true && !all.some(({ breaker }) => breaker.isOpen);
  };

  readonly reportUsable = (): void => {
    const { metrics } = this.#options;
    metrics.storeUp.set(this.isWhole() ? 1 : 0);
    for (const { name, breaker } of this.inUse.map.all)
      if (name !== undefined) metrics.primaryUp.set({ primary: name }, breaker.isOpen ? 0 : 1);
    if (!this.isWhole()) this.findPrimaries();
  };

  /**
   * Puts another map in force: a primary was replaced, or partitions have moved.
   * - A primary that is not in it any more is closed by force (`Primary.leave`).
   * - A new one is used after its first probe.
   * - Settlements that wait belong to the primary that has their partition now. One that has got some sends them before it
   *   is used further.
   * - A call that is under way to a primary that stays, for a partition that it has lost, fails there with nothing done.
   */
  readonly replaceMap = (next: PrimaryMap): void => {
    const { metrics } = this.#options;
    const before = this.inUse.map;
    this.inUse.map = next;
    for (const primary of before.all) {
      if (next.all.includes(primary)) continue;
      primary.leave();
      if (primary.name !== undefined) metrics.primaryUp.remove({ primary: primary.name });
    }
    for (const primary of next.all) {
      if (!before.all.includes(primary)) primary.start();
      const why = this.#whole.unfinished(primary);
      if (why !== undefined) primary.breaker.trip(why);
    }
    this.reportUsable();
    this.#placed.resolve();
  };

  start(): void {
    this.#options.metrics.storeUp.set(0);
    for (const primary of this.inUse.map.all) primary.start();
    if (this.#absent) this.#follower = this.#followPrimaries(this.#absent);
  }

  readonly usable = async (): Promise<void> => {
    await this.#placed.promise;
    do await Promise.all(this.inUse.map.all.map(({ breaker }) => breaker.closed()));
    while (this.inUse.map.all.some(({ breaker }) => breaker.isOpen));
  };

  trip(why: string): void {
    for (const { breaker } of this.inUse.map.all) breaker.trip(why);
  }

  readonly findPrimaries = (): void => this.#follower?.poll();

  readonly epochOf = ({ name }: Primary): number | undefined =>
    this.#follower?.placement()?.primaries.find((placed) => placed.name === name)?.epoch;

  readonly primariesFound = async (): Promise<void> => this.#follower?.polled();

  async close(): Promise<void> {
    this.#follower?.close();
    await Promise.all(this.inUse.map.all.map((primary) => primary.close()));
  }

  /** Keeps a map of the primaries that the servers of the store name. A primary that is named again is kept as it is. */
  #followPrimaries(absent: Primary): PlacementFollower {
    const { redisUrl, tlsCa, metrics, log } = this.#options;
    let opened = new Map<string, Primary>();
    const openAt = (at: PlacedPrimary): Primary =>
      opened.get(at.name) ?? this.#open({ redisUrl, tlsCa, at }, at.name, opened.size > 0);
    const source = placementSource(this.#address, { redisUrl, tlsCa });
    return new PlacementFollower({
      source,
      found: (placement) => {
        opened = new Map(placement.primaries.map((at) => [at.name, openAt(at)]));
        this.replaceMap(mapOf(placement, (name) => opened.get(name)!, absent));
        const gaps = gapsIn(placement, this.#whole.partitions());
        if (gaps !== undefined) log.error(gaps, SLOTS_WITHOUT_PRIMARY);
      },
      isAway: () => !this.isWhole(),
      counted(outcome) {
        metrics.primaryQuestions.inc({ outcome });
        metrics.silentServers.set(source.silent());
      },
      log,
    });
  }
}

/** Stands for a primary that nobody names: it is never connected, and never usable. */
function absentPrimary(open: OpenPrimary, endpoint: RedisEndpoint): Primary {
  const primary = open(endpoint);
  primary.leave();
  return { ...primary, outage: () => Promise.resolve(0) };
}

/** The store's hooks for each primary. The primary of `tg:meta` answers for the facts of the store, each for its own server. */
function createStoreHooks(
  options: ConnectionOptions,
  whole: {
    facts: ReturnType<typeof createKnownFacts>;
    map(): PrimaryMap;
    attached(): DurabilityHooks | undefined;
    changed(): void;
    findPrimaries(): void;
    primariesFound(): Promise<void>;
  },
): StoreHooks {
  const { facts, map, attached } = whole;
  const { log, metrics } = options;
  const rules: StoreRules = {
    partitions: options.partitions,
    allowNoPersistence: options.allowNoPersistence,
    requireMeant: (found) => attached()?.requireMeant(found),
  };
  const frozen = new FrozenPartitions({
    isClustered: () => facts.known.facts?.cluster ?? false,
    partitions: () => facts.known.facts?.partitions ?? 0,
    list: async () => [...(await map().ofName(META).direct.command(listFrozen)).keys()],
    findPrimaries: whole.findPrimaries,
    released: () => attached()?.released(),
    log,
    metrics,
  });
  const hasMeta = (primary: Primary): boolean => map().ofName(META) === primary;

  return {
    partitionOn: (primary) => thawedPartitionOn(primary, map(), frozen, facts.known.facts?.partitions ?? 0),
    frozen,
    async checkServer(primary, redis) {
      await requireNamedRole(primary, redis);
      if (hasMeta(primary)) await readFacts(oneNode(redis), rules);
      else await requireDurable(redis, rules);
    },
    async learnFacts(primary, deadlines) {
      await deadlines.within(requireNamedRole(primary, primary.redis));
      if (hasMeta(primary)) {
        const read = () => deadlines.within(readFacts(oneNode(primary.redis), rules));
        await facts.learn(await onceMoved(read));
        if (facts.known.facts?.cluster) await frozen.look();
      } else {
        await deadlines.within(requireDurable(primary.redis, rules));
        await facts.waitFor(deadlines);
      }
    },
    async beforeUse(primary) {
      try {
        await attached()?.beforeUse(primary);
      } catch (error) {
        // The next probe reads the other partitions.
        frozen.refusesRead(error);
        throw error;
      }
    },
    unfinished: (primary) => attached()?.unfinished(primary),
    isClustered: () => facts.known.facts?.cluster ?? false,
    usableAgain() {
      if (facts.known.facts?.cluster) attached()?.released();
    },
    async ownerNow(primary, name) {
      if (map().ofName(name) === primary) await whole.primariesFound();
      return map().ofName(name);
    },
    changed: whole.changed,
  };
}

/** A partition of this primary that is not frozen: where a slot is on its way to another node, no new name can be written. */
function thawedPartitionOn(
  primary: Primary,
  map: PrimaryMap,
  frozen: FrozenPartitions,
  partitions: number,
): number {
  const first = map.partitionOn(primary);
  if (!frozen.has(first)) return first;
  for (let partition = 0; partition < partitions; partition++)
    if (!frozen.has(partition) && map.of(partition) === primary) return partition;
  return first;
}

/** A replica of one that was named may take writes, and would still answer from what it has got. */
async function requireNamedRole({ name }: Primary, redis: Redis): Promise<void> {
  if (name !== undefined) requirePrimaryRole(await redis.info("replication"), name);
}

/**
 * As the primary of `tg:meta` last answered; kept while it is away. @param options.identified called with the store's id at each read
 * @param options.replaced called when the id has changed
 */
function createKnownFacts(options: {
  identified(storeId: string): Promise<void> | undefined;
  replaced(): void;
}) {
  const known: { facts: StoreFacts | undefined } = { facts: undefined };
  /** Probes of other primaries at the start. */
  const waiting = new Set<() => void>();

  return {
    /** `facts`: undefined until they were read once. A field, since each request reads it. */
    known: known as Readonly<typeof known>,
    async learn(latest: StoreFacts): Promise<void> {
      const before = known.facts;
      known.facts = latest;
      await options.identified(latest.id);
      for (const resolve of waiting) resolve();
      waiting.clear();
      if (before && before.id !== latest.id) options.replaced();
    },
    /** @throws Error if they are still unknown after the time of a command */
    async waitFor(deadlines: Deadlines): Promise<void> {
      if (known.facts) return;
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const deadline = deadlines.begin(() => {
        waiting.delete(resolve);
        reject(new Error("the number of partitions is unknown: the primary of tg:meta does not answer"));
      });
      waiting.add(resolve);
      await promise;
      deadlines.end(deadline);
    },
  };
}
