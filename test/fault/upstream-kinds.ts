import type { ServerResponse } from "node:http";
import type { Truth } from "./history.ts";
import type { Saying, UpstreamTask, Wish } from "./upstream.ts";

/** One way in which the upstream behaves. */
export interface Kind {
  /** Meaning of its answer to a generation. */
  truth: Truth;
  answer(response: ServerResponse, taskId: string): void | Promise<void>;
  /** The id of its task, where that is not a new one; empty: it makes none. */
  taskId?(settledTaskId: string, wish: Wish): string;
  /** In place of telling the task's state. */
  poll?(response: ServerResponse, task: UpstreamTask, status: string, tell: Tell): void;
}

/** Logs a state as told, and says it. */
type Tell = (status: string, saying?: Saying) => void;

const good = (taskId: string) => ({
  code: 200,
  msg: "success",
  data: { task_id: taskId, status: "pending" },
});
const accept = (response: ServerResponse, taskId: string): void => json(response, 200, good(taskId));
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const refusing = (status: number, code: number, more: object = {}): Kind => ({
  truth: "no",
  answer: (response) => json(response, status, { code, msg: "no", error: "no", ...more }),
});
const unclear = (answer: Kind["answer"], taskId?: Kind["taskId"]): Kind => ({
  truth: "unknown",
  answer,
  ...(taskId ? { taskId } : {}),
});
/** 200 with a body of its own. */
const saying = (text: (taskId: string) => string): Kind =>
  unclear((response, taskId) => {
    const body = text(taskId);
    response.writeHead(200, {
      "content-type": "application/json",
      "content-length": Buffer.byteLength(body),
    });
    response.end(body);
  });
/** Accepts, and is difficult about the first polls. */
const polled = (poll: NonNullable<Kind["poll"]>): Kind => ({ truth: "yes", answer: accept, poll });

/** Accepts, and says so and all states in this way. */
const succeeding = (http: number, code: number): Kind => ({
  truth: "yes",
  answer: (response, taskId) => json(response, http, { ...good(taskId), code, error: "ok" }),
  poll: (_response, _task, status, tell) => tell(status, { http, code }),
});
/** Interim answers before each answer. */
const beginning = (interim: (response: ServerResponse) => void): Kind => ({
  truth: "yes",
  answer(response, taskId) {
    interim(response);
    accept(response, taskId);
  },
  poll(response, _task, status, tell) {
    interim(response);
    tell(status);
  },
});
/** Refuses, and names a task that it may have made. */
const refusingWithTask = (status: number): Kind =>
  unclear((response, taskId) => json(response, status, { ...good(taskId), code: status, error: "no" }));

/** Accepts, and answers polls in this way while its task is of the age that the request names. */
const badAtAnAge = (answer: (response: ServerResponse, task: UpstreamTask) => void): Kind =>
  polled((response, task, status, tell) => {
    const ageMs = Date.now() - task.madeMs;
    if (ageMs >= task.wish.badFromMs && ageMs < task.wish.badToMs) answer(response, task);
    else tell(status);
  });

async function drip(response: ServerResponse, taskId: string): Promise<void> {
  const body = JSON.stringify(good(taskId));
  response.writeHead(200, { "content-type": "application/json", "content-length": body.length });
  for (let at = 0; at < body.length && !response.destroyed; at++) {
    response.write(body[at]);
    await pause(50);
  }
  response.end();
}

