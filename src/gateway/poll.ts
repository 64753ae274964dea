import { isFinal, isTaskStatus, pendingTaskJson, TASK_ID } from "../domain/answers.ts";
import { dropOldest } from "../domain/bounded.ts";
import { type ApiAnswer, type HandlerResult, retrySeconds, success } from "../domain/envelope.ts";
import { GatewayError, type Refusal, refuse } from "../domain/errors.ts";
import { nextPollMs } from "../scripts/holds.ts";
import type { KnownTask } from "../scripts/tasks.ts";
import type { Observed } from "../settlement/store.ts";
import { reportEnd, reportPoll } from "../settlement/task-reports.ts";
import { isAnswered, judge, type LastKnown } from "../settlement/task-verdict.ts";
import type { PollOutcome } from "../upstream/poll-request.ts";
import type { TaskUpstream } from "../upstream/task-upstreams.ts";
import { type RequestContext, storeStep, UpstreamStep } from "./http-exchange.ts";
import { inspectKey, refuseCounted, refuseKey } from "./inspect-key.ts";
import { rememberTask } from "./key-memory.ts";
import { isKnownUnmetered, isStoreUnavailable, passUnmetered, showKnownLimits } from "./unmetered.ts";
import { type FailedPoll, pollRefusal } from "./upstream-refusals.ts";

type DescribedTask = Extract<PollOutcome, { outcome: "task" } | { outcome: "unknown_status" }>;

/** The result of an upstream poll; `refused` is the answer to the customer if it did not return the task. */
type Polled = { outcome: DescribedTask; refused: undefined } | { outcome: FailedPoll; refused: Refusal };

interface Settled {
  polled: Polled;
  observation: Observed | undefined;
}

/** An upstream poll and its settlement, shared by all clients that wait for the same task. */
interface SharedPoll {
  /** The key whose rate-limit state the observation carries. */
  pollerKeyId: string;
  settled: Promise<Settled>;
}

/** GET /tasks/{taskId}, and the polls that are in flight or failed a moment ago. */
export class TaskPolls {
  readonly #inFlight = new Map<string, SharedPoll>();
  readonly #failures = new WeakMap<TaskUpstream, PollFailureCache>();

  /** INSPECT, then the shared cache or one poll for all who wait; OBSERVE settles it before anybody is answered. */
  async poll(context: RequestContext, taskId: string): Promise<HandlerResult> {
    const { gateway, config, exchange, key } = context;
    if (!TASK_ID.test(taskId)) return refuseCounted(context, refuse("task_not_found"));
    let task: KnownTask | undefined;
    try {
      const inspected = gateway.store.inspectTask(key, taskId, config.tasks.cacheMs, config.tiers);
      const inspection = await storeStep(context, "INSPECT", inspected);
      const refused = refuseKey(context, inspection);
      if (refused) return refused;
      if (inspection.outcome === "task") task = inspection.task;
    } catch (error) {
      if (!isStoreUnavailable(error)) throw error;
      const isSeen =
        gateway.fallback.seenTasks.has(taskId, key.accountId) || isKnownUnmetered(context, taskId);
      if ((await isSeen) && (await passUnmetered(context, error)))
        return this.#pollUnmetered(context, taskId);
      throw error;
    }
    if (!task) {
      if (await isUnmetered(context, taskId)) return this.#pollUnmetered(context, taskId);
      const mayBeBound = gateway.store.mayBeBoundSoon(key, taskId);
      if (mayBeBound && (await storeStep(context, "CLAIM", mayBeBound))) throw mayBeOfTheOutage();
      return refuse("task_not_found");
    }
    // Only now: an unknown task id may be any text in a path, even the customer's API key.
    exchange.taskId = taskId;
    rememberTask(context, taskId, task.upstream);
    if (task.fresh) return success(task.data, undefined, "cached");

    const name = nameOf(context.key.accountId, taskId);
    let shared = this.#inFlight.get(name);
    if (!shared) {
      const upstream = gateway.upstreamOf(task.upstream, config);
      const refused = this.#failuresOf(upstream).get(key.accountId, taskId);
      if (refused) return isFinal(task.status) ? cached(task) : refused;
      shared = this.#start(context, name, task, upstream);
    }
    const waitedFromMs = performance.now();
    const { polled, observation } = await shared.settled;
    // A client that shares a poll has waited for the upstream, too.
    exchange.upstreamMs ??= performance.now() - waitedFromMs;
    if (observation && shared.pollerKeyId === key.keyId) exchange.state = observation.state;
    else if (observation) await inspectKey(context);
    return resultOf(task, polled, observation);
  }

