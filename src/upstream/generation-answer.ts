import { isObject, parseObject } from "../domain/json.ts";
import type { StatusWords } from "../domain/task-states.ts";
import type { Created } from "./adapter.ts";
import { type Answer, describeAnswer } from "./answer.ts";
import { AdapterMistake, type Dialect, ENVELOPE_DIALECT, responseOf, returned } from "./dialect.ts";
import { readRejection, type UpstreamRejection } from "./rejection.ts";
import { dataText, newTask, taskWithId } from "./task-data.ts";
import { shownTaskId } from "./task-ids.ts";

/** The meaning of an answer to a generation. After `unclear` the task may run; `accepted` is the only definite yes. */
export type GenerationAnswer =
  | UpstreamRejection
  /** `taskId` as customers get it. */
  | { outcome: "accepted"; taskId: string; data: string }
  /** The upstream says that it was not run. */
  | { outcome: "unreachable"; detail: string }
  | { outcome: "unclear"; detail: string };

/**
 * Reads an answer to a generation. What its adapter makes nothing of is unclear, never a refusal. Decision 0003.
 * @param sent the request's body, of which nothing must get into the log
 */
export function readGeneration(
  answer: Answer,
  sent = "",
  statuses?: StatusWords,
  dialect: Dialect = ENVELOPE_DIALECT,
): GenerationAnswer {
  const json = parseObject(answer.body);
  const { adapter, options } = dialect;
  const described = () => describeAnswer(answer, json, sent);
  const read = dialect.call("created", sent, (): GenerationAnswer => {
    const created: Created = returned(adapter.created(responseOf(answer, json), options));
    switch (created.outcome) {
      case "accepted":
        return accepted(created, (task, taskId) => taskText(dialect, sent, task, taskId, statuses));
      case "unavailable":
        return { outcome: "unreachable", detail: described() };
      case "unclear":
        return { outcome: "unclear", detail: described() };
      default:
        return readRejection(created, answer, described());
    }
  });
  if (read.outcome !== "adapter_fault") return read;
  return { outcome: "unclear", detail: `${read.detail}; ${described()}` };
}

type Accepted = Extract<Created, { outcome: "accepted" }>;

/**
 * Nothing is charged without an id in hand; with one, the task is bound whatever else is said of it.
 * @throws AdapterMistake
 */
function accepted(
  { taskId: id, task = {} }: Accepted,
  textOf: (task: unknown, taskId: string) => string,
): GenerationAnswer {
  const taskId = typeof id === "string" ? shownTaskId(id) : undefined;
  if (taskId === undefined) throw new AdapterMistake(`accepted a generation ${whyNoId(id)}`);
  return { outcome: "accepted", taskId, data: textOf(task, taskId) };
}

/** The data of a new task; the id alone if the adapter's cannot be used. */
function taskText(
  dialect: Dialect,
  sent: string,
  task: unknown,
  taskId: string,
  statuses: StatusWords | undefined,
): string {
  const text = dialect.call("created", sent, () => {
    if (!isObject(task)) throw new AdapterMistake("accepted a generation with a task that is no object");
    return dataText(newTask(taskWithId(task, taskId), statuses));
  });
  return typeof text === "string" ? text : JSON.stringify({ task_id: taskId });
}

function whyNoId(id: unknown): string {
  if (typeof id !== "string" || id === "") return "without a task id";
  return `with a task id of ${id.length} characters that is too long or ill-formed`;
}
