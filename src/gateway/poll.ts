import { type Answer, refusal, success } from "../domain/envelope.ts";
import { type ErrorName, type Refusal, refuse } from "../domain/errors.ts";
import { askAgainMs, isFinal, TASK_ID } from "../domain/task-states.ts";
import { reportEnd, reportPollFault } from "../settlement/reports.ts";
import { isAnswered, judge } from "../settlement/task-end.ts";
import type { KnownTask } from "../store/scripts/inspect.ts";
import type { Observed } from "../store/store.ts";
import type { PollOutcome } from "../upstream/poll-request.ts";
import type { TaskUpstream } from "../upstream/task-upstreams.ts";
import { createFailedPolls, type FailedPolls } from "./failed-polls.ts";
import {
  type Call,
  disown,
  inspectKey,
  passUnmetered,
  refuseCounted,
  sawKeyGood,
  sawTask,
  storeStep,
  UpstreamStep,
  upstreamLimited,
} from "./handler-context.ts";

const UPSTREAM_WAIT_SECONDS = 5;
const OVERLOADED_WAIT_SECONDS = 1;

type NotTheTask = Exclude<PollOutcome, { outcome: "task" }>;

/** How a poll of the upstream ended; `refused` is what its customers are told where it did not give the task. */
type Polled =
  | { outcome: Extract<PollOutcome, { outcome: "task" }>; refused: undefined }
  | { outcome: NotTheTask; refused: Refusal };

/** An upstream poll and its settlement that several clients may wait for. */
interface Flight {
  /** The key whose numbers `observed` carries. */
  pollerKeyId: string;
  result: Promise<{ polled: Polled; observed: Observed | undefined }>;
}

export type PollTask = (call: Call, taskId: string) => Promise<Answer>;

/**
 * GET /tasks/{taskId}: INSPECT, then the cache that all gateways share or one upstream call for all who wait, then
 * OBSERVE settles it before anybody is answered.
 */
export function createTaskPolls(): PollTask {
  const flights = new Map<string, Flight>();
  const failures = new WeakMap<TaskUpstream, FailedPolls>();
  const failuresOf = (upstream: TaskUpstream): FailedPolls => {
    const failed = failures.get(upstream) ?? createFailedPolls();
    failures.set(upstream, failed);
    return failed;
  };

  return async (call, taskId) => {
    const { gateway, config, exchange, key } = call;
    if (!TASK_ID.test(taskId)) return answer(call, await refuseCounted(call, refuse("task_not_found")));
    const passedOn = (): Promise<Answer> => {
      const { seenTasks, unmeteredTasks } = gateway;
      const upstream = gateway.upstreamOf(
        unmeteredTasks.upstream(taskId) ?? seenTasks.upstream(taskId),
        config,
      );
      return unmetered(call, taskId, upstream, failuresOf(upstream));
    };
    let task: KnownTask;
    try {
      const asked = gateway.store.inspectTask(key, taskId, config.tasks.cacheMs, config.tiers);
      const inspection = await storeStep(call, "INSPECT", asked);
      exchange.state = inspection.state;
      if (inspection.outcome === "unknown_key") return answer(call, disown(call));
      sawKeyGood(call);
      if (inspection.outcome !== "task") {
        if (await isUnmetered(call, taskId)) return passedOn();
        return answer(call, refuse("task_not_found"));
      }
      ({ task } = inspection);
    } catch (error) {
      if (gateway.seenTasks.has(taskId, key.accountId) && (await passUnmetered(call, error)))
        return passedOn();
      throw error;
    }
    // Not before: until it is known to be a task it is what a customer wrote into a path, be it his key.
    exchange.taskId = taskId;
    sawTask(call, taskId, task.upstream);
    if (task.fresh) return success(task.data, undefined, "cached");

    const name = nameOf(call, taskId);
    let flight = flights.get(name);
    if (!flight) {
      const upstream = gateway.upstreamOf(task.upstream, config);
      const failed = failuresOf(upstream);
      const refused = failed.recall(key.accountId, taskId);
      if (refused) return isFinal(task.status) ? cached(task) : answer(call, refused);
      const result = pollUpstream(call, taskId, upstream, failed).then((polled) =>
        settle(call, task, polled),
      );
      flight = { pollerKeyId: key.keyId, result };
      flights.set(name, flight);
      void flight.result.catch(() => undefined).finally(() => flights.delete(name));
    }
    const waitedFromMs = performance.now();
    const { polled, observed } = await flight.result;
    // Who waited for another's call waited for the upstream, too.
    exchange.upstreamMs ??= performance.now() - waitedFromMs;
    if (observed && flight.pollerKeyId === key.keyId) exchange.state = observed.state;
    else if (observed) await inspectKey(call);
    return tell(call, task, polled, observed);
  };
}

/** A task id belongs to one account, whose partition its name carries. */
const nameOf = ({ key }: Call, taskId: string): string => `${key.accountId} ${taskId}`;

