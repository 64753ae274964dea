import type { Redis } from "ioredis";
import { GatewayError } from "../domain/errors.ts";
import {
  clockOf,
  type Item,
  itemOf,
  type Reply,
  type Run,
  type ScriptFile,
} from "../scripts/script-definition.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { createBatcher } from "./batcher.ts";
import type { Breaker } from "./breaker.ts";
import type { StoreClock } from "./clock.ts";
import { type Deadlines, TIMED_OUT } from "./deadlines.ts";
import { createFairQueue } from "./fair-queue.ts";
import { inStoreWords } from "./reasons.ts";
import { isRefusedByStore } from "./script-errors.ts";
import type { ScriptRunner } from "./script-runner.ts";
import { type FrozenPartitions, frozenError } from "./topology/frozen-partitions.ts";
import { hasMoved, isMoving, onceMoved } from "./topology/moving-slots.ts";

const RETRY_AFTER_SECONDS = 2;
/** A store that refuses every call is logged this often, not once per request. */
const REFUSED_LOG_EVERY_MS = 10_000;

/** Sends an item to a primary. */
interface Sender {
  send(script: ScriptFile, item: Item): Promise<Reply>;
}

interface CallOptions {
  redis: Redis;
  scripts: ScriptRunner;
  breaker: Pick<Breaker, "isOpen" | "trip">;
  deadlines: Deadlines;
  clock: StoreClock;
  /** Whether a call has the items of one partition. */
  isApart(): boolean;
  /** The primary that has a name now. Asks for the placement first, if this one should have it. */
  ownerNow(name: string): Promise<Sender>;
  frozen: Pick<FrozenPartitions, "hasName" | "refuses">;
  /** Called with how many requests wait. */
  waitingChanged(waiting: number): void;
  log: Logger;
  metrics: Metrics;
}

/** The calls of requests to one primary: behind the breaker, in fair order, batched per tick, timed. */
export function createCalls(options: CallOptions) {
  const { redis, scripts, breaker, deadlines, clock, metrics } = options;
  const { unavailable, frozen, failed } = createCallErrors(options);
  const sendToOwner = createResending(options, { frozen, isHere: (owner) => owner.send === send });
  const queue = createFairQueue({
    deadlines,
    changed: options.waitingChanged,
    refused(why) {
      metrics.storeFailures.inc({ reason: "overloaded" });
      return new GatewayError("overloaded", why, { retryAfterSeconds: 1 });
    },
  });
  const batched = createBatcher({
    send: timed,
    sendAgain(script, items) {
      for (const _ of items) queue.begun();
      return timed(script, items);
    },
    failure: failed,
    isApart: options.isApart,
  });

  /** One call for the items of a batch; its time is observed once. */
  async function timed(script: ScriptFile, items: readonly Item[]): Promise<(Reply | Error)[]> {
    const startedMs = performance.now();
    try {
      const replies = await scripts.send(script, items);
      const first = replies.find((reply) => Array.isArray(reply));
      if (script.isBatched && first) clock.learn(clockOf(first), performance.timeOrigin + startedMs);
      return replies;
    } finally {
      queue.ended(items.length);
      metrics.storeSeconds.observe({ script: script.name }, (performance.now() - startedMs) / 1000);
    }
  }

  function send(script: ScriptFile, item: Item): Promise<Reply> {
    if (breaker.isOpen()) return Promise.reject(unavailable("open"));
    if (options.frozen.hasName(item.keys[0]!)) return Promise.reject(frozen());
    queue.begun();
    if (script.isBatched) return batched(script, item);
    return timed(script, [item]).then(
      ([reply]) => reply as Reply,
      (error: unknown) => {
        throw failed(error, item);
      },
    );
  }

  /** Runs one script. An item whose partition has moved meanwhile is sent once more, to the primary that has it now. */
  const run: Run = (script, call) => {
    const item = itemOf(script, call, clock.argument());
    return send(script, item).then(
      (reply) => script.read(reply, call),
      async (error: unknown) => script.read(await sendToOwner(script, item, error), call),
    );
  };

  /** Throws at once while the breaker is open. */
  function requireUsable(): void {
    if (breaker.isOpen()) throw unavailable("open");
  }

  /** Runs one plain command under the same breaker. */
  async function command<T>(run: (redis: Redis) => Promise<T>): Promise<T> {
    requireUsable();
    queue.begun();
    try {
      return await onceMoved(() => deadlines.within(run(redis)));
    } catch (error) {
      throw failed(error);
    } finally {
      queue.ended(1);
    }
  }

  /** `queue`: requests wait in it, before they call, while too many calls are under way. */
  return {
    run,
    send,
    command,
    requireUsable,
    queue,
    rejectWaiting: () => queue.rejectAll(() => unavailable("open")),
  };
}

/**
 * @returns sends an item that has failed to the primary that has its partition now
 * @throws the error of the item if nothing has moved
 */
function createResending(
  { ownerNow, frozen: partitions }: CallOptions,
  { frozen, isHere }: { frozen(cause: unknown): GatewayError; isHere(owner: Sender): boolean },
) {
  return async (script: ScriptFile, item: Item, error: unknown): Promise<Reply> => {
    const { cause } = error as Error;
    const [name] = item.keys as [string];
    if (!hasMoved(cause)) throw error;
    const owner = await ownerNow(name);
    if (!isHere(owner)) return owner.send(script, item);
    // Nobody names another primary: the slot is on its way.
    throw partitions.refuses(name, cause) ? frozen(cause) : error;
  };
}

/** Makes the errors of calls, counts them, and opens the breaker where the store may be away. */
function createCallErrors(options: CallOptions) {
  const { breaker, log, metrics } = options;
  let refusedLoggedMs = Number.NEGATIVE_INFINITY;

  function unavailable(reason: string, cause?: unknown): GatewayError {
    metrics.storeFailures.inc({ reason });
    const why = cause === undefined ? "the breaker is open" : inStoreWords(cause);
    return new GatewayError("store_unavailable", `store: ${why}`, {
      cause,
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    });
  }

  function frozen(cause?: unknown): GatewayError {
    metrics.storeFailures.inc({ reason: "frozen" });
    return frozenError(cause);
  }

  /** @param item of the call; without one, it was a plain command */
  function failed(error: unknown, item?: Item): GatewayError {
    // The primary is usable; who has its other partitions goes on.
    if (hasMoved(error)) return unavailable("moved", error);
    if (item && options.frozen.refuses(item.keys[0]!, error)) return frozen(error);
    if (isMoving(error)) return unavailable("moving", error);
    const message = error instanceof Error ? error.message : String(error);
    if (isRefusedByStore(error)) {
      if (performance.now() - refusedLoggedMs > REFUSED_LOG_EVERY_MS) {
        refusedLoggedMs = performance.now();
        log.error({ why: message }, "the store answers, but refuses; see `tollgate doctor`");
      }
      return unavailable("refused", error);
    }
    breaker.trip(inStoreWords(error));
    return unavailable(message === TIMED_OUT ? "timeout" : "connection", error);
  }

  return { unavailable, frozen, failed };
}
