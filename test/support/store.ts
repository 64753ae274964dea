import { randomBytes, randomInt } from "node:crypto";
import { inject } from "vitest";
import type { Limits, Tiers } from "../../src/core/limits.ts";
import { limitFields } from "../../src/store/accounts.ts";
import { packTiers, voidKeys } from "../../src/store/calls.ts";
import { type Connection, createConnection } from "../../src/store/connection.ts";
import { accountNames, type KeyRef, keyRef, partitionNames, requestName } from "../../src/store/names.ts";
import type { Generation, KnownTask, NewTask } from "../../src/store/operations.ts";
import { type Settlement, settle } from "../../src/store/outbox.ts";
import type { Reply, Scripts, Verb } from "../../src/store/scripts.ts";
import { createStore } from "../../src/store/store.ts";
import { createSweeps } from "../../src/store/sweeps.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";

export const TIERS: Tiers = {
  standard: { rateLimit: 20, maxConcurrent: 3, dailyLimit: 500 },
  enterprise: { rateLimit: 100, maxConcurrent: 10, dailyLimit: 10_000 },
};
/** Where a stage's clock starts: noon UTC of some day, Unix ms. */
export const NOON_MS = Date.UTC(2031, 4, 6, 12);
export const ENDPOINT = "/api/v1/gen2/text-to-video";
export const HOLD_MS = 60_000;
export const POLL_MS = 30_000;
export const RETENTION_MS = 10_000;
export const MAX_AGE_MS = 2 * 3_600_000;
export const UPSTREAM = "https://generator.example.com";
/** Real partitions are few and low: names of tests never meet them, nor `ledger verify` the tests' accounts. */
const PARTITION_MIN = 1_000_000;

/** One call of one verb, as an operation of the store makes it. */
export interface ScriptCall {
  verb: Verb;
  keys: readonly string[];
  args: readonly (string | number)[];
}

/** A usable connection to the run's Redis, or another; whoever opens it closes it. */
export async function openConnection(redisUrl = inject("redisUrl"), commandTimeoutMs = 10_000) {
  const log = createLogger("silent");
  const connection = createConnection({
    redisUrl,
    commandTimeoutMs,
    partitions: 64,
    log,
    metrics: createMetrics(),
  });
  await connection.breaker.closed();
  return connection;
}

export const randomId = (prefix: string): string => `${prefix}_${randomBytes(9).toString("hex")}`;

export type Stage = ReturnType<typeof createStage>;

/**
 * The store's operations over a partition of this stage's own, with a clock that only the test moves.
 * @param options `scripts` may be mutants; `clock: "redis"` leaves the time to Redis TIME
 */
