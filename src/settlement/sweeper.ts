import { randomUUID } from "node:crypto";
import type { Tiers } from "../domain/limits.ts";
import { atTick, jittered } from "../redis/repeated-work.ts";
import { nextPollMs } from "../scripts/holds.ts";
import type { OpenRequest } from "../scripts/tasks.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { PollOutcome } from "../upstream/poll-request.ts";
import type { TaskUpstream } from "../upstream/task-upstreams.ts";
import type { Store } from "./store.ts";
import { createSweepLanes, JITTER_SHARE } from "./sweep-lanes.ts";
import type { Sweeps } from "./sweeps.ts";
import { reportEnd, reportPoll } from "./task-reports.ts";
import { type AgingTask, endUnanswered, judge, type Verdict } from "./task-verdict.ts";

const BATCH = 50;
const COLLECT_EVERY_MS = 60_000;
/** Batches of records of a partition that are collected in one round, so that the next round does not wait for them. */
const COLLECT_BATCHES_MAX = 4;
/** A task is polled again after a tenth of its age, and at least every five minutes. */
const AGE_SHARE = 0.1;
/** An upstream that has answered nothing for this share of the maximum age is silent; one is polled for as long before a task ends unanswered. */
const SILENT_SHARE = 0.1;
const POLL_EVERY_MAX_MS = 5 * 60_000;

export interface SweepSettings {
  tiers: Tiers;
  tasks: {
    refundFailed: boolean;
    maxAgeMs: number;
    sweepIntervalMs: number;
    pollIntervalMs: number;
    sweepPollsPerSecond: number;
    retentionMs: number;
  };
}

interface SweeperOptions {
  store: Store;
  sweeps: Sweeps;
  upstreamOf(tag: string | undefined): TaskUpstream;
  metrics: Metrics;
  log: Logger;
  settings(): SweepSettings;
}

