import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { givenManageStage } from "../gateway/manage-stage.ts";
import type { givenGateway } from "./gateway.ts";

export const WEBHOOK_SECRET_KEY = "a key of webhook secrets for tests only";

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

type Options = NonNullable<Parameters<typeof givenGateway>[0]>;

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
