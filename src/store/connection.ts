import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { RedisEndpoint } from "./client.ts";
import type { ConfirmationRule } from "./confirmation.ts";
import { createKnownFacts } from "./known-facts.ts";
import { META } from "./names.ts";
import { oneNode, type RedisNodes } from "./nodes.ts";
import { createPrimary, type PartOfStore, type Primary } from "./primary.ts";
import { everythingOn, type PrimaryMap } from "./primary-map.ts";
import { readFacts, requireNoEviction } from "./store-facts.ts";

/** Makes a primary of this store. @param name is in the lines of its log, where there are several */
export type OpenPrimary = (endpoint: RedisEndpoint, name?: string) => Primary;

export interface ConnectionOptions extends RedisEndpoint {
  commandTimeoutMs: number;
  /** Used at the very first start of a store; later the store's own number counts. */
  partitions: number;
  /** A clock for the scripts instead of the store's, Unix ms; for tests. */
  nowMs?: (() => number) | undefined;
  /** What must be on replicas before it is answered; without it nothing is asked of them. */
  confirm?: ConfirmationRule | undefined;
  /** Makes the first map of primaries; without it, everything is on the one server of the address. */
  place?: ((open: OpenPrimary) => PrimaryMap) | undefined;
  log: Logger;
  metrics: Metrics;
}

/** Work that has to be done before the store is used. */
export interface Attached {
  /** Called with the store's id at the start, and whenever the facts are read again. */
  identified(storeId: string): Promise<void>;
  /** Part of each probe of a primary, after which its breaker closes. @throws to keep it open */
  beforeUse(primary: Primary): Promise<void>;
  /** Called as a primary's breaker closes. @returns why it has to open again at once, if it has to */
  unfinished(primary: Primary): string | undefined;
}

/**
 * The store as requests use it: one connection for each primary, and what is known of the whole. Whatever is done for an
 * account goes to `of(partition)`, whatever has a global name to `ofName(name)`. While a primary is away, the others are in
 * use. Decision 0042.
 */
export function createConnection(options: ConnectionOptions) {
  const { metrics, commandTimeoutMs, log } = options;
  let attached: Attached | undefined;
  const facts = createKnownFacts({
    identified: (storeId) => attached?.identified(storeId),
    replaced: () => tripAll("the store has another id"),
    log,
  });
  const store = partOfStore({
    facts,
    map: () => map,
    attached: () => attached,
    partitions: options.partitions,
    changed: reportUsable,
  });
  const open: OpenPrimary = (endpoint, name) =>
    createPrimary({
      ...options,
      ...endpoint,
      store,
      log: name === undefined ? log : log.child({ primary: name }),
    });
  let map = options.place?.(open) ?? everythingOn(open(options));

  function reportUsable(): void {
    metrics.storeUp.set(map.all.some(({ breaker }) => breaker.isOpen()) ? 0 : 1);
  }
  function tripAll(why: string): void {
    for (const { breaker } of map.all) breaker.trip(why);
  }
  /** For operators' functions, within a `command` of a primary. */
  const nodes: RedisNodes = {
    of: (partition) => map.of(partition).redis,
    ofName: (name) => map.ofName(name).redis,
    all: () => map.all.map(({ redis }) => redis),
  };
  /** Whether some accounts can be served. */
  const isUsable = (): boolean => map.all.some(({ breaker }) => !breaker.isOpen());

  metrics.storeUp.set(0);
  for (const primary of map.all) primary.start();

  return {
    metrics,
    commandTimeoutMs,
    /** Whether what is answered has to be on replicas. */
    confirms: options.confirm !== undefined,
    of: (partition: number): Primary => map.of(partition),
    ofName: (name: string): Primary => map.ofName(name),
    primaries: (): readonly Primary[] => map.all,
    nodes,
    facts: facts.current,
    /** The clock for what concerns no account, Unix ms. */
    nowMs: (): number => map.ofName(META).nowMs(),
    isUsable,
    /** @throws GatewayError `store_unavailable` while the primary of this partition is away; without a partition, while all are */
    requireUsable(partition?: number): void {
      if (partition !== undefined) map.of(partition).requireUsable();
      else if (!isUsable()) map.all[0]!.requireUsable();
    },
    /** Resolves once each primary has been usable. */
    usable: async (): Promise<void> => {
      await Promise.all(map.all.map(({ breaker }) => breaker.closed()));
    },
    attach(one: Attached): void {
      attached = one;
    },
    /**
     * Puts another map in force: a primary was replaced, or partitions have moved.
     * - A primary that is not in it any more is closed by force (`Primary.leave`).
     * - A new one is used after its first probe.
     * - Settlements that wait belong to the primary that has their partition now. One that has got some sends them before it
     *   is used further.
     * - A call that is under way to a primary that stays, for a partition that it has lost, fails there with nothing done.
     */
    replaceMap(next: PrimaryMap): void {
      const before = map;
      map = next;
      for (const primary of before.all) if (!next.all.includes(primary)) primary.leave();
      for (const primary of next.all) {
        if (!before.all.includes(primary)) primary.start();
        const unfinished = attached?.unfinished(primary);
        if (unfinished !== undefined) primary.breaker.trip(unfinished);
      }
      reportUsable();
    },
    async close(): Promise<void> {
      await Promise.all(map.all.map((primary) => primary.close()));
    },
  };
}

export type Connection = ReturnType<typeof createConnection>;

/** What each primary needs of the whole. The primary of `tg:meta` answers for the facts of the store, each for its own server. */
function partOfStore(whole: {
  facts: ReturnType<typeof createKnownFacts>;
  map(): PrimaryMap;
  attached(): Attached | undefined;
  partitions: number;
  changed(): void;
}): PartOfStore {
  const { facts, map, attached, partitions } = whole;
  const hasMeta = (primary: Primary): boolean => map().ofName(META) === primary;

  return {
    partitionOn: (primary) => map().partitionOn(primary),
    async checkServer(primary, redis) {
      if (hasMeta(primary)) await readFacts(oneNode(redis), partitions);
      else await requireNoEviction(redis);
    },
    async learnFacts(primary, deadlines) {
      if (hasMeta(primary)) {
        await facts.learn(await deadlines.within(readFacts(oneNode(primary.redis), partitions)));
      } else {
        await deadlines.within(requireNoEviction(primary.redis));
        await facts.known(deadlines);
      }
    },
    beforeUse: async (primary) => attached()?.beforeUse(primary),
    unfinished: (primary) => attached()?.unfinished(primary),
    isClustered: () => facts.current()?.cluster ?? false,
    changed: whole.changed,
  };
}
