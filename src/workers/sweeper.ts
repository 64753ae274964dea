import { randomUUID } from "node:crypto";
import type { Tiers } from "../core/limits.ts";
import { askAgainMs } from "../core/tasks.ts";
import { reportEnd, reportPollFault } from "../settlement/reports.ts";
import { type AgingTask, judge, type Verdict } from "../settlement/task-end.ts";
import type { Store } from "../store/operations.ts";
import type { OpenRequest, Sweeps } from "../store/sweeps.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { TaskUpstream } from "../upstream/task-upstreams.ts";
import type { PollOutcome } from "../upstream/upstream.ts";
import { createSweepLanes, jittered } from "./sweep-lanes.ts";

const BATCH = 50;
const COLLECT_EVERY_MS = 60_000;
/** Records of a partition that are collected in one round, so that the next one does not wait for them. */
const COLLECT_BATCHES_MAX = 4;
/** The older a task, the rarer the questions: after a tenth of its age, at most every five minutes. */
const AGE_SHARE = 0.1;
const POLL_EVERY_MAX_MS = 5 * 60_000;

/** What the sweeper reads of the config, anew for each step. Times in ms. */
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

/**
 * Ends what nobody else ends: holds past their due time are voided, bound tasks that no client polls are asked for,
 * and too old ones are given up. Every gateway runs one; CLAIM keeps two from doing the same. Questions to the
 * upstream are paced, and nothing else waits for them.
 */
