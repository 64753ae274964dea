import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import type { Tiers } from "../domain/limits.ts";
import { claimName, idempotencyName, keyRef, readClaim, requestName } from "../records/names.ts";
import { type RequestRecord, requestOf } from "../records/records.ts";
import type { Connection } from "../redis/connection.ts";
import { type Generation, nextPollMs } from "../scripts/holds.ts";
import { reclaim } from "../scripts/tasks.ts";
import type { Logger } from "../telemetry/log.ts";
import type { CallbackResult } from "../telemetry/metrics/webhooks.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { PollOutcome } from "../upstream/poll-request.ts";
import type { TaskUpstream } from "../upstream/task-upstreams.ts";
import type { Upstream } from "../upstream/upstream.ts";
import type { Holds } from "./holds.ts";
import type { Store } from "./store.ts";
import { reportEnd, reportPoll } from "./task-reports.ts";
import { type AgingTask, isAnswered, judge } from "./task-verdict.ts";

/** An upstream may call back before its polls know the task: they are asked again after these times. */
const POLLED_AGAIN_AFTER_MS = [300, 1200];
/** Results of what one callback names, which say nothing of what another one names. */
const NAMED_ANOTHER: ReadonlySet<CallbackResult> = new Set([
  "no_task",
  "unknown_task",
  "unconfirmed",
  "conflict",
]);

interface CallbackSettings {
  tiers: Tiers;
  tasks: { refundFailed: boolean; maxAgeMs: number; pollIntervalMs: number; retentionMs: number };
}

export interface CallbackTasksOptions {
  connection: Pick<Connection, "of" | "ofName" | "known">;
  store: Pick<Store, "observe"> & Pick<Holds, "bind">;
  upstream(): Upstream;
  upstreamOf(tag: string | undefined): TaskUpstream;
  settings(): CallbackSettings;
  metrics: Metrics;
  log: Logger;
}

interface CalledRequest {
  requestId: string;
  partition: number;
  accountId: string;
  record: RequestRecord;
  nowMs: number;
}

/**
 * Settles a task that was called back about. Nothing that was sent is believed: the task is polled. A named task is bound once the upstream
 * confirms it. Callbacks of a request that come meanwhile share one more poll. Decision 0076.
 */
export class CallbackTasks {
  readonly #options: CallbackTasksOptions;
  readonly #current = new Map<string, Promise<CallbackResult>>();
  readonly #next = new Map<string, Promise<CallbackResult>>();

  constructor(options: CallbackTasksOptions) {
    this.#options = options;
  }

  /** @param named the callback's task; only called if the request has none @throws GatewayError `store_unavailable` */
  async settle(
    target: { partition: number; requestId: string },
    named: () => Promise<string | undefined>,
  ): Promise<CallbackResult> {
    const { requestId } = target;
    const current = this.#current.get(requestId);
    if (!current) return this.#start(target, named);
    const shared = this.#next.get(requestId);
    if (shared) {
      const result = await shared;
      return NAMED_ANOTHER.has(result) ? this.settle(target, named) : result;
    }
    // The poll under way may have been answered before this callback was sent.
    const next = current
      .catch(() => undefined)
      .then(() => {
        this.#next.delete(requestId);
        return this.settle(target, named);
      });
    this.#next.set(requestId, next);
    return next;
  }

