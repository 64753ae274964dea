import { randomBytes, randomInt } from "node:crypto";
import { inject } from "vitest";
import type { Limits, Tiers } from "../../src/domain/limits.ts";
import { createSettlements, type SettlementOptions } from "../../src/durability/deferred-settlements.ts";
import type { Settlement } from "../../src/durability/outbox/outbox-queues.ts";
import { createSettlementCounts } from "../../src/durability/settlement-results.ts";
import { createTaskIds } from "../../src/durability/task-ids.ts";
import { cliActor } from "../../src/records/actor.ts";
import type { GrantKind } from "../../src/records/ledger-entries.ts";
import { type KeyRef, keyRef, partitionNames, requestName } from "../../src/records/names.ts";
import { type Connection, createConnection } from "../../src/redis/connection.ts";
import type { Primary } from "../../src/redis/primary.ts";
import { itemOf, type ScriptRunner, scriptsOf } from "../../src/redis/script-runner.ts";
import { account } from "../../src/scripts/accounts.ts";
import {
  type AdjustCall,
  adjust,
  type RefundCall,
  type ReverseCall,
  recharge,
  refund,
  reverse,
} from "../../src/scripts/credit-changes.ts";
import {
  type BindCall,
  type Binding,
  bind,
  type Generation,
  type NewTask,
  packTiers,
} from "../../src/scripts/holds.ts";
import { gatherAll, issue } from "../../src/scripts/keys.ts";
import type { Item, Reply, Run, ScriptFile } from "../../src/scripts/script-definition.ts";
import { type KnownTask, type ReclaimCall, reclaim } from "../../src/scripts/tasks.ts";
import { type VoidCall, voidHold } from "../../src/scripts/uncharged-holds.ts";
import { createHolds } from "../../src/settlement/holds.ts";
import { createStore } from "../../src/settlement/store.ts";
import { createSweeps } from "../../src/settlement/sweeps.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";
import { accountIn } from "./account-money.ts";
import { inMemory } from "./memory-journal.ts";
import { readRequest } from "./stored-requests.ts";