/** Voids holds past their due time, polls tasks that no client polls, ends old ones. LEASE gives each request to one gateway. */
export class Sweeper {
  readonly #options: SweeperOptions;
  readonly #polls: ReturnType<typeof createSweepLanes>;
  /** Requests whose poll waits or is under way: a lease may end before a slow upstream has answered. */
  readonly #polling = new Set<string>();
  #cancel = (): void => undefined;
  #current: Promise<void> = Promise.resolve();
  #sweeping = false;
  #stopped = false;
  #collectedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: SweeperOptions) {
    const { upstreamOf, settings } = options;
    this.#options = options;
    this.#polls = createSweepLanes({
      perSecond: () => settings().tasks.sweepPollsPerSecond,
      upstreamName: (tag) => upstreamOf(tag).tag,
      poll: (request, ended) =>
        this.#count("task", this.#pollTask(request, ended)).finally(() =>
          this.#polling.delete(request.requestId),
        ),
    });
  }

  start(): void {
    const { log, settings } = this.#options;
    this.#cancel();
    if (this.#stopped || this.#sweeping) return;
    this.#cancel = atTick(() => {
      this.#sweeping = true;
      this.#current = this.#sweepOnce()
        .catch((error: unknown) => log.debug({ err: error }, "sweep interrupted"))
        .finally(() => {
          this.#sweeping = false;
          this.start();
        });
    }, settings().tasks.sweepIntervalMs);
  }

  /** One complete round now, with its polls of the upstream; for tests and tools. */
  async sweep(): Promise<void> {
    await this.#sweepOnce();
    await this.#polls.idle();
  }

  /** Waits for calls to the store; polls of the upstream are dropped, and other gateways repeat them. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancel();
    this.#polls.stop();
    await this.#current;
  }

  async #sweepOnce(): Promise<void> {
    const { sweeps, metrics } = this.#options;
    const startedMs = performance.now();
    const collecting = startedMs - this.#collectedAtMs >= COLLECT_EVERY_MS;
    let isCollected = true;
    let failed: unknown;
    const partitions = sweeps.partitions();
    const due = await sweeps.due();
    // Each gateway starts at another partition, so that they do not contend for the same one.
    const first = Math.floor(Math.random() * partitions);
    for (let at = 0; at < partitions && !this.#stopped; at++) {
      const partition = (first + at) % partitions;
      if (!sweeps.isUsable(partition)) continue;
      try {
        if (due.holds.has(partition)) await this.#voidHolds(partition);
        if (due.polls.has(partition)) await this.#leaseTasks(partition);
        if (collecting && !(await this.#collect(partition))) isCollected = false;
      } catch (error) {
        // Others may be on another primary.
        failed ??= error;
      }
    }
    if (failed !== undefined) throw failed;
    // If records are left, the next round goes on: once a minute, more requests could end than are collected.
    if (collecting && isCollected && partitions > 0) this.#collectedAtMs = startedMs;
    metrics.sweepSeconds.set((performance.now() - startedMs) / 1000);
  }

  async #voidHolds(partition: number): Promise<void> {
    while (!this.#stopped) {
      const { leased, requests } = await this.#options.sweeps.lease("holds", partition, BATCH);
      await Promise.all(requests.map((request) => this.#count("hold", this.#voidHold(request))));
      if (leased < BATCH) break;
    }
  }

  /** As many as there is room for. While no upstream has answered for long, some all the same, to end those past twice their age. */
  async #leaseTasks(partition: number): Promise<void> {
    while (!this.#stopped) {
      const room = this.#polls.room();
      const isSilent = this.#polls.isSilent(this.#options.settings().tasks.maxAgeMs * SILENT_SHARE);
      const most = room === 0 && isSilent ? BATCH : Math.min(BATCH, room);
      if (most === 0) break;
      const { leased, requests } = await this.#options.sweeps.lease("polls", partition, most);
      await Promise.all(requests.map((request) => this.#endOrPoll(request)));
      if (leased < most || room === 0) break;
    }
  }

  /** An upstream that has answered nothing for long is not polled for a task that ends with or without an answer. */
  async #endOrPoll(request: OpenRequest): Promise<void> {
    const task = this.#agingTask(request);
    const isSilent = this.#polls.silentMs(request.upstream) >= task.maxAgeMs * SILENT_SHARE;
    const verdict = isSilent ? endUnanswered(task) : undefined;
    if (verdict) await this.#count("task", this.#observe(request, task, verdict));
    else this.#enqueuePoll(request);
  }

  #enqueuePoll(request: OpenRequest): void {
    if (this.#polling.has(request.requestId)) return;
    this.#polling.add(request.requestId);
    if (!this.#polls.add(request)) this.#polling.delete(request.requestId);
  }

  #agingTask({ taskId, boundAtMs, leasedAtMs, maxAgeMs }: OpenRequest): AgingTask {
    return {
      taskId,
      createdAtMs: boundAtMs,
      ageMs: Math.max(0, leasedAtMs - boundAtMs),
      maxAgeMs: maxAgeMs ?? this.#options.settings().tasks.maxAgeMs,
    };
  }

  /** @returns false if more records may be left */
  async #collect(partition: number): Promise<boolean> {
    const { sweeps, metrics, settings } = this.#options;
    for (let batch = 0; batch < COLLECT_BATCHES_MAX && !this.#stopped; batch++) {
      const { looked, collected } = await sweeps.collect(partition, settings().tasks.retentionMs, BATCH);
      if (collected > 0) metrics.sweeps.inc({ kind: "record", outcome: "collected" }, collected);
      if (looked < BATCH) return true;
    }
    return false;
  }

  /** Counts the outcome of one request. If the store is away, the request comes back when its lease ends. */
  async #count(kind: "hold" | "task", work: Promise<string>): Promise<void> {
    const outcome = await work.catch((error: unknown) => {
      this.#options.log.debug({ err: error }, "sweep interrupted");
      return "interrupted";
    });
    this.#options.metrics.sweeps.inc({ kind, outcome });
  }

  async #voidHold(request: OpenRequest): Promise<string> {
    const { sweeps, log } = this.#options;
    const outcome = await sweeps.voidDue(request);
    const { requestId, accountId } = request;
    if (outcome === "void") {
      log.warn({ request_id: requestId, account_id: accountId }, "a hold ended: its outcome stayed unknown");
    }
    return outcome;
  }

  /** Polls even a task far beyond its maximum age: it may have completed while it could not be polled. */
  async #pollTask(request: OpenRequest, ended: (outcome: PollOutcome) => void): Promise<string> {
    const { upstreamOf } = this.#options;
    const task = this.#agingTask(request);
    const pollId = `sweep_${randomUUID()}`;
    const outcome = await upstreamOf(request.upstream).poll(request.taskId, {
      accountId: undefined,
      requestId: pollId,
      createdAtMs: request.boundAtMs,
      tag: request.upstream,
    });
    reportPoll(this.#options, { requestId: pollId, taskId: request.taskId }, outcome);
    ended(outcome);
    const verdict = judge(task, outcome) ?? this.#unanswered(request, task, outcome);
    // Without a verdict, the task is polled again when its lease ends.
    return verdict ? this.#observe(request, task, verdict) : outcome.outcome;
  }

  #unanswered(request: OpenRequest, task: AgingTask, outcome: PollOutcome): Verdict | undefined {
    const isPolledLong = this.#polls.polledMs(request.upstream) >= task.maxAgeMs * SILENT_SHARE;
    return isPolledLong && outcome.outcome !== "overloaded" ? endUnanswered(task) : undefined;
  }

  async #observe(request: OpenRequest, task: AgingTask, verdict: Verdict): Promise<string> {
    const { store, settings } = this.#options;
    const { taskId, accountId, partition, requestId, creatorKeyId } = request;
    const { refundFailed, pollIntervalMs } = settings().tasks;
    const everyMs = Math.min(POLL_EVERY_MAX_MS, Math.max(pollIntervalMs, task.ageMs * AGE_SHARE));
    const pollMs = nextPollMs(Math.round(jittered(everyMs, JITTER_SHARE)), task.ageMs, task.maxAgeMs);
    const { outcome } = await store.observe(
      { partition, accountId, task: { taskId, requestId, creatorKeyId } },
      verdict,
      { refundFailed, pollMs, maxAgeMs: task.maxAgeMs, tiers: settings().tiers },
    );
    if (outcome === "finished") reportEnd(this.#options, request, verdict);
    return outcome === "observed" && verdict.status === "gone" ? "gone" : outcome;
  }
}
