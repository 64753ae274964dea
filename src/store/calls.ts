import type { Redis } from "ioredis";
import { GatewayError } from "../domain/errors.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { createBatcher } from "./batcher.ts";
import type { Breaker } from "./breaker.ts";
import type { StoreClock } from "./clock.ts";
import { type Deadlines, TIMED_OUT } from "./deadlines.ts";
import { createFairQueue } from "./fair-queue.ts";
import { type FrozenPartitions, frozenError } from "./frozen-partitions.ts";
import { isMoving, onceMoved } from "./moving-slots.ts";
import { inStoreWords } from "./reasons.ts";
import { clockOf, type Item, itemOf, type Reply, type Run, type ScriptFile } from "./script-definition.ts";
import { isRefusedByStore } from "./script-errors.ts";
import type { ScriptRunner } from "./script-runner.ts";

const RETRY_AFTER_SECONDS = 2;
/** A store that refuses every call is logged this often, not once per request. */
const REFUSED_LOG_EVERY_MS = 10_000;

interface CallOptions {
  redis: Redis;
  scripts: ScriptRunner;
  breaker: Pick<Breaker, "isOpen" | "trip">;
  deadlines: Deadlines;
  clock: StoreClock;
  clustered(): boolean;
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
  const queue = createFairQueue({
    deadlines,
    changed: options.waitingChanged,
    refused(why) {
      metrics.storeFailures.inc({ reason: "overloaded" });
      return new GatewayError("overloaded", why, { retryAfterSeconds: 1 });
    },
  });
  const batched = createBatcher({ send: timed, failure: failed, clustered: options.clustered });

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

  /** Runs one script. */
  const run: Run = (script, call) =>
    send(script, itemOf(script, call, clock.argument())).then((reply) => script.read(reply, call));

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
    command,
    requireUsable,
    queue,
    rejectWaiting: () => queue.rejectAll(() => unavailable("open")),
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
