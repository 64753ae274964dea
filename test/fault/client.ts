import { Agent, type ClientRequest, type IncomingMessage, request as send } from "node:http";
import { API_PREFIX, type GenerationEndpoint } from "../../src/domain/endpoints.ts";
import type { ClientEvent } from "./history.ts";
import { type Wish, wishText } from "./upstream.ts";

/** Whom a client speaks to. */
export interface Target {
  name: string;
  url: string;
  agent: Agent;
}

export interface Customer {
  accountId: string;
  keyId: string;
  key: string;
}

/** Ways in which a client goes away, or never gets what was answered. */
export interface Leaving {
  phase: string;
  /** Gets the request before anything is sent. */
  begun?(request: ClientRequest): void;
  /** The answer's head is there; what it says is withheld from the client. */
  answered?(): void;
  /** How much of the body is sent; all of it when left out. */
  bodyBytes?: number;
}

export const TEXT_TO_VIDEO = "/api/v1/gen2/text-to-video";
/** Price of TEXT_TO_VIDEO by the reference prices. */
export const PRICE = 10;
/** Beyond every deadline of a gateway. */
const PATIENCE_MS = 20_000;

export const createAgent = (): Agent => new Agent({ keepAlive: true, maxSockets: 256 });

export function generate(
  target: Target,
  customer: Customer,
  wish: Partial<Wish>,
  {
    idempotencyKey = "",
    leaving,
    storyboard,
    endpoint = storyboard ? "gen2-pro/storyboard" : "gen2/text-to-video",
  }: {
    idempotencyKey?: string;
    leaving?: Leaving;
    storyboard?: { callBackUrl?: string };
    endpoint?: GenerationEndpoint;
  } = {},
): Promise<ClientEvent> {
  const path = API_PREFIX + endpoint;
  const body = JSON.stringify({ ...storyboard, ...bodyOf(endpoint, wishText(wish)) });
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (idempotencyKey !== "") headers["idempotency-key"] = idempotencyKey;
  const event = open("generate", target, customer, idempotencyKey);
  return ask(event, target, customer, { method: "POST", path, headers, body }, leaving);
}

/** The least that an endpoint takes. @param text a wish, which the upstream finds again */
function bodyOf(endpoint: GenerationEndpoint, text: string): object {
  switch (endpoint) {
    case "gen2/text-to-video":
    case "gen2-pro/text-to-video":
      return { prompt: text };
    case "gen2/image-to-video":
    case "gen2-pro/image-to-video":
      return { imageUrl: "https://images.example.com/a.png", prompt: text };
    case "gen2/watermark-remove":
      return { videoUrl: `https://videos.example.com/a.mp4?${text.replaceAll(" ", "&")}` };
    case "gen2-pro/storyboard":
      return { nFrames: "10", shots: [{ Scene: text, duration: 10 }] };
  }
}

export function poll(
  target: Target,
  customer: Customer,
  taskId: string,
  leaving?: Leaving,
): Promise<ClientEvent> {
  const event = { ...open("poll", target, customer, ""), taskId };
  return ask(
    event,
    target,
    customer,
    { method: "GET", path: `/api/v1/tasks/${taskId}`, headers: {}, body: "" },
    leaving,
  );
}

function open(
  kind: ClientEvent["kind"],
  target: Target,
  { accountId, keyId }: Customer,
  idempotencyKey: string,
): ClientEvent {
  return {
    kind,
    accountId,
    keyId,
    gateway: target.name,
    sentMs: Date.now(),
    endedMs: 0,
    status: 0,
    code: 0,
    requestId: "",
    taskId: "",
    taskStatus: "",
    video: "",
    idempotencyKey,
    replayed: false,
    active: -1,
    remaining: -1,
    retryAfterSeconds: 0,
    left: "",
    error: "",
  };
}

interface Sending {
  method: string;
  path: string;
  headers: Record<string, string>;
  body: string;
}

/** Sends one request and settles with what became of it; never rejects. */
function ask(
  event: ClientEvent,
  target: Target,
  customer: Customer,
  { method, path, headers, body }: Sending,
  leaving: Leaving | undefined,
): Promise<ClientEvent> {
  return new Promise((resolve) => {
    const end = (error: string): void => {
      if (event.endedMs !== 0) return;
      event.endedMs = Date.now();
      event.error = error;
      if (leaving && event.status === 0) event.left = leaving.phase;
      clearTimeout(timer);
      resolve(event);
    };
    const request = send(target.url + path, {
      method,
      agent: target.agent,
      headers: {
        ...headers,
        authorization: `Bearer ${customer.key}`,
        ...(body === "" ? {} : { "content-length": body.length }),
      },
    });
    const timer = setTimeout(() => {
      request.destroy();
      end("no answer in time");
    }, PATIENCE_MS);
    // Once an answer has begun, reading it tells how it ended.
    let begun = false;
    request.on("error", (error: NodeJS.ErrnoException) => begun || end(error.code ?? error.message));
    request.on("close", () => begun || end("closed"));
    request.on("response", (response) => {
      begun = true;
      if (leaving?.answered) {
        leaving.answered();
        request.destroy();
        return end("withheld");
      }
      void read(response, event).then(() => end(event.status === 0 ? "cut off" : ""));
    });
    leaving?.begun?.(request);
    const part = leaving?.bodyBytes;
    if (part === undefined) request.end(body);
    else if (part > 0) request.write(body.slice(0, part));
    else request.flushHeaders();
  });
}

async function read(response: IncomingMessage, event: ClientEvent): Promise<void> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk);
    const envelope = JSON.parse(Buffer.concat(chunks).toString()) as {
      code: number;
      data?: { task_id?: string; status?: string; video?: string };
    };
    const { headers } = response;
    event.status = response.statusCode ?? 0;
    event.code = envelope.code;
    event.requestId = String(headers["x-request-id"] ?? "");
    event.taskId ||= envelope.data?.task_id ?? "";
    event.taskStatus = envelope.data?.status ?? "";
    event.video = envelope.data?.video ?? "";
    event.replayed = headers["idempotency-replayed"] === "true";
    event.degraded = headers["x-gateway-degraded"] === "store";
    event.active = Number(headers["x-concurrent-active"] ?? -1);
    event.remaining = Number(headers["x-ratelimit-remaining"] ?? -1);
    event.retryAfterSeconds = Number(headers["retry-after"] ?? 0);
  } catch {
    // Cut off: no answer came.
  }
}