  #start(context: RequestContext, name: string, task: KnownTask, upstream: TaskUpstream): SharedPoll {
    const settled = pollUpstream(context, task, upstream, this.#failuresOf(upstream)).then((polled) =>
      settle(context, task, polled),
    );
    const shared = { pollerKeyId: context.key.keyId, settled };
    this.#inFlight.set(name, shared);
    void settled.catch(() => undefined).finally(() => this.#inFlight.delete(name));
    return shared;
  }

  #failuresOf(upstream: TaskUpstream): PollFailureCache {
    let failures = this.#failures.get(upstream);
    if (!failures) {
      failures = createPollFailureCache();
      this.#failures.set(upstream, failures);
    }
    return failures;
  }

  /** The store is unavailable and the strategy is `allow`: polls a task that this gateway has seen, without settling it. */
  async #pollUnmetered(context: RequestContext, taskId: string): Promise<HandlerResult> {
    const { gateway, config, exchange, key } = context;
    const { seenTasks, unmeteredTasks } = gateway.fallback;
    exchange.taskId = taskId;
    const tag = unmeteredTasks.upstream(taskId) ?? seenTasks.upstream(taskId);
    const upstream = gateway.upstreamOf(tag, config);
    const failures = this.#failuresOf(upstream);
    const remembered = failures.get(key.accountId, taskId);
    if (remembered) return remembered;
    const { outcome, refused } = await pollUpstream(
      context,
      { taskId, ...(tag && { upstream: tag }) },
      upstream,
      failures,
    );
    if (refused) return refused;
    if (exchange.degraded) showKnownLimits(context);
    return success(outcome.data, [], "unmetered");
  }
}

/** Polls the upstream for a task; a poll without an answer is remembered. */
async function pollUpstream(
  context: RequestContext,
  task: Pick<KnownTask, "taskId"> & Partial<Pick<KnownTask, "createdAtMs" | "upstream">>,
  upstream: TaskUpstream,
  failures: PollFailureCache,
): Promise<Polled> {
  const { gateway, exchange, key } = context;
  const { accountId } = key;
  const { requestId } = exchange;
  const { taskId, createdAtMs, upstream: tag } = task;
  const step = new UpstreamStep(context, "poll");
  const sender = { accountId, requestId, carried: step.carried, createdAtMs, tag };
  const outcome = step.end(await upstream.poll(taskId, sender));
  reportPoll(gateway, { requestId, taskId }, outcome);
  if (outcome.outcome === "task" || outcome.outcome === "unknown_status") {
    failures.record(accountId, taskId, undefined);
    return { outcome, refused: undefined };
  }
  const refused = pollRefusal(outcome);
  // A poll that was not sent says nothing about the upstream.
  if (outcome.outcome !== "overloaded") {
    failures.record(accountId, taskId, isAnswered(outcome) ? undefined : refused);
  }
  return { outcome, refused };
}

async function settle(context: RequestContext, task: KnownTask, polled: Polled): Promise<Settled> {
  const { gateway, config, key } = context;
  const { refundFailed, pollIntervalMs } = config.tasks;
  const { maxAgeMs = config.tasks.maxAgeMs } = task;
  const verdict = judge({ ...task, maxAgeMs, last: lastKnown(task) }, polled.outcome);
  if (!verdict) return { polled, observation: undefined };
  const { accountId, partition } = key;
  const observed = gateway.store.observe({ partition, accountId, task }, verdict, {
    refundFailed,
    pollMs: nextPollMs(pollIntervalMs, task.ageMs, maxAgeMs),
    maxAgeMs,
    poller: key,
    tiers: config.tiers,
  });
  const observation = await storeStep(context, "OBSERVE", observed);
  if (observation.outcome === "finished") reportEnd(gateway, { ...task, accountId }, verdict);
  return { polled, observation };
}

/** The customer's answer. A finished task stays as it finished, whatever the upstream says now. */
function resultOf(task: KnownTask, polled: Polled, observation: Observed | undefined): HandlerResult {
  // The store has forgotten it since INSPECT: the task id may belong to another account by now.
  if (observation?.outcome === "missing") return refuse("task_not_found");
  if (observation && (isFinal(observation.status) || observation.isDisputed))
    return success(observation.data);
  if (!observation && isFinal(task.status)) return cached(task);
  if (polled.refused) return polled.refused;
  return success(polled.outcome.outcome === "task" ? polled.outcome.data : lastKnown(task).data);
}

/** The task's latest observation at INSPECT; none before the first. */
const lastKnown = ({ taskId, status, data, createdAtMs }: KnownTask): LastKnown =>
  isTaskStatus(status) ? { status, data } : { status: "pending", data: pendingTaskJson(taskId, createdAtMs) };