export function createSweeper(options: {
  store: Store;
  sweeps: Sweeps;
  /** The one that made a task, by the tag that is stored with it. */
  upstreamOf(tag: string | undefined): TaskUpstream;
  metrics: Metrics;
  log: Logger;
  settings(): SweepSettings;
}) {
  const { store, sweeps, upstreamOf, metrics, log, settings } = options;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  let collectedAtMs = Number.NEGATIVE_INFINITY;
  /** Requests whose question waits or is under way: a lease may end before an upstream that hangs has answered. */
  const asking = new Set<string>();
  let current: Promise<void> = Promise.resolve();

  const polls = createSweepLanes({
    perSecond: () => settings().tasks.sweepPollsPerSecond,
    upstreamName: (tag) => upstreamOf(tag).tag,
    ask: (request, ended) =>
      counted("task", ask(request, ended)).finally(() => asking.delete(request.requestId)),
  });

  /** Counts how one piece of work ended; a store that is away ends it for now, its lease brings it back. */
  async function counted(kind: "hold" | "task", work: Promise<string>): Promise<void> {
    const outcome = await work.catch((error: unknown) => {
      log.debug({ err: error }, "sweep interrupted");
      return "interrupted";
    });
    metrics.sweeps.inc({ kind, outcome });
  }

  async function sweep(): Promise<void> {
    const startedMs = performance.now();
    const collecting = startedMs - collectedAtMs >= COLLECT_EVERY_MS;
    let isCollected = true;
    const partitions = sweeps.partitions();
    const due = await sweeps.due();
    // Each gateway begins somewhere else, so that they do not queue up behind each other.
    const first = Math.floor(Math.random() * partitions);
    for (let at = 0; at < partitions && !stopped; at++) {
      const partition = (first + at) % partitions;
      if (due.holds.has(partition)) await endHolds(partition);
      if (due.polls.has(partition)) await takeTasks(partition);
      if (collecting && !(await collect(partition))) isCollected = false;
    }
    // What is left is collected in the next round, not a minute later: else more could end than is ever forgotten.
    if (collecting && isCollected && partitions > 0) collectedAtMs = startedMs;
    metrics.sweepSeconds.set((performance.now() - startedMs) / 1000);
  }

  /** Ends all holds that are due. */
  async function endHolds(partition: number): Promise<void> {
    while (!stopped) {
      const { claimed, requests } = await sweeps.claim("holds", partition, BATCH);
      await Promise.all(requests.map((request) => counted("hold", voidHold(request))));
      if (claimed < BATCH) break;
    }
  }

  /** Takes as many tasks as there is room for; without room the store is not even asked: a backlog costs nothing. */
  async function takeTasks(partition: number): Promise<void> {
    while (!stopped && polls.room() > 0) {
      const most = Math.min(BATCH, polls.room());
      const { claimed, requests } = await sweeps.claim("polls", partition, most);
      for (const request of requests) take(request);
      if (claimed < most) break;
    }
  }

  function take(request: OpenRequest): void {
    if (asking.has(request.requestId)) return;
    asking.add(request.requestId);
    if (!polls.add(request)) asking.delete(request.requestId);
  }

  async function voidHold(request: OpenRequest): Promise<string> {
    const outcome = await sweeps.voidDue(request, settings().tiers);
    const { requestId, accountId } = request;
    if (outcome === "void") {
      log.warn({ request_id: requestId, account_id: accountId }, "a hold ended: its outcome stayed unknown");
    }
    return outcome;
  }

  /** Asks even about a task far beyond its maximum age: it may have ended well while nobody could ask. */
  async function ask(request: OpenRequest, ended: (outcome: PollOutcome) => void): Promise<string> {
    const { taskId, boundAtMs, claimedAtMs, maxAgeMs = settings().tasks.maxAgeMs } = request;
    const askedAs = `sweep_${randomUUID()}`;
    const outcome = await upstreamOf(request.upstream).poll(taskId, askedAs);
    reportPollFault({ metrics, log }, askedAs, outcome);
    ended(outcome);
    const task = { taskId, createdAtMs: boundAtMs, ageMs: Math.max(0, claimedAtMs - boundAtMs), maxAgeMs };
    const verdict = judge(task, outcome);
    // Without one, its claim's lease is the pause before this task's next try.
    return verdict ? settle(request, task, verdict) : outcome.outcome;
  }

  async function settle(request: OpenRequest, task: AgingTask, verdict: Verdict): Promise<string> {
    const { taskId, accountId, partition, requestId, creatorKeyId } = request;
    const { refundFailed, pollIntervalMs } = settings().tasks;
    const everyMs = Math.min(POLL_EVERY_MAX_MS, Math.max(pollIntervalMs, task.ageMs * AGE_SHARE));
    const pollMs = askAgainMs(Math.round(jittered(everyMs)), task.ageMs, task.maxAgeMs);
    const { outcome } = await store.observe(
      { partition, accountId, task: { taskId, requestId, creatorKeyId } },
      verdict,
      { refundFailed, pollMs, maxAgeMs: task.maxAgeMs, tiers: settings().tiers },
    );
    if (outcome === "finished") reportEnd({ metrics, log }, request, verdict);
    return outcome === "observed" && verdict.status === "gone" ? "gone" : outcome;
  }

  /** @returns whether nothing is left that could be collected */
  async function collect(partition: number): Promise<boolean> {
    for (let batch = 0; batch < COLLECT_BATCHES_MAX && !stopped; batch++) {
      const { looked, collected } = await sweeps.collect(partition, settings().tasks.retentionMs, BATCH);
      if (collected > 0) metrics.sweeps.inc({ kind: "record", outcome: "collected" }, collected);
      if (looked < BATCH) return true;
    }
    return false;
  }

  let sweeping = false;
  const schedule = (): void => {
    clearTimeout(timer);
    if (stopped || sweeping) return;
    timer = setTimeout(() => {
      sweeping = true;
      current = sweep()
        .catch((error: unknown) => log.debug({ err: error }, "sweep interrupted"))
        .finally(() => {
          sweeping = false;
          schedule();
        });
    }, settings().tasks.sweepIntervalMs);
  };

  return {
    /** Begins, or waits anew when the interval has changed. */
    start: schedule,
    /** One complete round now, with its questions to the upstream; for tests and tools. */
    async sweep(): Promise<void> {
      await sweep();
      await polls.idle();
    },
    /** Waits for what is under way in the store; questions to the upstream are given up, others will ask again. */
    async stop(): Promise<void> {
      stopped = true;
      clearTimeout(timer);
      polls.stop();
      await current;
    },
  };
}
