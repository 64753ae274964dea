import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { Webhook } from "standardwebhooks";
import { CALLBACK, type Look, type ReceivedMessage } from "./history.ts";
import { createRandom, seedFor } from "./random.ts";

/** How customers' servers answer. `dead` answers 500 for ever, `gone` sometimes 410; `inner` is at an address that gateways may not call. */
export type Manner = "answers" | "fickle" | "slow" | "gone" | "dead" | "hangs" | "inner";

type Answer = (response: ServerResponse) => void | Promise<void>;

const status =
  (code: number, headers: Record<string, string> = {}): Answer =>
  (response) =>
    void response.writeHead(code, headers).end();

/** Bad answers, after which the gateway tries again. */
const BAD: Readonly<Record<string, Answer>> = {
  500: status(500),
  429: status(429, { "retry-after": "1" }),
  hang: () => undefined,
  reset: (response) => void response.socket?.resetAndDestroy(),
  "close early": (response) => void response.destroy(),
};
/** Good ones that come in odd ways. */
const GOOD: Readonly<Record<string, Answer>> = {
  200: status(200),
  204: status(204),
  async drip(response) {
    response.writeHead(200);
    for (let at = 0; at < 5 && !response.destroyed; at++) {
      response.write("x");
      await pause(30);
    }
    response.end();
  },
};
/** Tries of one message that a fickle receiver answers badly, at most. */
const BAD_MAX = 2;
const BAD_SHARE = 0.6;
const GONE_SHARE = 0.05;
const SLOW_MS = 400;
/** A store that is away is not waited for: the gateway would try again meanwhile. */
const LOOK_MS_MAX = 600;

interface ReceiverOptions {
  seed: number;
  /** Where redirects lead: nobody follows them. */
  redirects: readonly string[];
  /** Secrets of an account's endpoints, by endpoint id. */
  secretsOf(accountId: string): ReadonlyMap<string, string>;
  /** The task in store and API while its message waits for an answer. */
  look(message: ReceivedMessage): Promise<Look | undefined>;
}

/** Moments at which a scenario may strike. */
interface ReceiverHooks {
  /** The message is there, and nothing is answered. `hold` as the answer keeps it so until its connection closes. */
  arrived?(message: ReceivedMessage): "hold" | Promise<void> | undefined;
  /** The answer was handed to the kernel. */
  answered?(message: ReceivedMessage): void;
}

/** Customers' servers, all at one port: the path says whose endpoint it is, and how it answers. Keeps each try of each message. */
export class Receiver {
  readonly messages: ReceivedMessage[] = [];
  readonly #options: ReceiverOptions;
  readonly #triesOf = new Map<string, number>();
  readonly #sockets = new Set<Socket>();
  /** By path: endpoints that were registered there. */
  readonly #endpointAt = new Map<string, string>();
  readonly #server: Server;
  #hooks: ReceiverHooks = {};
  #isDown = false;

  private constructor(options: ReceiverOptions) {
    this.#options = options;
    this.#server = createServer((request, response) => {
      response.on("error", () => undefined);
      this.#receive(request, response).catch(() => response.destroy());
    });
    this.#server.on("connection", (socket) => {
      socket.on("error", () => undefined);
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
      if (this.#isDown) socket.destroy();
    });
  }

  static async start(options: ReceiverOptions): Promise<Receiver> {
    const receiver = new Receiver(options);
    receiver.#server.listen(0, "127.0.0.1");
    await once(receiver.#server, "listening");
    return receiver;
  }

  /** An address at which it answers in this manner. */
  urlFor(accountId: string, manner: Manner, name = CALLBACK): string {
    const { port } = this.#server.address() as AddressInfo;
    return `http://127.0.0.1:${port}/${accountId}/${manner}/${name}`;
  }

  /** From now on messages to this address are those of an endpoint. */
  expect(url: string, endpointId: string): void {
    this.#endpointAt.set(new URL(url).pathname, endpointId);
  }

  steer(next: ReceiverHooks): void {
    this.#hooks = next;
  }

  /** Takes no connections, and ends those that there are. */
  down(next: boolean): void {
    this.#isDown = next;
    if (next) for (const socket of this.#sockets) socket.destroy();
  }

  stop(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  async #receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const arrivedMs = Date.now();
    const chunks: Buffer[] = [];
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
    const body = Buffer.concat(chunks).toString();
    const [, accountId = "", manner = ""] = (request.url ?? "").split("/");
    const endpointId = this.#endpointAt.get(request.url ?? "") ?? CALLBACK;
    const secrets = this.#options.secretsOf(accountId);
    const message = messageOf({ accountId, endpointId, body, arrivedMs }, request, secrets);
    this.messages.push(message);
    response.once("close", () => {
      message.endedMs = Date.now();
      // The head decides, also if the body breaks.
      if (response.headersSent) message.status = response.statusCode;
    });
    const nth = this.#nthTry(message);
    const held = this.#hooks.arrived?.(message);
    const seen = await Promise.race([this.#options.look(message), pause(LOOK_MS_MAX, undefined)]);
    if (seen) message.look = seen;
    if (held === "hold") return;
    await held;
    if (manner === "slow") await pause(SLOW_MS);
    if (response.destroyed) return;
    response.once("finish", () => {
      message.status = response.statusCode;
      this.#hooks.answered?.(message);
    });
    const [name, answer] = this.#answerOf(manner as Manner, message.webhookId, nth);
    message.answer = name;
    await answer(response);
  }

  #nthTry({ endpointId, webhookId }: ReceivedMessage): number {
    const name = `${endpointId} ${webhookId}`;
    const nth = (this.#triesOf.get(name) ?? 0) + 1;
    this.#triesOf.set(name, nth);
    return nth;
  }

  #answerOf(manner: Manner, webhookId: string, nth: number): [name: string, Answer] {
    const random = createRandom(seedFor(this.#options.seed, `${webhookId} ${nth}`));
    if (manner === "dead") return ["500", BAD[500]!];
    if (manner === "hangs") return ["hang", BAD.hang!];
    if (manner === "gone" && random.chance(GONE_SHARE)) return ["410", status(410)];
    if (manner === "fickle" && nth <= BAD_MAX && random.chance(BAD_SHARE)) {
      const location = random.pick(this.#options.redirects);
      return random.pick(Object.entries({ ...BAD, 302: status(302, { location }) }));
    }
    return manner === "fickle" ? random.pick(Object.entries(GOOD)) : ["200", GOOD[200]!];
  }
}

function messageOf(
  known: Pick<ReceivedMessage, "accountId" | "endpointId" | "body" | "arrivedMs">,
  { headers }: IncomingMessage,
  secrets: ReadonlyMap<string, string>,
): ReceivedMessage {
  const { type = "", data = {} } = parsed(known.body);
  const candidates = known.endpointId === CALLBACK ? [...secrets.values()] : [secrets.get(known.endpointId)];
  const isSigned = headers["webhook-signature"] !== undefined;
  return {
    ...known,
    webhookId: String(headers["webhook-id"]),
    type,
    taskId: data.task_id ?? "",
    signedWell: isSigned
      ? candidates.some((secret) => secret !== undefined && verifies(secret, known.body, headers))
      : undefined,
    status: 0,
    endedMs: 0,
  };
}

function parsed(body: string): { type?: string; data?: { task_id?: string } } {
  try {
    return JSON.parse(body);
  } catch {
    return {};
  }
}

function verifies(secret: string, body: string, headers: IncomingMessage["headers"]): boolean {
  try {
    new Webhook(secret).verify(body, headers as Record<string, string>);
    return true;
  } catch {
    return false;
  }
}