/**
 * True for a task of the account that passed unmetered and is not bound: an upstream may return a task id twice.
 * @throws GatewayError `store_unavailable` for a task that another gateway may still have to bind, just after an outage
 */
async function isUnmetered(context: RequestContext, taskId: string): Promise<boolean> {
  const { gateway, config, key } = context;
  const { seenTasks, unmeteredTasks } = gateway.fallback;
  const mayBeBoundSoon = config.store.fallbackStrategy === "allow" && gateway.store.isJustBack(key.partition);
  const isKnown = mayBeBoundSoon
    ? await isKnownUnmetered(context, taskId)
    : unmeteredTasks.has(taskId, key.accountId);
  if (!isKnown && !mayBeBoundSoon) {
    seenTasks.forget(taskId, key.accountId);
    return false;
  }
  if (!(await storeStep(context, "EXISTS", gateway.store.isTaskBound(taskId)))) {
    if (isKnown) return true;
    throw mayBeOfTheOutage();
  }
  unmeteredTasks.forget(taskId, key.accountId);
  seenTasks.forget(taskId, key.accountId);
  return false;
}

/** Not 404: the customer would take an accepted task for lost, whose BIND waits in a gateway. */
const mayBeOfTheOutage = (): GatewayError =>
  new GatewayError("store_unavailable", "the task may be one of the outage", { retryAfterSeconds: 2 });

const cached = (task: KnownTask): ApiAnswer => success(task.data, undefined, "cached");

const TASKS_MAX = 10_000;
const ACCOUNTS_MAX = 10_000;
/** From this number of different tasks in a row without an answer on, the upstream itself is considered failed. */
const TASKS_IN_ROW = 10;

interface Failure {
  refusal: Refusal;
  untilMs: number;
}

/** An account's polls that failed since the upstream last answered one of them. */
interface FailedRow {
  tasks: Set<string>;
  latest: Failure;
}

/**
 * Failed polls, answered from memory until their `retryAfter` is over. After failures of many tasks of an account in a row, one poll per
 * `retryAfter` is made for that account; the cause may be its tasks, so others are not affected. Decision 0030.
 */
export function createPollFailureCache(nowMs: () => number = () => performance.now()) {
  const tasks = new Map<string, Failure>();
  const rows = new Map<string, FailedRow>();

  const remaining = ({ refusal, untilMs }: Failure): Refusal | undefined => {
    const leftMs = untilMs - nowMs();
    if (leftMs <= 0) return undefined;
    const retryAfterSeconds = retrySeconds(leftMs);
    return { ...refusal, retryAfterSeconds, detail: "the upstream failed a moment ago" };
  };

  const failureOf = (refusal: Refusal): Failure => ({
    refusal,
    untilMs: nowMs() + 1000 * (refusal.retryAfterSeconds ?? 0),
  });

  function rowOf(accountId: string, latest: Failure): FailedRow {
    let row = rows.get(accountId);
    if (!row) {
      row = { tasks: new Set(), latest };
      dropOldest(rows, ACCOUNTS_MAX);
      rows.set(accountId, row);
    }
    return row;
  }

  return {
    /** The refusal to answer without a poll; undefined: poll, and call `record`. */
    get(accountId: string, taskId: string): Refusal | undefined {
      const failure = tasks.get(nameOf(accountId, taskId));
      const refusal = failure && remaining(failure);
      if (refusal) return refusal;
      const row = rows.get(accountId);
      if (!row || row.tasks.size < TASKS_IN_ROW) return undefined;
      const paused = remaining(row.latest);
      // This poll goes through as the probe; the others wait for another `retryAfter`.
      if (!paused) row.latest = failureOf(row.latest.refusal);
      return paused;
    },
    /** @param refusal what the customer is told if the upstream gave no answer about the task; undefined: it did */
    record(accountId: string, taskId: string, refusal: Refusal | undefined): void {
      const name = nameOf(accountId, taskId);
      tasks.delete(name);
      if (!refusal) {
        rows.delete(accountId);
        return;
      }
      const latest = failureOf(refusal);
      dropOldest(tasks, TASKS_MAX);
      tasks.set(name, latest);
      const row = rowOf(accountId, latest);
      row.latest = latest;
      if (row.tasks.size < TASKS_IN_ROW) row.tasks.add(taskId);
    },
  };
}

type PollFailureCache = ReturnType<typeof createPollFailureCache>;

/** The account's partition is part of a task's name in the store, so a task id alone names no task. */
const nameOf = (accountId: string, taskId: string): string => `${accountId} ${taskId}`;
