import type { Redis } from "ioredis";
import { FairGate } from "../domain/fair-gate.ts";
import { clockOf } from "../scripts/holds.ts";
import type { Item, Reply, Run, Script, ScriptFile } from "../scripts/script-definition.ts";
import { madeOnce } from "../telemetry/metrics/series.ts";
import { type CallErrorOptions, type CallErrors, createCallErrors } from "./call-errors.ts";
import type { Deadlines } from "./deadlines.ts";
import { hasMoved, isMoving, onceMoved } from "./script-errors.ts";
import { itemOf, type ScriptForm, type ScriptRunner } from "./script-runner.ts";
import { type FrozenPartitions, frozenError } from "./topology/frozen-partitions.ts";

/** Calls under way, as items of batches: about 20 ms of Redis's time, and 12,000 a second at a round trip of 20 ms. */
const UNDER_WAY_MAX = 256;
const WAITING_MAX = 10_000;
const WAITING_PER_OWNER_MAX = 500;
/** Calls that have not waited for a place have no owner. */
const NOBODY = "";

interface Sender {
  send<Call, Result>(script: Script<Call, Result>, call: Call, item: Item): Promise<Result>;
}

interface CallOptions extends CallErrorOptions {
  redis: Redis;
  scripts: ScriptRunner;
  breaker: { readonly isOpen: boolean; trip(why: string): void };
  deadlines: Deadlines;
  clock: StoreClock;
  form: Readonly<ScriptForm>;
  /** The primary that has a name now. Asks for the placement first, if this one should have it. */
  ownerNow(name: string): Promise<Sender>;
  frozen: Pick<FrozenPartitions, "isEmpty" | "has" | "hasName" | "refuses" | "refusesRead">;
}

/** The calls of requests to one primary: behind the breaker, in fair order, batched per tick, timed. */
export function createCalls(options: CallOptions) {
  const { redis, breaker, deadlines } = options;
  const errors = createCallErrors(options);
  const gate = createGate(options);

  /** @throws GatewayError at once while the breaker is open, or the partition is left alone */
  function requireUsable(partition?: number): void {
    const { frozen } = options;
    if (partition !== undefined && !frozen.isEmpty && frozen.has(partition)) throw frozenError();
    if (breaker.isOpen) throw errors.unavailable("open");
  }

  async function command<T>(run: (redis: Redis) => Promise<T>): Promise<T> {
    requireUsable();
    gate.occupy(NOBODY);
    try {
      return await onceMoved(() => deadlines.within(run(redis)));
    } catch (error) {
      throw errors.failed(error);
    } finally {
      gate.leave(NOBODY);
    }
  }

  return {
    ...createScriptCalls(options, gate, errors),
    command,
    requireUsable,
    /** Requests wait in it, before they call, while too many calls are under way. */
    queue: {
      isFull: (): boolean => gate.isFull(),
      /** Waits for this owner's turn; the call must follow at once. @throws GatewayError */
      async wait(owner: string): Promise<void> {
        const refusal = await gate.wait(owner);
        if (refusal) throw errors.notAdmitted(refusal);
        gate.vacate(owner);
      },
    },
    rejectWaiting: (): void => gate.refuseWaiting(),
  };
}

function createScriptCalls(
  options: CallOptions,
  gate: FairGate,
  { unavailable, frozen, failed }: CallErrors,
): Sender & { run: Run } {
  const { breaker, clock } = options;
  const timed = createTimedSend(options, gate);
  const batched = createBatcher({
    send: timed,
    sendAgain(script, items) {
      for (const _ of items) gate.occupy(NOBODY);
      return timed(script, items);
    },
    form: options.form,
  });

  function attempt<Call, Result>(
    script: Script<Call, Result>,
    call: Call,
    item: Item,
    recover: Recover,
  ): Promise<Result> {
    if (breaker.isOpen) return Promise.reject(unavailable("open"));
    if (!options.frozen.isEmpty && options.frozen.hasName(item.keys[0]!)) return Promise.reject(frozen());
    gate.occupy(NOBODY);
    if (script.isBatched) return batched(script, call, item, recover);
    return timed(script, [item]).then(
      ([reply]) => script.read(reply as Reply, call),
      (error: unknown) => recover(script, call, item, error),
    );
  }

  const send: Sender["send"] = (script, call, item) =>
    attempt(script, call, item, (_script, _call, _item, error) => Promise.reject(failed(error, item)));

  /** An item whose partition has moved meanwhile is sent once more, to the primary that has it now. */
  const sendToOwner: Recover = async (script, call, item, cause) => {
    const error = failed(cause, item);
    if (!hasMoved(cause)) throw error;
    const [name] = item.keys as [string];
    const owner = await options.ownerNow(name);
    if (owner.send !== send) return owner.send(script, call, item);
    // Nobody names another primary: the slot is on its way.
    throw options.frozen.refuses(name, cause) ? frozen(cause) : error;
  };

  return {
    send,
    run: (script, call) => attempt(script, call, itemOf(script, call, clock.argument()), sendToOwner),
  };
}

function createTimedSend({ scripts, clock, metrics }: CallOptions, gate: FairGate): ScriptRunner["send"] {
  const secondsOf = madeOnce((script) => metrics.storeSeconds.of({ script }));
  return async (script, items) => {
    const startedMs = performance.now();
    try {
      const replies = await scripts.send(script, items);
      const first = replies.find((reply) => Array.isArray(reply));
      if (script.isBatched && first) clock.learn(clockOf(first), performance.timeOrigin + startedMs);
      return replies;
    } finally {
      gate.leave(NOBODY, items.length);
      secondsOf(script.name).add((performance.now() - startedMs) / 1000);
    }
  };
}