/** Of the scenario `upstream`. */
const MISBEHAVING: Readonly<Record<string, Kind>> = {
  hangs: unclear(() => undefined),
  answers_too_late: unclear(async (response, taskId) => {
    await pause(1600);
    if (!response.destroyed) accept(response, taskId);
  }),
  drips: unclear(drip),
  resets: unclear((response) => void response.socket?.resetAndDestroy()),
  resets_after_headers: unclear((response) => {
    response.writeHead(200, { "content-length": 100 }).flushHeaders();
    setTimeout(() => response.socket?.resetAndDestroy(), 5);
  }),
  truncates: unclear((response, taskId) => {
    const body = JSON.stringify(good(taskId));
    response.writeHead(200, { "content-type": "application/json", "content-length": body.length });
    response.write(body.slice(0, body.length >> 1), () => response.destroy());
  }),
  answers_html: saying(() => "<!doctype html><title>Oops</title>"),
  cuts_json: saying((taskId) => JSON.stringify(good(taskId)).slice(0, -2)),
  tells_no_task_id: saying(() => JSON.stringify({ code: 200, msg: "success", data: { status: "pending" } })),
  tells_a_bad_task_id: saying(() => JSON.stringify(good("../../etc/passwd"))),
  tells_too_much: saying((taskId) => JSON.stringify({ ...good(taskId), pad: "x".repeat(2_000_000) })),
  says_204: unclear((response) => void response.writeHead(204).end()),
  fails_500: unclear((response) => json(response, 500, { code: 500, msg: "oops" })),
  fails_502: unclear((response) => void response.writeHead(502).end("bad gateway")),
  fails_504: unclear((response) => void response.writeHead(504).end("timeout")),
  repeats_a_task_id: unclear(accept, (settledTaskId) => settledTaskId),

  refuses_409_with_a_task_id: refusingWithTask(409),
  fails_500_with_a_task_id: refusingWithTask(500),

  refuses_400: refusing(400, 400),
  redirects: {
    truth: "no",
    answer: (response) => void response.writeHead(302, { location: "/elsewhere" }).end(),
  },
  refuses_401: refusing(401, 401),
  refuses_503: refusing(503, 503),
  limits: refusing(429, 429, { retryAfter: 3 }),
  refuses_in_the_body: refusing(200, 422),
  blames_us_in_the_body: refusing(200, 402),

  succeeds_with_201: succeeding(201, 200),
  succeeds_with_202: succeeding(202, 202),
  succeeds_with_code_0: succeeding(200, 0),
  begins_with_100: beginning((response) => response.writeContinue()),
  begins_with_103: beginning((response) => response.writeEarlyHints({ link: "</x>; rel=preload" })),
  begins_with_100_102_103_100: beginning((response) => {
    response.writeContinue();
    response.writeProcessing();
    response.writeEarlyHints({ link: "</x>; rel=preload" });
    response.writeContinue();
  }),
  /** A number beyond what a double holds. */
  tells_times_in_nanoseconds: {
    truth: "yes",
    answer(response, taskId) {
      const text = JSON.stringify(good(taskId)).replace(
        '"data":{',
        '"data":{"created_at":1764180000000000000,',
      );
      response
        .writeHead(200, { "content-type": "application/json", "content-length": text.length })
        .end(text);
    },
  },
  names_states_otherwise: polled((_response, _task, status, tell) =>
    tell(status, { word: OTHER_WORDS[status]! }),
  ),
  answers_twice: {
    truth: "yes",
    answer(response, taskId) {
      const body = JSON.stringify(good(taskId));
      const head = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`;
      response.socket?.write(head + body + head + body, () => response.emit("finish"));
    },
  },
  forgets_for_a_while: polled((response, task, status, tell) => {
    if (task.polls <= 2) json(response, 404, { code: 404, msg: "Task not found" });
    else tell(status);
  }),
  poll_fails_500: polled((response, task, status, tell) => {
    if (task.polls <= 2) json(response, 500, { code: 500, msg: "oops" });
    else tell(status);
  }),
  poll_answers_html: polled((response, task, status, tell) => {
    if (task.polls <= 2) response.writeHead(200).end("<!doctype html>");
    else tell(status);
  }),
  poll_resets: polled((response, task, status, tell) => {
    if (task.polls <= 2) response.socket?.resetAndDestroy();
    else tell(status);
  }),
  /** Completed and failed by turns, whoever asks. */
  changes_its_mind: polled((_response, task, status, tell) => {
    if (status === "processing") tell(status);
    else tell(task.polls % 2 === 0 ? "completed" : "failed");
  }),
};

/** Answers to polls that say nothing about the task: of the scenario `task-ends`. */
const WITHOUT_ANSWER: Readonly<Record<string, Kind>> = {
  asked_429: badAtAnAge((response) => json(response, 429, { code: 429, msg: "slow down", retryAfter: 1 })),
  asked_401: badAtAnAge((response) => json(response, 401, { code: 401, msg: "who are you" })),
  asked_500: badAtAnAge((response) => json(response, 500, { code: 500, msg: "oops" })),
  asked_and_hangs: badAtAnAge(() => undefined),
  asked_and_html_404: badAtAnAge((response) => {
    const page = "<!doctype html><title>404 Not Found</title>";
    response.writeHead(404, { "content-type": "text/html", "content-length": page.length }).end(page);
  }),
  asked_and_no_task_id: badAtAnAge((response) =>
    json(response, 200, { code: 200, msg: "success", data: { status: "failed" } }),
  ),
};

const OTHER_WORDS: Readonly<Record<string, string>> = {
  processing: "IN_PROGRESS",
  completed: "Succeeded",
  failed: "cancelled",
};

/** States that are not the API's: of the scenario `task-ends`. */
const STATES = {
  names_states_otherwise: MISBEHAVING.names_states_otherwise!,
  names_a_state_that_nobody_knows: polled((_response, _task, _status, tell) =>
    tell("unknown", { word: "upscaling" }),
  ),
  completes_without_a_video: polled((_response, _task, status, tell) =>
    tell("processing", { word: status === "processing" ? status : "completed" }),
  ),
} satisfies Record<string, Kind>;

/** By name. */
export const KINDS: Readonly<Record<string, Kind>> = {
  ok: { truth: "yes", answer: accept },
  ...MISBEHAVING,
  ...WITHOUT_ANSWER,
  ...STATES,
  /** Gives the id that the request's tag names, which another request has already. */
  reuses_a_task_id: unclear(accept, (_settled, { tag }) => tag),
};

export const MISBEHAVIOURS = Object.keys(MISBEHAVING);
export const OTHER_STATES = Object.keys(STATES);
export const WITHOUT_ANSWERS = Object.keys(WITHOUT_ANSWER);
/** Answers to a poll that a careless gateway takes for the task's. */
export const WITHOUT_TASK = [
  "asked_and_html_404",
  "asked_and_no_task_id",
] as const satisfies readonly (keyof typeof WITHOUT_ANSWER)[];

export function json(response: ServerResponse, status: number, value: object): void {
  const body = JSON.stringify(value);
  response.writeHead(status, { "content-type": "application/json", "content-length": body.length });
  response.end(body);
}