  #start(
    target: { partition: number; requestId: string },
    named: () => Promise<string | undefined>,
  ): Promise<CallbackResult> {
    const settled = this.#settle(target, named).finally(() => this.#current.delete(target.requestId));
    this.#current.set(target.requestId, settled);
    return settled;
  }

  async #settle(
    { partition, requestId }: { partition: number; requestId: string },
    named: () => Promise<string | undefined>,
  ): Promise<CallbackResult> {
    const { of } = this.#options.connection;
    const text = await of(partition).command((redis) => redis.get(requestName(partition, requestId)));
    const record = requestOf(text);
    const { state, reason, ended_by: endedBy, account_id: accountId } = record;
    if (state === undefined || accountId === undefined) return "unknown_request";
    const request = { requestId, partition, accountId, record, nowMs: of(partition).nowMs() };
    switch (state) {
      case "bound":
        return this.#poll(request);
      case "finished":
        // A task that was charged again counts as ended by the upstream.
        if (endedBy === "expired") return this.#chargeAgain(request);
        return "finished";
      case "void":
        // The customer was told that a refused request is not charged.
        if (reason !== "due" && reason !== "released") return "void";
        break;
    }
    const taskId = await named();
    return taskId === undefined ? "no_task" : this.#bind(request, taskId);
  }

  async #poll(request: CalledRequest): Promise<CallbackResult> {
    const { task, outcome } = await this.#pollBoundTask(request);
    const observed = await this.#observe(request, task, outcome);
    return observed ?? (isAnswered(outcome) ? "observed" : "unanswered");
  }

  /** Binds the task of a request whose outcome is unknown, once the upstream has confirmed that there is one. */
  async #bind(request: CalledRequest, taskId: string): Promise<CallbackResult> {
    const { record, accountId, requestId, nowMs } = request;
    const { store, settings, log } = this.#options;
    const upstream = this.#options.upstream();
    const tag = upstream.tagOf(record.endpoint ?? "");
    const task = this.#agingTask(request, taskId, Number(record.admitted_at ?? nowMs), 0);
    let outcome = await this.#pollUpstream(request, upstream, task, tag);
    for (const afterMs of POLLED_AGAIN_AFTER_MS) {
      if (outcome.outcome !== "gone") break;
      await pause(afterMs);
      outcome = await this.#pollUpstream(request, upstream, task, tag);
    }
    if (outcome.outcome === "gone") return "unknown_task";
    if (outcome.outcome !== "task" && outcome.outcome !== "unknown_status")
      return isAnswered(outcome) ? "unconfirmed" : "unanswered";
    if (await this.#isOfAnother(requestId, taskId)) return "conflict";
    const { pollIntervalMs, maxAgeMs } = settings().tasks;
    const pollMs = nextPollMs(pollIntervalMs, 0, maxAgeMs);
    const data = JSON.stringify({ task_id: taskId, status: "pending" });
    const generation = await this.#generationOf(request);
    const binding = await store.bind(generation, { taskId, data, pollMs, maxAgeMs, upstream: tag });
    const fields = { request_id: requestId, account_id: accountId, task_id: taskId };
    log.warn({ ...fields, outcome: binding ?? "waiting" }, "a callback named the task of an unknown outcome");
    if (binding === undefined) return "waiting";
    if (binding !== "conflict" && binding !== "forgotten") await this.#observe(request, task, outcome);
    return binding;
  }

  /** BIND would dispute another request's task: only an answer to a generation says that an id was given twice. */
  async #isOfAnother(requestId: string, taskId: string): Promise<boolean> {
    const name = claimName(taskId);
    const { connection } = this.#options;
    const owner = await connection.ofName(name).command((redis) => redis.get(name));
    return owner !== null && readClaim(owner).requestId !== requestId;
  }

  /** Charges again what was refunded because the task was too old, if it has completed after all. */
  async #chargeAgain(request: CalledRequest): Promise<CallbackResult> {
    const { record, partition, accountId, requestId } = request;
    const { task, outcome } = await this.#pollBoundTask(request);
    if (outcome.outcome !== "task" || outcome.status !== "completed")
      return isAnswered(outcome) ? "finished" : "unanswered";
    const { taskId } = task;
    const creatorKeyId = record.key_id ?? "";
    const call = { partition, accountId, task: { taskId, requestId, creatorKeyId }, data: outcome.data };
    const { connection, metrics, log } = this.#options;
    const reclaimed = await connection.of(partition).run(reclaim, call);
    const { credits } = reclaimed;
    metrics.creditsConsumed.inc(credits);
    const fields = { request_id: requestId, account_id: accountId, task_id: taskId, credits };
    if (reclaimed.outcome !== "finished")
      log.warn({ ...fields, outcome: reclaimed.outcome }, "a task that ended as too old has completed");
    return reclaimed.outcome;
  }

  async #pollBoundTask(request: CalledRequest): Promise<{ task: AgingTask; outcome: PollOutcome }> {
    const { bound_at: boundAt, task_id: taskId = "", upstream: tag } = request.record;
    const boundAtMs = Number(boundAt);
    const task = this.#agingTask(request, taskId, boundAtMs, request.nowMs - boundAtMs);
    return { task, outcome: await this.#pollUpstream(request, this.#options.upstreamOf(tag), task, tag) };
  }

  async #pollUpstream(
    { accountId, requestId }: CalledRequest,
    upstream: TaskUpstream,
    { taskId, createdAtMs }: AgingTask,
    tag: string | undefined,
  ): Promise<PollOutcome> {
    const pollId = `callback_${randomUUID()}`;
    const outcome = await upstream.poll(taskId, { accountId, requestId: pollId, createdAtMs, tag });
    reportPoll(this.#options, { requestId: pollId, taskId }, outcome);
    this.#options.log.debug({ request_id: requestId, outcome: outcome.outcome }, "a callback led to a poll");
    return outcome;
  }

  /** @returns undefined if the answer changes nothing */
  async #observe(
    request: CalledRequest,
    task: AgingTask,
    answer: PollOutcome,
  ): Promise<CallbackResult | undefined> {
    const { store, settings } = this.#options;
    const verdict = judge(task, answer);
    if (!verdict) return undefined;
    const { partition, accountId, requestId, record } = request;
    const { refundFailed, pollIntervalMs } = settings().tasks;
    const { maxAgeMs, ageMs, taskId } = task;
    const { outcome } = await store.observe(
      { partition, accountId, task: { taskId, requestId, creatorKeyId: record.key_id ?? "" } },
      verdict,
      {
        refundFailed,
        pollMs: nextPollMs(pollIntervalMs, ageMs, maxAgeMs),
        maxAgeMs,
        tiers: settings().tiers,
      },
    );
    if (outcome === "finished") reportEnd(this.#options, { requestId, taskId, accountId }, verdict);
    return outcome === "finished" ? "settled" : outcome === "already_finished" ? "finished" : "observed";
  }

  #agingTask({ record }: CalledRequest, taskId: string, createdAtMs: number, ageMs: number): AgingTask {
    const maxAgeMs = Number(record.max_age_ms ?? this.#options.settings().tasks.maxAgeMs);
    return { taskId, createdAtMs, ageMs: Math.max(0, ageMs), maxAgeMs };
  }

  async #generationOf(request: CalledRequest): Promise<Generation> {
    const { requestId, partition, accountId, record } = request;
    const { connection, settings } = this.#options;
    const fingerprint = record.idempotency === undefined ? undefined : await this.#fingerprintOf(request);
    return {
      requestId,
      key: keyRef(record.key_id ?? "", accountId, partition),
      price: Number(record.price),
      endpoint: record.endpoint ?? "",
      holdMs: 0,
      retentionMs: Number(record.retention_ms ?? settings().tasks.retentionMs),
      storeId: connection.known.facts?.id,
      admittedAtMs: record.admitted_at === undefined ? undefined : Number(record.admitted_at),
      ...(record.idempotency !== undefined && {
        idempotency: { digest: record.idempotency, fingerprint: fingerprint ?? "" },
      }),
    };
  }

  /** VOID moves it into the request, since the Idempotency-Key may be another request's from then on. */
  async #fingerprintOf({ partition, record }: CalledRequest): Promise<string | undefined> {
    if (record.fingerprint !== undefined) return record.fingerprint;
    const name = idempotencyName(partition, record.idempotency ?? "");
    const found = await this.#options.connection
      .of(partition)
      .command((redis) => redis.hget(name, "fingerprint"));
    return found ?? undefined;
  }
}
