import { randomUUID } from "node:crypto";
import type { Tiers } from "../core/limits.ts";
import { endedTask } from "../core/tasks.ts";
import type { Store } from "../store/operations.ts";
import type { OpenRequest, Sweeps } from "../store/sweeps.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { Upstream } from "../upstream/upstream.ts";

const BATCH = 50;
/** Requests of the sweeper to the upstream at a time: abandoned tasks must not crowd out live traffic. */
const POLLS_MAX = 4;
const COLLECT_EVERY_ROUNDS = 60;
const BACKOFF_MAX_MS = 5 * 60_000;

export interface SweeperOptions {
  store: Store;
  sweeps: Sweeps;
  upstream: Upstream;
  metrics: Metrics;
  log: Logger;
  settings(): {
    tiers: Tiers;
    tasks: {
      refundFailed: boolean;
      maxAgeMs: number;
      sweepIntervalMs: number;
      pollIntervalMs: number;
      retentionMs: number;
    };
  };
}

/**
 * Ends what nobody else ends: holds past their due time are voided, bound tasks that no client polls are asked for,
 * and too old ones are given up. Every gateway runs one; CLAIM keeps two from doing the same.
 */
export function createSweeper(options: SweeperOptions) {
  const { sweeps, metrics, log, settings } = options;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  let round = 0;
  let current: Promise<void> = Promise.resolve();

  async function sweep(): Promise<void> {
    const startedMs = performance.now();
    round++;
    const partitions = sweeps.partitions();
    // Each gateway begins somewhere else, so that they do not queue up behind each other.
    const first = Math.floor(Math.random() * partitions);
    for (let at = 0; at < partitions && !stopped; at++) {
      const partition = (first + at) % partitions;
      await sweepPartition(partition);
      if (round % COLLECT_EVERY_ROUNDS === 1) await collect(partition);
    }
    metrics.sweepLagSeconds.set((performance.now() - startedMs) / 1000);
  }

  async function sweepPartition(partition: number): Promise<void> {
    for (;;) {
      const { nowMs, requests } = await sweeps.claim(partition, BATCH);
      for (let at = 0; at < requests.length && !stopped; at += POLLS_MAX) {
        await Promise.all(requests.slice(at, at + POLLS_MAX).map((request) => end(request, nowMs)));
      }
      if (requests.length < BATCH || stopped) return;
    }
  }

  async function end(request: OpenRequest, nowMs: number): Promise<void> {
    const kind = request.state === "held" ? "hold" : "task";
    const outcome = request.state === "held" ? await voidHold(request) : await askFor(request, nowMs);
    metrics.sweeps.inc({ kind, outcome });
  }

  async function voidHold(request: OpenRequest): Promise<string> {
    const outcome = await sweeps.voidDue(request, settings().tiers);
    if (outcome === "void") {
      log.warn(
        { request_id: request.requestId, account_id: request.accountId },
        "hold ended: its outcome stayed unknown",
      );
    }
    return outcome;
  }

  async function askFor(request: OpenRequest, nowMs: number): Promise<string> {
    const { refundFailed, maxAgeMs, pollIntervalMs } = settings().tasks;
    const { taskId, accountId, partition, requestId, creatorKeyId, boundAtMs } = request;
    const task = {
      taskId,
      requestId,
      creatorKeyId,
      fresh: false,
      status: "",
      data: "",
      createdAtMs: boundAtMs,
    };
    const ageMs = nowMs - boundAtMs;
    const tell = async (status: Parameters<Store["observe"]>[1]["status"], data: string): Promise<string> => {
      // The older a task, the rarer the questions: a tenth of its age, with jitter.
      const pollMs = Math.round(
        Math.min(BACKOFF_MAX_MS, Math.max(pollIntervalMs, ageMs / 10)) * (0.9 + Math.random() / 5),
      );
      const { outcome } = await options.store.observe(
        { partition, accountId, task },
        { status, data },
        { refundFailed, pollMs, tiers: settings().tiers },
      );
      if (outcome === "finished" && (status === "gone" || status === "expired")) {
        log.warn(
          { request_id: requestId, task_id: taskId, account_id: accountId },
          `task ended as failed: ${status}`,
        );
      }
      return outcome === "observed" && status === "gone" ? "gone" : outcome;
    };
    if (ageMs >= maxAgeMs) return tell("expired", endedTask(taskId, boundAtMs));
    const said = await options.upstream.poll(taskId, `sweep_${randomUUID()}`);
    if (said.outcome === "task") return tell(said.status, said.data);
    if (said.outcome === "gone") return tell("gone", endedTask(taskId, boundAtMs));
    // Its claim's lease is the pause before the next try.
    return said.outcome;
  }

  async function collect(partition: number): Promise<void> {
    const collected = await sweeps.collect(partition, settings().tasks.retentionMs, BATCH);
    if (collected > 0) metrics.sweeps.inc({ kind: "collected", outcome: "collected" }, collected);
  }

  const schedule = (): void => {
    if (stopped) return;
    timer = setTimeout(() => {
      current = sweep()
        .catch((error: unknown) => log.debug({ err: error }, "sweep interrupted"))
        .finally(schedule);
    }, settings().tasks.sweepIntervalMs);
  };

  return {
    start: schedule,
    /** One complete round now; for tests and tools. */
    sweep,
    async stop(): Promise<void> {
      stopped = true;
      clearTimeout(timer);
      await current;
    },
  };
}
