import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { afterEach, expect, test } from "vitest";
import { givenGateway } from "../support/gateway.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

const undo: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

const taskOf = (requestId: string): string => `task-of-${requestId}`;

/**
 * An upstream that answers the next request twice once it is told to: on that connection every later request then gets the
 * answer of the one before it.
 */
async function givenUpstream() {
  const late = new WeakMap<Socket, string>();
  let twice = false;
  const server = createServer((req: IncomingMessage, res: ServerResponse) => {
    req.resume().on("end", () => {
      const [, polled] = /^\/api\/v1\/tasks\/(.+)$/.exec(req.url ?? "") ?? [];
      const taskId = polled ?? taskOf(String(req.headers["x-request-id"]));
      const data = { task_id: taskId, status: "processing", created_at: "2026-01-01T00:00:00Z" };
      const answer = JSON.stringify({ code: 200, msg: "success", data });
      const owed = late.get(req.socket);
      if (twice || owed !== undefined) late.set(req.socket, answer);
      twice = false;
      res.setHeader("content-type", "application/json").end(owed ?? answer);
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  undo.push(async () => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const answerTwice = (): void => {
    twice = true;
  };
  return { url, answerTwice };
}

async function givenStage() {
  const { url: upstreamUrl, answerTwice } = await givenUpstream();
  const config = { upstream: { connections: 1 }, tasks: { cacheMs: 0 } };
  const gateway = await givenGateway({ upstreamUrl, config });
  undo.push(() => gateway.stop());
  const generate = async () => {
    const { key } = await gateway.givenKey();
    const { status, headers, body } = await gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
    return { status, key, taskId: body.data?.task_id, own: taskOf(headers.get("x-request-id") ?? "") };
  };
  const poll = async ({ key, own }: { key: string; own: string }) => {
    const { status, body } = await gateway.request("GET", `/api/v1/tasks/${own}`, { key });
    return { status, taskId: body.data?.task_id };
  };
  return { generate, poll, answerTwice };
}

// Guarantee: one answer too many of the upstream costs one request, not every later one on that connection.
test("after a task id that is taken, later requests get their own answers again", async () => {
  const { generate, answerTwice } = await givenStage();
  answerTwice();
  expect(await generate()).toMatchObject({ status: 200 });
  expect(await generate()).toMatchObject({ status: 502 });
  for (let nth = 0; nth < 2; nth++) {
    const { status, taskId, own } = await generate();
    expect({ status, taskId }).toEqual({ status: 200, taskId: own });
  }
});

test("after a poll's answer about another task, later requests get their own answers again", async () => {
  const { generate, poll, answerTwice } = await givenStage();
  const [one, other, third] = [await generate(), await generate(), await generate()];
  answerTwice();
  expect(await poll(one)).toEqual({ status: 200, taskId: one.own });
  expect(await poll(other)).toMatchObject({ status: 502 });
  // The failure itself is repeated from memory for its retryAfter.
  expect(await poll(other)).toMatchObject({ status: 502 });
  expect(await poll(third)).toEqual({ status: 200, taskId: third.own });
  const { status, taskId, own } = await generate();
  expect({ status, taskId }).toEqual({ status: 200, taskId: own });
});
