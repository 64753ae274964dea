import { type Answer, refusal, success } from "../core/envelope.ts";
import { type Refusal, refuse } from "../core/errors.ts";
import { askAgainMs, endedTask, isFinal, type Observation, TASK_ID } from "../core/tasks.ts";
import type { KnownTask, Observed } from "../store/operations.ts";
import type { PollOutcome } from "../upstream/upstream.ts";
import {
  type Call,
  disown,
  gatewayRefused,
  inspectKey,
  passUnmetered,
  refuseCounted,
  sawKeyGood,
  sawTask,
  storeStep,
  UpstreamStep,
  upstreamLimited,
} from "./gateway.ts";

const UPSTREAM_WAIT_SECONDS = 5;
const OVERLOADED_WAIT_SECONDS = 1;

/** An upstream poll and its settlement that several clients may wait for. */
interface Flight {
  /** The key whose numbers `observed` carries. */
  pollerKeyId: string;
  result: Promise<{ outcome: PollOutcome; observed: Observed | undefined }>;
}

export type PollTask = (call: Call, taskId: string) => Promise<Answer>;

/**
 * GET /tasks/{taskId}: INSPECT, then the cache that all gateways share or one upstream call for all who wait, then
 * OBSERVE settles it before anybody is answered. Spec 4.8, DESIGN 3.
 */
export function createTaskPolls(): PollTask {
  const flights = new Map<string, Flight>();

  return async (call, taskId) => {
    const { gateway, config, exchange, key } = call;
    if (!TASK_ID.test(taskId)) return answer(call, await refuseCounted(call, refuse("task_not_found")));
    let task: KnownTask;
    try {
      const asked = gateway.store.inspectTask(key, taskId, config.tasks.cacheMs, config.tiers);
      const inspection = await storeStep(call, "INSPECT", asked);
      exchange.state = inspection.state;
      if (inspection.outcome === "unknown_key") return answer(call, disown(call));
      sawKeyGood(call);
      if (inspection.outcome !== "task") {
        if (gateway.unmeteredTasks.has(taskId, key.accountId)) return unmetered(call, taskId);
        return answer(call, refuse("task_not_found"));
      }
      ({ task } = inspection);
    } catch (error) {
      if (gateway.seenTasks.has(taskId, key.accountId) && (await passUnmetered(call, error)))
        return unmetered(call, taskId);
      throw error;
    }
    // Not before: until it is known to be a task it is what a customer wrote into a path, be it his key.
    exchange.taskId = taskId;
    sawTask(call, taskId);
    if (task.fresh) return success(task.data, undefined, "cached");

    // A task id belongs to one account, whose partition its name carries.
    const name = `${key.accountId} ${taskId}`;
    let flight = flights.get(name);
    if (!flight) {
      flight = { pollerKeyId: key.keyId, result: ask(call, task) };
      flights.set(name, flight);
      void flight.result.catch(() => undefined).finally(() => flights.delete(name));
    }
    const waitedFromMs = performance.now();
    const { outcome, observed } = await flight.result;
    // Who waited for another's call waited for the upstream, too.
    exchange.upstreamMs ??= performance.now() - waitedFromMs;
    if (observed && flight.pollerKeyId === key.keyId) exchange.state = observed.state;
    else if (observed) await inspectKey(call);
    return tell(call, task, outcome, observed);
  };
}

/** Asks the upstream and settles what it says. */
async function ask(
  call: Call,
  task: KnownTask,
): Promise<{ outcome: PollOutcome; observed: Observed | undefined }> {
  const { gateway, config, exchange, key } = call;
  const step = new UpstreamStep(call, "poll");
  const asked = gateway.upstream(config).poll(task.taskId, exchange.requestId, step.carried);
  const outcome = step.end(await asked);
  if (outcome.outcome !== "task" && outcome.outcome !== "gone") return { outcome, observed: undefined };
  const { refundFailed, pollIntervalMs } = config.tasks;
  const { maxAgeMs = config.tasks.maxAgeMs } = task;
  const said = observationOf(task, outcome, maxAgeMs);
  const settled = gateway.store.observe({ partition: key.partition, accountId: key.accountId, task }, said, {
    refundFailed,
    pollMs: askAgainMs(pollIntervalMs, task.ageMs, maxAgeMs),
    poller: key,
    tiers: config.tiers,
  });
  return { outcome, observed: await storeStep(call, "OBSERVE", settled) };
}

/**
 * What the store is told. A task beyond its maximum age ends here, too: a customer who asks often puts the sweeper's turn
 * off each time.
 */
function observationOf(
  { taskId, createdAtMs, ageMs }: KnownTask,
  outcome: Extract<PollOutcome, { outcome: "task" | "gone" }>,
  maxAgeMs: number,
): { status: Observation; data: string } {
  const isTooOld = ageMs >= maxAgeMs;
  if (outcome.outcome === "task" && (isFinal(outcome.status) || !isTooOld)) return outcome;
  return { status: isTooOld ? "expired" : "gone", data: endedTask(taskId, createdAtMs) };
}

/** What the customer is told; an ended task stays as it ended, whatever the upstream says or does not say now. */
function tell(call: Call, task: KnownTask, outcome: PollOutcome, observed: Observed | undefined): Answer {
  // Forgotten since it was looked up: what the upstream says of this task id may be about another account's by now.
  if (observed?.outcome === "missing") return answer(call, refuse("task_not_found"));
  if (observed && isFinal(observed.status)) return success(observed.data);
  if (!observed && isFinal(task.status)) return success(task.data, undefined, "cached");
  if (outcome.outcome === "task") return success(outcome.data);
  return answer(call, pollRefusal(call, outcome));
}

function pollRefusal(call: Call, outcome: Exclude<PollOutcome, { outcome: "task" }>): Refusal {
  switch (outcome.outcome) {
    case "gone":
      return refuse("task_not_found", { detail: "the upstream does not know the task" });
    case "refused":
      return refuse("upstream_refused", { status: outcome.status, code: outcome.code, text: outcome.text });
    case "rate_limited":
      return upstreamLimited(outcome.retryAfterSeconds);
    case "refused_gateway":
      return gatewayRefused(call, outcome.detail);
    case "overloaded":
      return refuse("overloaded", { retryAfterSeconds: OVERLOADED_WAIT_SECONDS, detail: outcome.detail });
    case "failed":
      return refuse("upstream_failed", {
        text: "The video generation service could not be asked for this task",
        retryAfterSeconds: UPSTREAM_WAIT_SECONDS,
        detail: outcome.detail,
      });
    case "timed_out":
      return refuse("upstream_timeout", {
        text: "The video generation service gave no answer in time",
        retryAfterSeconds: UPSTREAM_WAIT_SECONDS,
        detail: outcome.detail,
      });
  }
}

/** The store is away and the strategy is `allow`: passed through for a task this gateway has seen. */
async function unmetered(call: Call, taskId: string): Promise<Answer> {
  const { gateway, config, exchange } = call;
  exchange.taskId = taskId;
  const step = new UpstreamStep(call, "poll");
  const outcome = step.end(await gateway.upstream(config).poll(taskId, exchange.requestId, step.carried));
  return outcome.outcome === "task"
    ? success(outcome.data, [], "unmetered")
    : answer(call, pollRefusal(call, outcome));
}

const answer = (call: Call, refused: Refusal): Answer => refusal(refused, call.exchange.shownId);