/** Asks the upstream for a task; without an answer the failure is remembered. */
async function pollUpstream(
  call: Call,
  taskId: string,
  upstream: TaskUpstream,
  failed: FailedPolls,
): Promise<Polled> {
  const { gateway, exchange, key } = call;
  const step = new UpstreamStep(call, "poll");
  const { accountId } = key;
  const sender = { accountId, requestId: exchange.requestId, carried: step.carried };
  const outcome = step.end(await upstream.poll(taskId, sender));
  reportPollFault(gateway, exchange.requestId, outcome);
  if (outcome.outcome === "task") {
    failed.ended(key.accountId, taskId, undefined);
    return { outcome, refused: undefined };
  }
  const refused = pollRefusal(outcome);
  // What was never sent says nothing of the upstream.
  if (outcome.outcome !== "overloaded") {
    failed.ended(key.accountId, taskId, isAnswered(outcome) ? undefined : refused);
  }
  return { outcome, refused };
}

/** Records what the answer means for the task, if it means anything. */
async function settle(
  call: Call,
  task: KnownTask,
  polled: Polled,
): Promise<{ polled: Polled; observed: Observed | undefined }> {
  const { gateway, config, key } = call;
  const { refundFailed, pollIntervalMs } = config.tasks;
  const { maxAgeMs = config.tasks.maxAgeMs } = task;
  const verdict = judge({ ...task, maxAgeMs }, polled.outcome);
  if (!verdict) return { polled, observed: undefined };
  const { accountId, partition } = key;
  const settled = gateway.store.observe({ partition, accountId, task }, verdict, {
    refundFailed,
    pollMs: askAgainMs(pollIntervalMs, task.ageMs, maxAgeMs),
    maxAgeMs,
    poller: key,
    tiers: config.tiers,
  });
  const observed = await storeStep(call, "OBSERVE", settled);
  if (observed.outcome === "finished") reportEnd(gateway, { ...task, accountId }, verdict);
  return { polled, observed };
}

/** What the customer is told; an ended task stays as it ended, whatever the upstream says or does not say now. */
function tell(call: Call, task: KnownTask, polled: Polled, observed: Observed | undefined): Answer {
  // Forgotten since it was looked up: what the upstream says of this task id may be about another account's by now.
  if (observed?.outcome === "missing") return answer(call, refuse("task_not_found"));
  if (observed && (isFinal(observed.status) || observed.isDisputed)) return success(observed.data);
  if (!observed && isFinal(task.status)) return cached(task);
  return polled.refused ? answer(call, polled.refused) : success(polled.outcome.data);
}

function pollRefusal(outcome: NotTheTask): Refusal {
  switch (outcome.outcome) {
    case "gone":
      return refuse("task_not_found", { detail: "the upstream does not know the task" });
    case "refused":
      return refuse("upstream_refused", { status: outcome.status, code: outcome.code, text: outcome.text });
    case "rate_limited":
      return upstreamLimited(outcome.retryAfterSeconds);
    case "refused_gateway":
      return notAsked("upstream_refused_gateway", outcome.detail);
    case "overloaded":
      return refuse("overloaded", { retryAfterSeconds: OVERLOADED_WAIT_SECONDS, detail: outcome.detail });
    case "misrouted":
    case "unroutable":
    case "failed":
      return notAsked(
        "upstream_failed",
        outcome.detail,
        "The video generation service could not be asked for this task",
      );
    case "timed_out":
      return notAsked(
        "upstream_timeout",
        outcome.detail,
        "The video generation service gave no answer in time",
      );
  }
}

function notAsked(name: ErrorName, detail: string, text?: string): Refusal {
  const wait = { detail, retryAfterSeconds: UPSTREAM_WAIT_SECONDS };
  return refuse(name, text === undefined ? wait : { ...wait, text });
}

/**
 * True for a task that this process passed unmetered for the account and that nobody owns in the store: what an upstream
 * names again may be bound to another account by now.
 */
async function isUnmetered(call: Call, taskId: string): Promise<boolean> {
  const { gateway, key } = call;
  if (!gateway.unmeteredTasks.has(taskId, key.accountId)) {
    gateway.seenTasks.forget(taskId, key.accountId);
    return false;
  }
  if (!(await storeStep(call, "EXISTS", gateway.store.isTaskBound(taskId)))) return true;
  for (const seen of [gateway.unmeteredTasks, gateway.seenTasks]) seen.forget(taskId, key.accountId);
  return false;
}

/** The store is away and the strategy is `allow`: passed through for a task this gateway has seen. */
async function unmetered(
  call: Call,
  taskId: string,
  upstream: TaskUpstream,
  failed: FailedPolls,
): Promise<Answer> {
  call.exchange.taskId = taskId;
  const remembered = failed.recall(call.key.accountId, taskId);
  if (remembered) return answer(call, remembered);
  const { outcome, refused } = await pollUpstream(call, taskId, upstream, failed);
  return refused ? answer(call, refused) : success(outcome.data, [], "unmetered");
}

const cached = (task: KnownTask): Answer => success(task.data, undefined, "cached");
const answer = (call: Call, refused: Refusal): Answer => refusal(refused, call.exchange.shownId);
