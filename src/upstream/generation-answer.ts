import { isObject, parseObject } from "../domain/json.ts";
import type { StatusWords } from "../domain/task-states.ts";
import {
  type Answer,
  describeAnswer,
  type Envelope,
  isRedirect,
  isSuccessCode,
  isSuccessStatus,
  taskIdIn,
} from "./answer.ts";
import { readRejection, type UpstreamRejection } from "./rejection.ts";
import { dataText, newTask } from "./task-data.ts";

/** The id of a task of any form, also where the answer as a whole cannot be read. */
const NAMED_TASK = /"task_id"\s*:\s*(?:"[^"]|[\d[{-])/;

/** What an answer to a generation means. After `unclear` the task may run; `accepted` is the only definite yes. */
export type GenerationAnswer =
  | UpstreamRejection
  | { outcome: "accepted"; taskId: string; data: string }
  /** HTTP 503: it was not run. */
  | { outcome: "unreachable"; detail: string }
  | { outcome: "unclear"; detail: string };

/**
 * Reads an answer to a generation. An id in hand counts more than the code beside it: with any 2xx the task is bound, and
 * polls tell what becomes of it; otherwise the outcome is unclear. It never is a refusal. Decision 0003.
 * @param sent the request's body, of which nothing must get into the log
 */
export function readGeneration(answer: Answer, sent?: string, statuses?: StatusWords): GenerationAnswer {
  const { status } = answer;
  const envelope = parseObject(answer.body);
  const taskId = taskIdIn(envelope);
  const data = envelope?.data;
  if (taskId !== undefined && isSuccessStatus(status) && isObject(data) && data.task_id === taskId) {
    return { outcome: "accepted", taskId, data: dataText(newTask(data, statuses)) };
  }
  const namesTask = taskId !== undefined || NAMED_TASK.test(answer.body);
  if (!namesTask && isRefusal(status, envelope)) return readRejection(answer, envelope, "request", sent);
  const isUnavailable = status === 503 && !namesTask;
  return {
    outcome: isUnavailable ? "unreachable" : "unclear",
    detail: describeAnswer(answer, envelope, sent),
  };
}

/** A success with a code that means something else, a redirect, or HTTP 4xx. */
function isRefusal(status: number, envelope: Envelope): boolean {
  if (isSuccessStatus(status)) return typeof envelope?.code === "number" && !isSuccessCode(envelope.code);
  return isRedirect(status) || (status >= 400 && status < 500);
}
