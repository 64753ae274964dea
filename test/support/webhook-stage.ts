import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeAll, beforeEach } from "vitest";
import { givenManageStage } from "../gateway/manage-stage.ts";
import { expectStatus, type givenGateway, type TestGateway, until } from "./gateway.ts";
import { hasten } from "./hasten.ts";
import { givenRedis, TEXT_TO_VIDEO, type TestRedis } from "./store-stage.ts";

export const WEBHOOK_SECRET_KEY = "a-key-of-webhook-secrets-for-tests-only";

/** A message as a receiver got it. */
export interface Received {
  url: string;
  headers: IncomingMessage["headers"];
  body: string;
  atMs: number;
}

type Answer = (response: ServerResponse, received: Received) => void;

export const answer =
  (status: number, headers: Record<string, string> = {}, body = ""): Answer =>
  (response) =>
    void response.writeHead(status, headers).end(body);

export type Receiver = Awaited<ReturnType<typeof givenReceiver>>;

/** A customer's server on loopback. It answers as `says` has it at that moment. */
export async function givenReceiver(first: Answer = answer(200)) {
  const received: Received[] = [];
  let says = first;
  let underWay = 0;
  let mostUnderWay = 0;
  const server = createServer((request, response) => {
    mostUnderWay = Math.max(mostUnderWay, ++underWay);
    response.on("close", () => underWay--);
    let body = "";
    request.setEncoding("utf8").on("data", (part: string) => {
      body += part;
    });
    request.on("end", () => {
      const one = { url: request.url ?? "", headers: request.headers, body, atMs: performance.now() };
      received.push(one);
      says(response, one);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/hook`,
    received,
    /** Ids of the messages, in the order in which they came. */
    ids: () => received.map(({ headers }) => headers["webhook-id"] as string),
    /** Most requests at one time. */
    mostUnderWay: () => mostUnderWay,
    forget(): void {
      received.length = 0;
    },
    say(next: Answer): void {
      says = next;
    },
    async stop(): Promise<void> {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

/** For each test of a file a Redis and a receiver of its own, beside gateways whose long intervals are short. */
export function ownRedisAndReceiver() {
  const own = {} as { redis: TestRedis; receiver: Receiver };
  beforeAll(hasten);
  beforeEach(async () => {
    own.redis = await givenRedis();
    own.receiver = await givenReceiver();
  });
  afterEach(async () => {
    await own.receiver.stop();
    await own.redis.stop();
  });
  return own;
}

type Options = NonNullable<Parameters<typeof givenGateway>[0]>;
type Manage = Awaited<ReturnType<typeof givenManageStage>>;

/** An account with a key, and an endpoint of it. */
export async function givenEndpoint(stage: Manage, url: string, events = ["task.completed", "task.failed"]) {
  const accountId = await stage.givenAccount(100_000);
  const limits = { rate_limit: 100_000, max_concurrent: 10_000, daily_limit: 1_000_000 };
  const { key } = await stage.givenKey(accountId, { limits });
  const reply = await stage.manage("POST", `/accounts/${accountId}/webhooks`, { body: { url, events } });
  expectStatus(reply, 201);
  const { id, secret } = reply.body as { id: string; secret: string };
  const path = `/accounts/${accountId}/webhooks/${id}`;
  return {
    ...{ accountId, key: key as string, id, secret, path },
    read: async () => (await stage.manage("GET", path)).body,
    deliveries: async (query = "") => (await stage.manage("GET", `${path}/deliveries${query}`)).body.data,
    /** One delivery that ended. */
    ended: (eventId: string) =>
      untilFound(async () => {
        const { body } = await stage.manage("GET", `${path}/deliveries?limit=100`);
        return body.data.find(
          (one: { id: string; ended_at: string | null }) => one.id === eventId && one.ended_at,
        );
      }),
  };
}

async function untilFound<T>(find: () => Promise<T | undefined>): Promise<T> {
  let found: T | undefined;
  await until(async () => {
    found = await find();
    return found !== undefined;
  }, "the delivery to end");
  return found!;
}

type Gateway = Pick<TestGateway, "request">;

/** Makes a task and polls it to its end. */
export async function finishTask(gateway: Gateway, key: string, prompt = "rain"): Promise<string> {
  const made = await gateway.request("POST", TEXT_TO_VIDEO, { key, body: { prompt } });
  expectStatus(made, 200);
  const taskId = made.body.data.task_id as string;
  await until(async () => {
    const { body } = await gateway.request("GET", `/api/v1/tasks/${taskId}`, { key });
    return ["completed", "failed"].includes(body.data.status);
  }, "the task to end");
  return taskId;
}

/** An endpoint that has answered: it gets four messages at a time. The receiver has forgotten that. */
export async function givenKnownEndpoint(stage: Manage, receiver: Receiver) {
  const endpoint = await givenEndpoint(stage, receiver.url);
  await stage.manage("POST", `${endpoint.path}/test`);
  await until(async () => (await endpoint.deliveries())[0]?.status === "delivered", "it to answer");
  receiver.forget();
  return endpoint;
}

/** A gateway that sends to loopback, in front of a generator whose tasks complete at once. Retries come without delay. */
export const givenWebhookStage = (options: Options = {}) =>
  givenManageStage({
    behaviour: { durationMs: 0, startDelayMs: 0 },
    ...options,
    config: {
      ...options.config,
      webhooks: {
        secretKey: WEBHOOK_SECRET_KEY,
        allowNetworks: ["127.0.0.0/8"],
        retriesMs: [0, 0, 0],
        ...options.config?.webhooks,
      },
    },
  });
