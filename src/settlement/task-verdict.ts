import { failedTaskJson, isFinal, type Observation, type TaskStatus } from "../domain/answers.ts";
import type { PollOutcome } from "../upstream/poll-request.ts";

/** At this many times its maximum age a task ends even if the upstream has never answered about it. */
const UNANSWERED_AGES = 2;

/** A task that has not ended; its age is counted by the store's clock. */
export interface AgingTask {
  taskId: string;
  createdAtMs: number;
  ageMs: number;
  maxAgeMs: number;
  /** Recorded again, so that it counts as fresh, if the upstream answers with a state that is not known. */
  last?: LastKnown;
}

export interface LastKnown {
  status: TaskStatus;
  data: string;
}

/** The observation that the store records. `data` is the task as JSON, `Task` in docs/openapi.json. */
export interface Verdict {
  status: Observation;
  data: string;
  /** The task ends without evidence: at twice its maximum age, and the upstream gave no answer about it. */
  unanswered: boolean;
}

/** Outcomes that say nothing about the polled task. */
const NO_ANSWER: ReadonlySet<PollOutcome["outcome"]> = new Set([
  "overloaded",
  "failed",
  "timed_out",
  "misrouted",
  "unroutable",
  "refused_gateway",
  "rate_limited",
]);

/** True when the poll reached the upstream's API and was answered there. */
export const isAnswered = (outcome: PollOutcome): boolean => !NO_ANSWER.has(outcome.outcome);

/**
 * The meaning of an upstream's answer for a task that has not ended. The only place where this is decided: decision 0030.
 *
 * | answer                                    | below max_age | from max_age on | from twice max_age on |
 * | ----------------------------------------- | ------------- | --------------- | --------------------- |
 * | completed, failed                         | as it is      | as it is        | as it is              |
 * | pending, processing                       | as it is      | expired         | expired               |
 * | a state that is not known                 | the last one  | expired         | expired               |
 * | gone: an envelope with code 404           | gone          | gone            | expired               |
 * | a refusal of the task itself              | nothing       | expired         | expired               |
 * | no answer about the task                  | nothing       | nothing         | `endUnanswered`       |
 * | never sent, for want of a connection      | nothing       | nothing         | nothing               |
 *
 * OBSERVE ends a task on its third `gone` over a minute; `expired` ends it at once.
 * @returns undefined when nothing is recorded and the task is asked for again
 */
export function judge(task: AgingTask, answer: PollOutcome): Verdict | undefined {
  const isOld = task.ageMs >= task.maxAgeMs;
  if (answer.outcome === "task") {
    return isOld && !isFinal(answer.status)
      ? ended(task, "expired")
      : { status: answer.status, data: answer.data, unanswered: false };
  }
  if (answer.outcome === "unknown_status") {
    return isOld ? ended(task, "expired") : task.last && { ...task.last, unanswered: false };
  }
  if (answer.outcome === "gone") return ended(task, isOverdue(task) ? "expired" : "gone");
  return answer.outcome === "refused" && answer.aboutTask && isOld ? ended(task, "expired") : undefined;
}

/**
 * Ends a task past twice its maximum age although the upstream says nothing about it. Only the sweeper may, and only once it has polled
 * that upstream for a while: after an outage of both, the first poll that fails is no evidence. @returns undefined for a younger one
 */
export const endUnanswered = (task: AgingTask): Verdict | undefined =>
  isOverdue(task) ? ended(task, "expired", true) : undefined;

const isOverdue = ({ ageMs, maxAgeMs }: AgingTask): boolean => ageMs >= UNANSWERED_AGES * maxAgeMs;

function ended(task: AgingTask, status: "gone" | "expired", unanswered = false): Verdict {
  return { status, data: failedTaskJson(task.taskId, task.createdAtMs), unanswered };
}
