import { randomUUID } from "node:crypto";
import type { Redis } from "ioredis";
import { GatewayError } from "../../domain/errors.ts";
import { hostsIn, parseRedisAddress } from "../../domain/redis-address.ts";
import { markName, PARTITIONS_MAX } from "../../records/names.ts";
import { OperatorError } from "../../records/operator-error.ts";
import { type ConfirmationRule, createRounds, markAndWait } from "../../redis/confirmation.ts";
import { type OpenedNodes, openNodes } from "../../redis/open-nodes.ts";
import { inStoreWords, isStoreError, storeReason } from "../../redis/reasons.ts";
import { type RedisNodes, readFacts, type StoreRules } from "../../redis/store-facts.ts";
import { findWritable } from "../store/operator-loss.ts";

/** Longer than for requests: pages of records take more time. */
const COMMAND_TIMEOUT_MS = 5000;
/** After this time the primaries are looked up again. */
const PLACED_MS = 10_000;

export type OperatorSession = ReturnType<typeof createOperatorSession>;

interface Opened {
  ready: Promise<OpenedNodes>;
  openedMs: number;
  users: number;
}

interface SessionOptions extends Partial<StoreRules> {
  redisUrl: string;
  tlsCa?: string | undefined;
  timeoutMs?: number;
  journal?: string | undefined;
  confirm?: ConfirmationRule | undefined;
  prepare?: ((nodes: RedisNodes) => Promise<void>) | undefined;
  /** @param isConnected false if the connection failed */
  inWords?(error: unknown, isConnected: boolean): Error;
}

const unavailable = (error: unknown): Error =>
  new GatewayError("store_unavailable", inStoreWords(error), { cause: error });

/** Own connections, so that bulk reads never delay a request. @param options.partitions checks the store as a gateway does */
export function createOperatorSession(options: SessionOptions) {
  const { redisUrl, tlsCa, partitions, timeoutMs = COMMAND_TIMEOUT_MS, inWords = unavailable } = options;
  const isPlaced = parseRedisAddress(redisUrl).kind !== "server";

  async function open(): Promise<OpenedNodes> {
    const opened = await openNodes({ redisUrl, tlsCa }, timeoutMs);
    try {
      if (partitions !== undefined) await readFacts(opened.nodes, { ...options, partitions });
      return opened;
    } catch (error) {
      opened.close();
      throw error;
    }
  }

  const shared = shareNodes(open, isPlaced ? PLACED_MS : Number.POSITIVE_INFINITY);

  /** @throws GatewayError `store_unavailable`, or the result of `inWords` */
  async function run<T>(work: (nodes: RedisNodes) => Promise<T>): Promise<T> {
    const opened = shared.use();
    let isConnected = false;
    try {
      const { nodes } = await opened.ready;
      isConnected = true;
      await options.prepare?.(nodes);
      return await work(nodes);
    } catch (error) {
      // An OperatorError may quote an error of the archive.
      if (isConnected && (error instanceof OperatorError || !isStoreError(error))) throw error;
      shared.leave(opened);
      throw inWords(error, isConnected);
    } finally {
      shared.release(opened);
    }
  }

  const confirmed = (nodes: RedisNodes) => confirmedByReplicas(nodes, options.confirm?.replicas ?? 0);

  return {
    run,
    /** @throws OperatorError for a write to a stale store */
    write: <T>(work: (nodes: RedisNodes) => Promise<T>): Promise<Written<T>> =>
      run(async (nodes) => {
        const writable = await findWritable(nodes, options.journal);
        return writtenBy(work, { ...confirmed(nodes), ...writable });
      }),
    /** Allows writes to a stale or empty store. */
    writeAnyway: <T>(work: (nodes: RedisNodes) => Promise<T>): Promise<Written<T>> =>
      run((nodes) => writtenBy(work, confirmed(nodes))),
    close: shared.close,
  };
}

/** Connections that all users of a time share, and that the last one closes. @param keptMs then later users get others */
function shareNodes(open: () => Promise<OpenedNodes>, keptMs: number) {
  let current: Opened | undefined;
  function leave(opened: Opened): void {
    if (current === opened) current = undefined;
    if (opened.users > 0) return;
    opened.ready.then(
      ({ close }) => close(),
      () => undefined,
    );
  }
  return {
    leave,
    use(): Opened {
      if (current && performance.now() - current.openedMs > keptMs) leave(current);
      current ??= { ready: open(), openedMs: performance.now(), users: 0 };
      current.users++;
      return current;
    },
    release(opened: Opened): void {
      opened.users--;
      if (current !== opened) leave(opened);
    },
    close(): void {
      if (current) leave(current);
    },
  };
}

export const operatorWords =
  (redisUrl: string) =>
  (error: unknown, isConnected: boolean): Error => {
    const place = hostsIn(redisUrl);
    // Redis's own words, or those of a broken connection.
    if (isConnected) return new Error(`Redis at ${place}: ${inStoreWords(error)}`, { cause: error });
    const { why, advice = "see Redis's log, and that REDIS_URL is right" } = storeReason(error);
    return new OperatorError(`Redis at ${place} cannot be used (${why}); ${advice}`);
  };

/** Longer than for a customer's request. */
const WAIT_MS = 1000;

/** Adds `confirmed`: true if every replica has all writes so far. Any may be promoted, and nobody repeats a write. @param replicas 0: no check */
export function confirmedByReplicas(nodes: RedisNodes, replicas: number): RedisNodes {
  if (replicas === 0) return nodes;
  const writer = randomUUID();
  const isOnReplicas = (redis: Redis): Promise<boolean> =>
    markAndWait(redis, {
      mark: markName(partitionOn(nodes, redis), writer),
      replicas: Math.max(replicas, nodes.replicasOf?.(redis) ?? 0),
      timeoutMs: WAIT_MS,
    });
  const used = new Set<Redis>();
  const recordUse = (redis: Redis): Redis => {
    used.add(redis);
    return redis;
  };
  const rounds = createRounds(async () => {
    const answers = await Promise.all([...used].map(isOnReplicas));
    return answers.every((isThere) => isThere) ? "replicas" : "none";
  });
  return {
    all: nodes.all,
    of: (partition) => recordUse(nodes.of(partition)),
    ofName: (name) => recordUse(nodes.ofName(name)),
    confirmed: async () => (await rounds.join()) === "replicas",
  };
}

/** `confirmed` is undefined where replicas are not asked. */
export interface Written<T> {
  result: T;
  confirmed: boolean | undefined;
}

/** A failure to confirm does not undo the work. */
async function writtenBy<T>(work: (nodes: RedisNodes) => Promise<T>, nodes: RedisNodes): Promise<Written<T>> {
  const result = await work(nodes);
  return { result, confirmed: await nodes.confirmed?.() };
}

function partitionOn(nodes: RedisNodes, redis: Redis): number {
  let partition = 0;
  while (partition < PARTITIONS_MAX && nodes.of(partition) !== redis) partition++;
  return partition;
}