export function createStage(
  connection: Connection,
  options: {
    scripts?: Scripts;
    tiers?: Tiers;
    clock?: "redis";
    partition?: number;
    seen?: (verb: Verb, reply: Reply) => void;
  } = {},
) {
  const { scripts = connection.scripts, tiers = TIERS } = options;
  const { redis } = connection;
  const partition = options.partition ?? randomInt(PARTITION_MIN, 2 ** 40);
  const clock = { nowMs: NOON_MS };
  const now = (): string => (options.clock === "redis" ? "" : String(clock.nowMs));
  let replies: Reply[] = [];
  /** While set, calls are noted instead of made. */
  let noted: ScriptCall[] | undefined;
  let deferred: Settlement | undefined;

  async function call(
    verb: Verb,
    keys: readonly string[],
    args: readonly (string | number)[],
  ): Promise<Reply> {
    if (noted) {
      noted.push({ verb, keys, args });
      throw new Error("no answer came");
    }
    const reply = await scripts[verb](keys, args);
    options.seen?.(verb, reply);
    replies.push(reply);
    return reply;
  }
  async function defer(settlement: Settlement): Promise<void> {
    if (!noted) throw new Error("a settlement was deferred though the store is there");
    deferred = settlement;
  }
  const connected = {
    ...connection,
    call,
    defer,
    settle: (settlement: Settlement) => settle(call, settlement, connection.facts()?.partitions),
    nowMs: () => clock.nowMs,
  };
  const nowMs = options.clock === "redis" ? undefined : () => clock.nowMs;
  const store = createStore(connected, nowMs);
  const sweeps = createSweeps(connected, () => 90_000, nowMs);

  /** A key with limits far away and 1000 credits, on a fresh account unless one is given. */
  async function givenKey(
    wanted: Partial<Limits> & {
      credits?: number;
      tier?: string;
      accountId?: string;
      partition?: number;
      expiresAtMs?: number;
      ownLimits?: boolean;
    } = {},
  ): Promise<KeyRef> {
    const {
      tier = "standard",
      credits = wanted.accountId ? 0 : 1000,
      expiresAtMs,
      ownLimits = true,
    } = wanted;
    const { rateLimit, maxConcurrent, dailyLimit } = { ...(ownLimits ? WIDE : {}), ...wanted };
    const key = keyRef(randomId("key"), wanted.accountId ?? randomId("acc"), wanted.partition ?? partition);
    const { keys, references } = accountNames(key.partition, key.accountId);
    const limits = Object.entries({ rateLimit, maxConcurrent, dailyLimit }).filter(
      ([, limit]) => limit !== undefined,
    );
    const record = ["tier", tier, ...limitFields(Object.fromEntries(limits))];
    if (expiresAtMs !== undefined) record.push("expires_at", String(expiresAtMs));
    const { names } = key;
    const { accounts } = partitionNames(key.partition);
    await connection.scripts.issue(
      [names.key, names.account, keys, accounts, names.ledger, references],
      [now(), "", key.keyId, key.accountId, credits, `key:${key.keyId}`, ...record],
    );
    return key;
  }

  /** A generation of this key that nobody has asked for yet. */
  function request(key: KeyRef, wanted: Partial<Generation> = {}): Generation {
    const endpoint = ENDPOINT;
    const requestId = randomId("req");
    return { requestId, key, price: 10, endpoint, holdMs: HOLD_MS, retentionMs: RETENTION_MS, ...wanted };
  }

  /** The calls that an operation would make, none of which is made, and the settlement kept for later, if one is. */
  async function unsent(operation: () => Promise<unknown>) {
    noted = [];
    deferred = undefined;
    await operation().catch(() => undefined);
    const result = { calls: noted, deferred: deferred as Settlement | undefined };
    noted = undefined;
    return result;
  }

  /** A call on its way, that arrives whenever `arrive` says. */
  async function onItsWay(operation: () => Promise<unknown>): Promise<ScriptCall> {
    const { calls } = await unsent(operation);
    if (!calls[0]) throw new Error("the operation made no call");
    return calls[0];
  }

  /** Runs one call at the clock's time now. */
  async function arrive({ verb, keys, args }: ScriptCall): Promise<Reply> {
    return call(verb, keys, [now(), ...args.slice(1)]);
  }

  /** Runs several calls of one verb as the items of one, at the clock's time now. */
  async function arriveTogether(calls: readonly ScriptCall[]): Promise<(Reply | Error)[]> {
    const { verb } = calls[0]!;
    const items = calls.map(({ keys, args }) => ({ keys, args: [now(), ...args.slice(1)] }));
    const answers = await scripts.batch(verb, items);
    for (const reply of answers) if (!(reply instanceof Error)) options.seen?.(verb, reply);
    return answers;
  }

  function voiding(generation: Generation, reason: "refused" | "due" | "unsent"): ScriptCall {
    const keys = voidKeys(generation.key, generation.requestId, generation.idempotency?.digest);
    return {
      verb: "void",
      keys,
      args: [now(), packTiers(tiers), generation.requestId, reason, TOMBSTONE_MS],
    };
  }

  return {
    connection,
    redis,
    tiers,
    partition,
    clock,
    store,
    sweeps,
    givenKey,
    request,
    unsent,
    onItsWay,
    arrive,
    arriveTogether,
    /** VOID, whatever the reason; answers its outcome. */
    async void(generation: Generation, reason: "refused" | "due" | "unsent"): Promise<string> {
      return String((await arrive(voiding(generation, reason)))[0]);
    },
    voiding,
    admit: (generation: Generation) => store.admit(generation, tiers),
    bind: (generation: Generation, taskId = taskOf(generation), data = DATA) =>
      store.bind(generation, newTask(taskId, { data }), tiers),
    /** Admits and binds; answers the task as a poll finds it. */
    async givenTask(
      generation: Generation,
      taskId = taskOf(generation),
      more: Partial<NewTask> = {},
    ): Promise<KnownTask> {
      const admission = await store.admit(generation, tiers);
      if (admission.outcome !== "admitted") throw new Error(`not admitted: ${admission.outcome}`);
      await store.bind(generation, newTask(taskId, more), tiers);
      return known(generation, taskId);
    },
    observe(
      generation: Generation,
      status: Parameters<typeof store.observe>[1]["status"],
      more: { data?: string; refundFailed?: boolean; poller?: KeyRef; taskId?: string } = {},
    ) {
      const { data = `{"status":"${status}"}`, taskId = taskOf(generation), ...rest } = more;
      const { accountId, partition } = generation.key;
      return store.observe(
        { partition, accountId, task: known(generation, taskId) },
        { status, data },
        { refundFailed: true, pollMs: POLL_MS, maxAgeMs: MAX_AGE_MS, tiers, ...rest },
      );
    },
    async recharge(key: KeyRef, amount: number | string, reference: string): Promise<Reply> {
      const { account, references } = accountNames(key.partition, key.accountId);
      return call(
        "recharge",
        [account, key.names.ledger, references],
        [now(), "", key.accountId, amount, reference],
      );
    },
    credits: (key: KeyRef) => store.credits(key, tiers),
    /** What is held of an account's balance, as it is stored. */
    held: async (key: KeyRef) => Number(await redis.hget(key.names.account, "held")),
    requestRecord: ({ requestId, key }: Generation) => redis.hgetall(requestName(key.partition, requestId)),
    /** The raw replies since the last time. */
    replies(): Reply[] {
      const taken = replies;
      replies = [];
      return taken;
    },
    /** Everything stored in the stage's partition: name to serialised value and expiry. */
    async everything(): Promise<Record<string, string>> {
      const tag = partitionNames(partition).done.slice(0, -"done".length);
      const names = await redis.keys(`${tag}*`);
      const entries = names.sort().map(async (name) => {
        const [value, expiry] = await Promise.all([redis.dumpBuffer(name), redis.pexpiretime(name)]);
        return [name, `${value?.toString("base64")} ${expiry}`] as const;
      });
      return Object.fromEntries(await Promise.all(entries));
    },
  };
}

