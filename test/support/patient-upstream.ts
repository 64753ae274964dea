import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** How the upstream ends a generation. */
export type End = "task" | "reset" | "refusal";

export type PatientUpstream = Awaited<ReturnType<typeof givenPatientUpstream>>;

/** An upstream whose generations wait until the test answers them. */
export async function givenPatientUpstream() {
  const waiting: ServerResponse[] = [];
  let tasks = 0;
  const json = (response: ServerResponse, status: number, body: object): void =>
    void response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
  const task = (response: ServerResponse, taskId: string): void =>
    json(response, 200, { code: 200, msg: "success", data: { task_id: taskId, status: "processing" } });
  const server = createServer((request, response) => {
    request.resume().on("end", () => {
      if (request.method === "POST") waiting.push(response);
      else task(response, request.url!.split("/").at(-1)!);
    });
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    /** The generations that wait, in the order in which they came. */
    waiting,
    /** Answers the first of them. */
    answer(end: End): void {
      const response = waiting.shift()!;
      if (end === "task") task(response, `task-${process.pid}-${Date.now()}-${tasks++}`);
      else if (end === "reset") response.socket?.resetAndDestroy();
      else json(response, 400, { code: 400, msg: "no", error: "no" });
    },
    stop(): void {
      server.closeAllConnections();
      server.close();
    },
  };
}