export const TIERS: Tiers = {
  standard: { rate_limit: 20, max_concurrent: 3, daily_limit: 500 },
  enterprise: { rate_limit: 100, max_concurrent: 10, daily_limit: 10_000 },
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

/** One call of one script, as an operation of the store makes it. */
export interface ScriptCall {
  script: ScriptFile;
  item: Item;
}

/** A connection to one server, with all that its only primary has. */
export type TestConnection = ReturnType<typeof onOneServer>;

/** @param changes what tests replace of the primary */
export function onOneServer(connection: Connection, changes?: Partial<Primary>) {
  const only = connection.of(0);
  // Settlements know a primary by its object.
  const primary: Primary = changes ? { ...only, ...changes } : only;
  return {
    ...primary,
    ...connection,
    of: (): Primary => primary,
    ofName: (): Primary => primary,
    primaries: (): readonly Primary[] => [primary],
    nowMs: primary.nowMs,
  };
}

/** A usable connection to the run's Redis, or another; whoever opens it closes it. */
export async function openConnection(redisUrl = inject("redisUrl"), commandTimeoutMs = 10_000) {
  const log = createLogger("silent");
  const connection = createConnection({
    redisUrl,
    commandTimeoutMs,
    partitions: 64,
    allowNoPersistence: true,
    log,
    metrics: createMetrics(),
  });
  await connection.usable();
  return onOneServer(connection);
}

/** All operations of the store on a connection, as a gateway has them. */
export function openStore(connection: Connection, options: Partial<SettlementOptions> = {}) {
  const settlements = createSettlements(connection, { log: createLogger("silent"), ...inMemory, ...options });
  return { ...createStore(connection), ...createHolds(connection, settlements), settlements };
}

export const randomId = (prefix: string): string => `${prefix}_${randomBytes(9).toString("hex")}`;

export type Stage = ReturnType<typeof createStage>;

interface StageOptions {
  /** May be mutants. */
  scripts?: ScriptRunner;
  tiers?: Tiers;
  /** Leaves the time to Redis TIME. */
  clock?: "redis";
  partition?: number;
  seen?: (script: string, reply: Reply) => void;
}

/** The base that the parts of a stage share. */
interface StageBase {
  connection: TestConnection;
  redis: TestConnection["redis"];
  scripts: ScriptRunner;
  tiers: Tiers;
  partition: number;
  clock: { nowMs: number };
  /** The time as calls carry it; empty for Redis TIME. */
  now(): string;
  /** The clock that operations take; none for Redis TIME. */
  nowMs: (() => number) | undefined;
  seen(script: string, reply: Reply): void;
}

/**
 * The store's operations over a partition of this stage's own, with a clock that only the test moves.
 */
export function createStage(connection: TestConnection, options: StageOptions = {}) {
  const { redis } = connection;
  const clock = { nowMs: NOON_MS };
  const ofRedis = options.clock === "redis";
  const base: StageBase = {
    connection,
    redis,
    scripts: options.scripts ?? scriptsOf(redis),
    tiers: options.tiers ?? TIERS,
    partition: options.partition ?? randomInt(PARTITION_MIN, 2 ** 40),
    clock,
    now: () => (ofRedis ? "" : String(clock.nowMs)),
    nowMs: ofRedis ? undefined : () => clock.nowMs,
    seen: options.seen ?? (() => undefined),
  };
  const calls = stageCalls(base);
  const { send, run, defer, ...callsOfTests } = calls;
  const connected = onOneServer(connection, { run, nowMs: () => clock.nowMs });
  const settlements = { defer, ...createSettlementCounts(connection.metrics) };
  const store = { ...createStore(connected), ...createHolds(connected, settlements) };
  const { tiers, partition } = base;
  return {
    connection,
    redis,
    scripts: base.scripts,
    tiers,
    partition,
    clock,
    store,
    sweeps: createSweeps(connected, () => 90_000, base.nowMs),
    ...stageKeys(base),
    ...callsOfTests,
    ...stageVoids(base, calls.arrive),
    ...stageOperations(base, store, send),
    ...stageReads(base),
    /** Sends what was kept for later; answers its outcome. */
    settle: async ({ script, call }: Settlement): Promise<string> =>
      script === "bind" ? createTaskIds(connected).bind(call) : (await run(voidHold, call)).outcome,
  };
}

/** The way to the scripts, which notes calls instead of making them while a test wants it so. */
function stageCalls({ scripts, tiers, now, seen }: StageBase) {
  let replies: Reply[] = [];
  /** While set, calls are noted instead of made. */
  let noted: ScriptCall[] | undefined;
  let deferred: Settlement | undefined;

  /** Sends one item, or notes it. */
  async function send(script: ScriptFile, item: Item): Promise<Reply> {
    if (noted) {
      noted.push({ script, item });
      throw new Error("no answer came");
    }
    const [reply] = await scripts.send(script, [item]);
    if (reply instanceof Error) throw reply;
    seen(script.name, reply!);
    replies.push(reply!);
    return reply!;
  }
  const run: Run = async (script, call) => script.read(await send(script, itemOf(script, call, now())), call);
  async function defer(settlement: Settlement): Promise<void> {
    if (!noted) throw new Error("a settlement was deferred though the store is there");
    deferred = settlement;
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

  /** Items of one call have the same tiers, also where one of them reads none. */
  const arriving = ({ shared, ...item }: Item): Item => ({
    ...item,
    shared: shared.length === 1 ? [now()] : [now(), packTiers(tiers)],
  });

  /** Runs one call at the clock's time now. */
  const arrive = ({ script, item }: ScriptCall): Promise<Reply> => send(script, arriving(item));

  /** Runs several calls of one script as the items of one, at the clock's time now. */
  async function arriveTogether(calls: readonly ScriptCall[]): Promise<(Reply | Error)[]> {
    const { script } = calls[0]!;
    const items = calls.map(({ item }) => arriving(item));
    const answers = await scripts.send(script, items);
    for (const reply of answers) if (!(reply instanceof Error)) seen(script.name, reply);
    return answers;
  }

  /** The raw replies since the last time. */
  function takeReplies(): Reply[] {
    const taken = replies;
    replies = [];
    return taken;
  }

  return { send, run, defer, unsent, onItsWay, arrive, arriveTogether, replies: takeReplies };
}

/** Keys, and generations of theirs that nobody has asked for yet. */
function stageKeys({ redis, partition, now }: StageBase) {
  return {
    /** A key with limits far away and 1000 credits, on a fresh account unless one is given. */
    async givenKey(
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
      const { rate_limit, max_concurrent, daily_limit } = { ...(ownLimits ? WIDE : {}), ...wanted };
      const key = keyRef(randomId("key"), wanted.accountId ?? randomId("acc"), wanted.partition ?? partition);
      const limits = Object.fromEntries(
        Object.entries({ rate_limit, max_concurrent, daily_limit }).filter(
          ([, limit]) => limit !== undefined,
        ),
      );
      const digest = key.keyId;
      const actor = cliActor();
      const call = { key, tier, digest, limits, expiresAtMs, credits, reference: `key:${key.keyId}`, actor };
      await scriptsOf(redis).send(issue, [itemOf(issue, call, now())]);
      return key;
    },
    request(key: KeyRef, wanted: Partial<Generation> = {}): Generation {
      const endpoint = ENDPOINT;
      const requestId = randomId("req");
      return { requestId, key, price: 10, endpoint, holdMs: HOLD_MS, retentionMs: RETENTION_MS, ...wanted };
    },
  };
}

function stageVoids({ tiers, now }: StageBase, arrive: (call: ScriptCall) => Promise<Reply>) {
  function voiding(generation: Generation, reason: VoidCall["reason"]): ScriptCall {
    const { key, requestId, idempotency } = generation;
    const call = { key, requestId, idempotencyDigest: idempotency?.digest, reason, tiers };
    return { script: voidHold, item: itemOf(voidHold, call, now()) };
  }
  return {
    voiding,
    /** VOID, whatever the reason; answers its outcome. */
    async void(generation: Generation, reason: VoidCall["reason"]): Promise<string> {
      return String((await arrive(voiding(generation, reason)))[0]);
    },
  };
}

/** Operations of the store with what tests leave out. */
function stageOperations(
  { tiers, now }: StageBase,
  store: ReturnType<typeof createStore> & ReturnType<typeof createHolds>,
  send: (script: ScriptFile, item: Item) => Promise<Reply>,
) {
  return {
    admit: (generation: Generation) => store.admit(generation, tiers),
    bind: (generation: Generation, taskId = taskOf(generation), data = DATA) =>
      store.bind(generation, newTask(taskId, { data })),
    /** Admits and binds; answers the task as a poll finds it. */
    async givenTask(
      generation: Generation,
      taskId = taskOf(generation),
      more: Partial<NewTask> = {},
    ): Promise<KnownTask> {
      const admission = await store.admit(generation, tiers);
      if (admission.outcome !== "admitted") throw new Error(`not admitted: ${admission.outcome}`);
      await store.bind(generation, newTask(taskId, more));
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
    /** Answers RECHARGE's reply as it is. */
    async recharge(
      { partition, accountId }: KeyRef,
      amount: number,
      reference: string,
      lookedUp = 0,
      kind: GrantKind = "purchase",
    ): Promise<Reply> {
      const call = { actor: cliActor(), partition, accountId, amount, reference, kind, lookedUp };
      return send(recharge, itemOf(recharge, call, now()));
    },
    /** Answers ADJUST's reply as it is. */
    adjust: (call: AdjustCall): Promise<Reply> => send(adjust, itemOf(adjust, call, now())),
    /** Answers REVERSE's reply as it is. */
    reverse: (call: ReverseCall): Promise<Reply> => send(reverse, itemOf(reverse, call, now())),
    /** Answers REFUND's reply as it is. */
    refund: (call: RefundCall): Promise<Reply> => send(refund, itemOf(refund, call, now())),
    reclaim: (call: ReclaimCall): Promise<Reply> => send(reclaim, itemOf(reclaim, call, now())),
    credits: (key: KeyRef) => store.credits(key, tiers),
    /** As above, for a key that must be known. */
    async account(key: KeyRef) {
      const account = await store.credits(key, tiers);
      if (account.outcome !== "known") throw new Error(account.outcome);
      return account;
    },
  };
}

/** Reads records directly, without the scripts. */
function stageReads({ redis, partition }: StageBase) {
  return {
    /** Held credits of an account's balance. */
    held: async (key: KeyRef) => Number((await accountIn(redis, key.names.account)).held),
    requestRecord: ({ requestId, key }: Generation) =>
      readRequest(redis, requestName(key.partition, requestId)),
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

const WIDE = { rate_limit: 1000, max_concurrent: 1000, daily_limit: 1000 };
/** Data of a generation's answer. */
export const DATA = '{"task_id":"t","status":"pending"}';

/** The arguments of BIND about a task. */
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

/** BIND as one script call, without a store's claims. */
export const bindBy =
  (run: Run) =>
  async (call: BindCall): Promise<Binding> =>
    await run(bind, call);

/** Sets limits over all keys of an account as operators do, with these keys' open slots; undefined removes one. */
export async function setAccountLimits(
  { scripts }: Stage,
  { partition, accountId, keyId }: KeyRef,
  { rate_limit, max_concurrent, daily_limit }: { [Name in keyof Limits]?: number | undefined },
  keyIds: readonly string[] = [keyId],
): Promise<void> {
  const fields = {
    rate_limit: rate_limit ?? null,
    max_concurrent: max_concurrent ?? null,
    daily_limit: daily_limit ?? null,
  };
  const action = "account.patch" as const;
  await scripts.run(account, { partition, accountId, action, actor: cliActor("test"), fields });
  await gatherAll(scripts.run, { partition, accountId, keyIds });
}