const WIDE = { rateLimit: 1000, maxConcurrent: 1000, dailyLimit: 1000 };
/** As the store sends it. */
const TOMBSTONE_MS = 3_600_000;
/** What a generation's answer carries. */
export const DATA = '{"task_id":"t","status":"pending"}';

/** What BIND says of a task. */
export const newTask = (taskId: string, more: Partial<NewTask> = {}): NewTask => ({
  taskId,
  data: DATA,
  pollMs: POLL_MS,
  maxAgeMs: MAX_AGE_MS,
  upstream: UPSTREAM,
  ...more,
});

/** The task id that a generation gets where a test names none. */
export const taskOf = ({ requestId }: Generation): string => `task_${requestId}`;

export function known(generation: Generation, taskId = taskOf(generation)): KnownTask {
  const { requestId, key } = generation;
  const unseen = { fresh: false, status: "", data: "", createdAtMs: 0, ageMs: 0 };
  const fixed = { maxAgeMs: undefined, upstream: undefined };
  return { taskId, requestId, creatorKeyId: key.keyId, ...unseen, ...fixed };
}

export const times = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, index) => make(index));

/** How many of these ended with this outcome. */
export const count = (results: readonly { outcome: string }[], outcome: string): number =>
  results.filter((result) => result.outcome === outcome).length;
