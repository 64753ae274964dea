import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** How the upstream answers a generation. It makes the task in any case. */
export type Create = "answer" | "hang" | "reset" | "refuse";

export interface MadeTask {
  taskId: string;
  /** The gateway's request. */
  body: Record<string, unknown>;
  callBackUrl: string | undefined;
  status: "processing" | "completed" | "failed";
  /** Answers the generation that hangs. */
  answer(): void;
  refuse(): void;
}

export type CallbackUpstream = Awaited<ReturnType<typeof givenCallbackUpstream>>;

/** An upstream in the interface's shapes whose tasks and answers the test decides, and which calls back when the test says so. */
export async function givenCallbackUpstream() {
  const tasks: MadeTask[] = [];
  const polls: string[] = [];
  let create: Create = "answer";
  let isDown = false;
  /** So many polls do not find a task that was made. */
  let unknownPolls = 0;

  const send = (response: ServerResponse, status: number, body: object): void => {
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
  };

  async function generate(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let text = "";
    for await (const chunk of request) text += String(chunk);
    const body: Record<string, unknown> = JSON.parse(text);
    const taskId = `task_${randomUUID()}`;
    const answer = (): void =>
      send(response, 200, { code: 200, msg: "success", data: { task_id: taskId, status: "pending" } });
    const refuse = (): void => send(response, 422, { code: 422, msg: "No", error: "No" });
    const { callBackUrl } = body;
    const address = typeof callBackUrl === "string" ? callBackUrl : undefined;
    tasks.push({ taskId, body, callBackUrl: address, status: "processing", answer, refuse });
    if (create === "refuse") refuse();
    if (create === "answer") answer();
    if (create === "reset") response.destroy();
  }

  const view = ({ taskId, status }: MadeTask) => ({
    task_id: taskId,
    status,
    created_at: "2026-01-01T00:00:00Z",
    ...(status === "completed" && { video_url: `https://videos.example/${taskId}.mp4` }),
  });

  const server = createServer((request, response) => {
    if (request.method === "POST") return void generate(request, response).catch(() => response.destroy());
    const taskId = request.url?.split("/").at(-1) ?? "";
    polls.push(taskId);
    if (isDown) return void send(response, 503, { code: 503, msg: "Down", error: "Down" });
    const task = tasks.find((one) => one.taskId === taskId);
    if (!task || unknownPolls-- > 0)
      return void send(response, 404, { code: 404, msg: "Task not found", error: "Task not found" });
    send(response, 200, { code: 200, msg: "success", data: view(task) });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");

  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    tasks,
    polls,
    behave(how: { create?: Create; isDown?: boolean; unknownPolls?: number }): void {
      create = how.create ?? "answer";
      isDown = how.isDown ?? false;
      unknownPolls = how.unknownPolls ?? 0;
    },
    /** The callback to the address that it was given. */
    callbackOf: (task: MadeTask) => ({ code: 200, msg: "success", data: view(task) }),
    stop(): void {
      server.close();
      server.closeAllConnections();
    },
  };
}
