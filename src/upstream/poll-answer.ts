import { isObject, parseObject } from "../domain/json.ts";
import type { StatusWords, TaskStatus } from "../domain/task-states.ts";
import {
  type Answer,
  codeOf,
  dataText,
  describeAnswer,
  type Envelope,
  isRedirect,
  isSuccessCode,
  isSuccessStatus,
  readRejection,
  readTask,
  type UpstreamRejection,
} from "./answer.ts";

/** What an answer to a poll means; `data` is the task as JSON, `Task` in docs/openapi.json. */
export type PollAnswer =
  | Exclude<UpstreamRejection, { outcome: "refused" }>
  /** `aboutTask`: the API itself refused, and for good; else a proxy's answer, or a transient fault. */
  | (Extract<UpstreamRejection, { outcome: "refused" }> & { aboutTask: boolean })
  /** `lacksVideo`: the upstream said that it has completed, without a usable `video_url`, so it counts as processing. */
  | { outcome: "task"; status: TaskStatus; data: string; lacksVideo?: true }
  /** The task exists, in a state of another name; `data` says `processing`. */
  | { outcome: "unknown_status"; word: string; data: string }
  /** An envelope with code 404: the API does not know the task. */
  | { outcome: "gone" }
  /** HTTP 404 without an envelope, or a redirect: the server that answered does not serve the API there. */
  | { outcome: "misrouted"; detail: string }
  | { outcome: "failed"; detail: string };

/** What the gateway knows of a task beside the answer. */
export interface PolledTask {
  taskId: string;
  /** When the task was bound, Unix ms: for an answer that does not say when it was created. */
  createdAtMs?: number | undefined;
  /** `upstream.statuses` */
  statuses?: StatusWords | undefined;
}

export const ANOTHER_TASK = "the answer is about another task";

/** Reads an answer to a poll. */
export function readPoll(answer: Answer, task: PolledTask): PollAnswer {
  const { status } = answer;
  const envelope = parseObject(answer.body);
  const isSuccess = isSuccessStatus(status);
  const lenientCode = codeOf(envelope);
  if (isSuccess && isSuccessCode(lenientCode) && isObject(envelope?.data)) {
    return aboutTask(envelope.data, task);
  }
  const code = typeof envelope?.code === "number" ? envelope.code : undefined;
  if (code === 404 && (status === 404 || isSuccess)) return { outcome: "gone" };
  if (isRedirect(status) || (status === 404 && (code === undefined || code === 200))) {
    return { outcome: "misrouted", detail: describeAnswer(answer, envelope) };
  }
  if (isSuccess ? !isSuccessCode(code) : status >= 400 && status < 500) {
    return rejected(answer, envelope, code);
  }
  return failed(describeAnswer(answer, envelope));
}

function aboutTask(data: Record<string, unknown>, task: PolledTask): PollAnswer {
  // The API requires the id; without it, it is not known which task the answer is about.
  if (data.task_id === undefined) return failed("the answer has no task_id");
  if (data.task_id !== task.taskId) return failed(ANOTHER_TASK);
  if (typeof data.status !== "string" || data.status === "") return failed("the answer has no status");
  const reading = readTask(data, data.status, task);
  const text = dataText(reading.data);
  if (reading.status === undefined) return { outcome: "unknown_status", word: reading.word, data: text };
  const said = { outcome: "task", status: reading.status, data: text } as const;
  return reading.lacksVideo ? { ...said, lacksVideo: true } : said;
}

function rejected(answer: Answer, envelope: Envelope, code: number | undefined): PollAnswer {
  const rejection = readRejection(answer, envelope, "task");
  return rejection.outcome === "refused"
    ? { ...rejection, aboutTask: isAboutTask(answer.status, code) }
    : rejection;
}

/** 408, 425 and 5xx are transient faults; an answer without a code is not the API's. */
function isAboutTask(status: number, code: number | undefined): boolean {
  const isTransient = (n: number): boolean => n === 408 || n === 425 || (n >= 500 && n < 600);
  return code !== undefined && !isTransient(status) && !isTransient(code);
}

const failed = (detail: string): PollAnswer => ({ outcome: "failed", detail });