/** Redis's replies are never late because of our own queue. Settlements count, but do not wait. Decision 0020. */
const createGate = ({ deadlines, metrics }: CallOptions): FairGate =>
  new FairGate({
    inFlightMax: UNDER_WAY_MAX,
    waitingMax: WAITING_MAX,
    waitingPerOwnerMax: WAITING_PER_OWNER_MAX,
    waitLimit: deadlines,
    observer: { waiting: (change) => metrics.storeWaiting.inc(change) },
  });

/** More items wait for the next call, so that no call blocks Redis for long. */
const ITEMS_MAX = 32;

export type Recover = <Call, Result>(
  script: Script<Call, Result>,
  call: Call,
  item: Item,
  error: unknown,
) => Promise<Result>;

interface RedisCall {
  call: unknown;
  item: Item;
  recover: Recover;
  resolve(result: unknown): void;
  reject(error: unknown): void;
}

type AnyScript = Script<unknown, unknown>;

interface Batch {
  script: AnyScript;
  shared: Item["shared"];
  /** The hash tag that all names of the call share; undefined where they need not. */
  tag: string | undefined;
  waiting: RedisCall[];
}

/**
 * One call per script and tick. If Redis refuses a call for its first item's slot, each partition's items are sent again. Decisions 0020, 0042.
 * @param options.sendAgain the same for items of a failed call @param options.form whether a call's names share a hash tag
 */
export function createBatcher(options: {
  send(script: ScriptFile, items: readonly Item[]): Promise<(Reply | Error)[]>;
  sendAgain(script: ScriptFile, items: readonly Item[]): Promise<(Reply | Error)[]>;
  form: Readonly<ScriptForm>;
}) {
  const { form } = options;
  let open: Batch[] = [];

  function flush(): void {
    const batches = open;
    open = [];
    for (const batch of batches) void run(batch, options.send);
  }

  async function run(batch: Batch, send: typeof options.send): Promise<void> {
    const { script, waiting } = batch;
    try {
      const replies = await send(
        script,
        waiting.map(({ item }) => item),
      );
      waiting.forEach((one, at) => {
        settle(script, one, replies[at]!);
      });
    } catch (error) {
      const parts = hasMoved(error) || isMoving(error) ? byPartition(batch) : [];
      if (parts.length > 1) for (const part of parts) void run(part, options.sendAgain);
      else for (const one of waiting) fail(script, one, error);
    }
  }

  function batchFor(script: AnyScript, item: Item): Batch {
    const tag = form.checksFrozen && !form.crossesSlots ? hashTag(item.keys[0]!) : undefined;
    for (const batch of open)
      if (batch.script === script && batch.tag === tag && hasRoomFor(item, batch)) return batch;
    if (open.length === 0) setImmediate(flush);
    const batch = { script, shared: item.shared, tag, waiting: [] };
    open.push(batch);
    return batch;
  }

  return <Call, Result>(
    script: Script<Call, Result>,
    call: Call,
    item: Item,
    recover: Recover,
  ): Promise<Result> =>
    new Promise((resolve, reject) => {
      batchFor(script as AnyScript, item).waiting.push({ call, item, recover, resolve, reject } as RedisCall);
    });
}

function settle(script: AnyScript, waiting: RedisCall, reply: Reply | Error): void {
  try {
    if (reply instanceof Error) fail(script, waiting, reply);
    else waiting.resolve(script.read(reply, waiting.call));
  } catch (error) {
    waiting.reject(error);
  }
}

function fail(script: AnyScript, { call, item, recover, resolve }: RedisCall, error: unknown): void {
  resolve(recover(script, call, item, error));
}

const hasRoomFor = (item: Item, { shared, waiting }: Batch): boolean =>
  shared[0] === item.shared[0] && shared[1] === item.shared[1] && waiting.length < ITEMS_MAX;

/** Splits a batch into one for each partition that it has items of; nothing for a batch of one partition. */
function byPartition({ script, shared, tag, waiting }: Batch): Batch[] {
  if (tag !== undefined) return [];
  const parts = Map.groupBy(waiting, ({ item }) => hashTag(item.keys[0]!));
  return [...parts].map(([own, some]) => ({ script, shared, tag: own, waiting: some }));
}

const hashTag = (name: string): string => name.slice(0, name.indexOf("}"));

/** A hint for `not_after` and reports; scripts read the store's own. @param testNowMs for tests, also in the scripts, Unix ms */
export function createStoreClock(testNowMs?: () => number) {
  /** Redis time minus this process's monotonic clock. */
  let offsetMs = 0;

  return {
    nowMs: (): number => testNowMs?.() ?? Math.floor(monotonicMs() + offsetMs),
    /** The first ARGV of a script: empty for the store's own clock. */
    argument: (): string => (testNowMs ? String(testNowMs()) : ""),
    /** A reply that was read late does not set the clock back. @param sentAtMs by `monotonicMs` */
    learn(storeNowMs: number, sentAtMs: number): void {
      offsetMs = Math.min(storeNowMs - sentAtMs, Math.max(storeNowMs - monotonicMs(), offsetMs));
    },
  };
}

export type StoreClock = ReturnType<typeof createStoreClock>;

/** Unix ms by a clock that never steps. */
export const monotonicMs = (): number => performance.timeOrigin + performance.now();
