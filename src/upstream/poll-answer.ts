import type { TaskStatus } from "../domain/answers.ts";
import { isObject, parseObject } from "../domain/json.ts";
import type { PolledTask as AdaptersTask, Polled, ResultElsewhere } from "./adapter.ts";
import { type Answer, dataText, readTask, type StatusWords, shownTaskId, taskWithId } from "./answer.ts";
import { describePoll, excerptOf } from "./answer-excerpt.ts";
import {
  AdapterMistake,
  type CheckedRequest,
  checkRequest,
  type Dialect,
  responseOf,
  returned,
} from "./dialect.ts";
import { readRejection, type UpstreamRejection } from "./rejection.ts";

/** The meaning of an answer to a poll; `data` is the task as JSON, `Task` in docs/openapi.json. */
export type PollAnswer =
  | Exclude<UpstreamRejection, { outcome: "refused" }>
  /** `aboutTask`: the API itself refused, and for good; else a proxy's answer, or a transient fault. */
  | (Extract<UpstreamRejection, { outcome: "refused" }> & { aboutTask: boolean })
  /** `lacksVideo`: the upstream said that it has completed, without a usable `video_url`, so it counts as processing. */
  | { outcome: "task"; status: TaskStatus; data: string; lacksVideo?: true }
  /** The task exists, in a state of another name; `data` says `processing`. */
  | { outcome: "unknown_status"; word: string; data: string }
  | { outcome: "gone" }
  | { outcome: "misrouted"; detail: string }
  | { outcome: "failed"; detail: string };

export interface ResultRequest {
  outcome: "result_elsewhere";
  request: CheckedRequest;
}

export interface PolledTask {
  taskId: string;
  endpoint?: AdaptersTask["endpoint"];
  /** When the task was bound, Unix ms: for an answer that does not say when it was created. */
  createdAtMs?: number | undefined;
  statuses?: StatusWords | undefined;
}

export const ANOTHER_TASK = "the answer is about another task";

export function readPoll(answer: Answer, task: PolledTask, dialect: Dialect): PollAnswer | ResultRequest {
  const { adapter, options } = dialect;
  return read("polled", answer, task, dialect, (response, polledTask) =>
    adapter.polled(response, polledTask, options),
  );
}

export function readResult(answer: Answer, task: PolledTask, dialect: Dialect): PollAnswer {
  const { adapter, options } = dialect;
  const outcome = read("result", answer, task, dialect, (response, polledTask) => {
    if (adapter.result === undefined) throw new AdapterMistake("is missing");
    return adapter.result(response, polledTask, options);
  });
  return outcome.outcome === "result_elsewhere" ? failed("the result is at a third address") : outcome;
}

function read(
  called: "polled" | "result",
  answer: Answer,
  task: PolledTask,
  dialect: Dialect,
  run: (response: ReturnType<typeof responseOf>, task: AdaptersTask) => Polled | ResultElsewhere,
): PollAnswer | ResultRequest {
  const json = parseObject(answer.body);
  const outcome = dialect.call(called, "", () => {
    const polled = returned(run(responseOf(answer, json), { taskId: task.taskId, endpoint: task.endpoint }));
    return interpret(polled, answer, task, () => describePoll(answer, json));
  });
  if (outcome.outcome !== "adapter_fault") return outcome;
  return failed(`${outcome.detail}; ${describePoll(answer, json)}`);
}

function interpret(
  polled: Polled | ResultElsewhere,
  answer: Answer,
  task: PolledTask,
  described: () => string,
): PollAnswer | ResultRequest {
  switch (polled.outcome) {
    case "task":
      return aboutTask(polled, task);
    case "result_elsewhere":
      return { outcome: "result_elsewhere", request: checkRequest(polled.request) };
    case "gone":
      return { outcome: "gone" };
    case "misrouted":
      return { outcome: "misrouted", detail: described() };
    case "failed":
      return failed(polled.why === undefined ? described() : excerptOf(polled.why, ""));
    default: {
      const rejection = readRejection(polled, answer, described());
      if (rejection.outcome !== "refused") return rejection;
      return { ...rejection, aboutTask: "isFinal" in polled && polled.isFinal === true };
    }
  }
}

function aboutTask(
  { status, task: reported }: Extract<Polled, { outcome: "task" }>,
  task: PolledTask,
): PollAnswer {
  if (!isObject(reported)) throw new AdapterMistake("returned a task that is no object");
  if (reported.task_id !== undefined && reported.task_id !== task.taskId) return failed(ANOTHER_TASK);
  if (typeof status !== "string" || status === "") return failed("the answer has no status");
  const data = taskWithId(reported, shownTaskId(task.taskId) ?? task.taskId);
  const reading = readTask(data, status, task);
  const text = dataText(reading.data);
  if (reading.status === undefined) return { outcome: "unknown_status", word: reading.word, data: text };
  const known = { outcome: "task", status: reading.status, data: text } as const;
  return reading.lacksVideo ? { ...known, lacksVideo: true } : known;
}

const failed = (detail: string): PollAnswer => ({ outcome: "failed", detail });
