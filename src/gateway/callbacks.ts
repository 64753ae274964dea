import { hash, timingSafeEqual } from "node:crypto";
import { type Config, memoizeByConfigPart } from "../config/config.ts";
import { dropOldest } from "../domain/bounded.ts";
import { type HandlerResult, success } from "../domain/envelope.ts";
import { type Refusal, refuse } from "../domain/errors.ts";
import { parseObject } from "../domain/json.ts";
import { JSON_BODY_BYTES_MAX } from "../domain/limits.ts";
import { deriveKey } from "../records/derived-keys.ts";
import type { KeyRef } from "../records/names.ts";
import type { CallbackTasks } from "../settlement/callback-tasks.ts";
import type { Series } from "../telemetry/metrics/series.ts";
import { CALLBACK_REFUSALS } from "../telemetry/metrics/webhooks.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { readBytes } from "./body.ts";
import { continueReading, type Exchange, type Gateway } from "./http-exchange.ts";
import type { RequestHead } from "./protocol.ts";

/** Callbacks of one process that are worked on at a time. */
const IN_FLIGHT_MAX = 128;
/** Callbacks of one request: so many at once, then one in so many ms. */
const BURST = 5;
const EVERY_MS = 2000;
/** Unknown tokens from one client address in a minute; then they are refused as too many. */
const FORGED_PER_MINUTE = 100;
const MINUTE_MS = 60_000;
const REMEMBERED_MAX = 20_000;
const LOGGED_EVERY_MS = 1000;

/** Customers' addresses as the webhooks room knows them. */
interface CallbackGuard {
  /** @returns the address as it is called, or why it must not be, in words that follow its name */
  check(text: string, policy: Config["webhooks"]): { ok: true; url: string } | { ok: false; reason: string };
  /** True if the account has a webhook endpoint of this origin. @throws GatewayError `store_unavailable` */
  hasOrigin(key: KeyRef, origin: string): Promise<boolean>;
}

/** The relay of `callBackUrl` on the public port. Decision 0076. */
export interface Callbacks {
  addresses(config: Config): CallbackAddresses;
  guard: CallbackGuard;
  tasks: Pick<CallbackTasks, "settle">;
  limits: CallbackLimits;
  /** Counts callbacks that were refused before the store was asked, by their outcome. */
  refusals: Readonly<Record<CallbackRefusal, Series>>;
}

type CallbackRefusal = (typeof CALLBACK_REFUSALS)[number];

export function createCallbacks(parts: Pick<Callbacks, "guard" | "tasks">, metrics: Metrics): Callbacks {
  const addresses = memoizeByConfigPart(
    ({ webhooks }) => [webhooks.secretKey, webhooks.previousSecretKey],
    ({ webhooks: { secretKey, previousSecretKey } }) =>
      createCallbackAddresses(
        previousSecretKey === undefined ? [secretKey ?? ""] : [secretKey ?? "", previousSecretKey],
      ),
  );
  const refusals = Object.fromEntries(
    CALLBACK_REFUSALS.map((outcome) => [outcome, metrics.callbacks.series({ outcome })]),
  ) as Record<CallbackRefusal, Series>;
  return { ...parts, addresses, refusals, limits: new CallbackLimits() };
}

/**
 * The token is checked before a byte of the body, which is read only if the request has no task so far. 503: a callback that is the only
 * word of a task is asked for once more.
 */
export async function receiveCallback(
  gateway: Gateway,
  exchange: Exchange,
  head: RequestHead,
  token: string,
): Promise<HandlerResult> {
  const { callbacks, metrics } = gateway;
  const { config } = gateway.live.snapshot;
  const refused = (refused: Refusal, outcome?: CallbackRefusal): Refusal => {
    if (callbacks && outcome !== undefined) callbacks.refusals[outcome].pending++;
    exchange.leavesBody = true;
    return refused;
  };
  const target = callbacks?.addresses(config).read(token);
  if (!callbacks || !target) {
    const address = gateway.clientAddress(exchange.req.socket.remoteAddress, head.forwardedFor);
    const waitMs = callbacks?.limits.forged(address) ?? 0;
    exchange.isQuiet = callbacks?.limits.isLogged();
    const tooMany = refuse("too_many_unknown_keys", { retryAfterSeconds: Math.ceil(waitMs / 1000) });
    return refused(waitMs > 0 ? tooMany : refuse("path_not_found"), "forged");
  }
  if (exchange.req.method !== "POST") return refused(refuse("method_not_allowed", { allow: "POST" }));
  const waitMs = callbacks.limits.begin(target);
  if (waitMs !== undefined) {
    if (waitMs === 0) metrics.overloads.inc({ bound: "callbacks" });
    const busy = refuse("overloaded", { retryAfterSeconds: 1, detail: "too many callbacks at a time" });
    if (waitMs === 0) return refused(busy, "overloaded");
    return refused(refuse("slow_down", { retryAfterSeconds: Math.ceil(waitMs / 1000) }), "limited");
  }
  try {
    return await settle(gateway, callbacks, exchange, head, target);
  } finally {
    callbacks.limits.end();
  }
}

async function settle(
  gateway: Gateway,
  { tasks }: Callbacks,
  exchange: Exchange,
  head: RequestHead,
  target: CallbackTarget,
): Promise<HandlerResult> {
  const { config, upstream } = gateway.live.snapshot;
  let unreadable: Refusal | undefined;
  const outcome = await tasks.settle(target, async () => {
    const body = await readBody(gateway, exchange, head, config.server.bodyTimeoutMs);
    if (typeof body !== "string") {
      unreadable = body;
      return undefined;
    }
    const { headers } = exchange.req;
    return upstream.taskOfCallback({ headers, body, json: parseObject(body) });
  });
  gateway.metrics.callbacks.inc({ outcome });
  if (outcome === "no_task" && unreadable) return unreadable;
  if (outcome !== "unanswered" && outcome !== "unknown_task") return success("{}");
  const again = {
    retryAfterSeconds: 5,
    detail: "the upstream does not answer about the task, or does not know it",
  };
  return refuse("overloaded", again);
}

async function readBody(
  gateway: Gateway,
  exchange: Exchange,
  head: RequestHead,
  timeoutMs: number,
): Promise<string | Refusal> {
  if ((head.contentLength ?? 0) > JSON_BODY_BYTES_MAX) return refuse("payload_too_large");
  if (!head.hasBody) return "";
  continueReading(exchange);
  const owner = { budget: gateway.bodies, keyId: "callbacks", onRead: gateway.bodyRead };
  const read = await readBytes(exchange.req, head.contentLength, timeoutMs, owner);
  if (read.outcome === "read") return read.bytes.toString();
  return read.outcome === "refused" ? read.refusal : refuse("request_timeout");
}

interface Count {
  left: number;
  atMs: number;
}

/** How often a request is called back about, how often an address guesses, and how many callbacks are worked on at a time. */
export class CallbackLimits {
  readonly #requests = new Map<string, Count>();
  readonly #addresses = new Map<string, Count>();
  readonly #nowMs: () => number;
  #inFlight = 0;
  #loggedMs = Number.NEGATIVE_INFINITY;

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  /** @returns undefined if it may begin, and then `end` must follow; else how long to wait (ms; 0: too many at a time) */
  begin({ requestId }: CallbackTarget): number | undefined {
    if (this.#inFlight >= IN_FLIGHT_MAX) return 0;
    const waitMs = take(this.#requests, requestId, BURST, EVERY_MS, this.#nowMs());
    if (waitMs > 0) return waitMs;
    this.#inFlight++;
    return undefined;
  }

  end(): void {
    this.#inFlight--;
  }

  /** True if a line of this second has said that somebody guesses; the metric counts all. */
  isLogged(): boolean {
    const nowMs = this.#nowMs();
    if (nowMs < this.#loggedMs + LOGGED_EVERY_MS) return true;
    this.#loggedMs = nowMs;
    return false;
  }

  /** Counts an unknown token. @returns how long its address must wait if it has sent too many, ms */
  forged(address: string): number {
    return take(this.#addresses, address, FORGED_PER_MINUTE, MINUTE_MS / FORGED_PER_MINUTE, this.#nowMs());
  }
}

/** Takes one of what refills at `everyMs`, up to `most`. @returns 0, or how long until there is one, ms */
function take(
  counts: Map<string, Count>,
  name: string,
  most: number,
  everyMs: number,
  nowMs: number,
): number {
  const count = counts.get(name) ?? { left: most, atMs: nowMs };
  if (!counts.has(name)) dropOldest(counts, REMEMBERED_MAX);
  count.left = Math.min(most, count.left + (nowMs - count.atMs) / everyMs);
  count.atMs = nowMs;
  counts.set(name, count);
  if (count.left < 1) return (1 - count.left) * everyMs;
  count.left--;
  return 0;
}

/** The path of a callback; its last part is the token. */
export const CALLBACKS = "/callbacks/";

interface CallbackTarget {
  partition: number;
  requestId: string;
}

type CallbackAddresses = ReturnType<typeof createCallbackAddresses>;

const PURPOSE = "callback addresses";
const MAC_CHARS = 32;
const TOKEN = /^(\d{1,4})\.([\w-]{1,64})\.([\w-]{32})$/;

/**
 * Addresses in place of a customer's `callBackUrl`. A token proves by a MAC that a gateway made it. Decision 0076.
 * @param secrets WEBHOOK_SECRET_KEY, then the previous one, whose tokens are still valid
 */
export function createCallbackAddresses(secrets: readonly [string, ...string[]]) {
  const macs = secrets.map((secret) => createMac(deriveKey(secret, PURPOSE)));

  return {
    tokenOf({ partition, requestId }: CallbackTarget): string {
      const named = `${partition}.${requestId}`;
      return `${named}.${macs[0]!(named)}`;
    },
    /** @returns undefined for a token that no gateway of these secrets has made */
    read(token: string): CallbackTarget | undefined {
      const [, partition, requestId, mac] = TOKEN.exec(token) ?? [];
      if (partition === undefined || requestId === undefined || mac === undefined) return undefined;
      const given = Buffer.from(mac);
      const isOurs = macs.some((macOf) =>
        timingSafeEqual(Buffer.from(macOf(`${partition}.${requestId}`)), given),
      );
      return isOurs ? { partition: Number(partition), requestId } : undefined;
    },
  };
}

const BLOCK_BYTES = 64;

/**
 * HMAC-SHA-256 of ASCII text, RFC 2104. The key's two blocks are made once, and `hash` makes no object for each call: createHmac was a sixth of
 * what a guessed address costs. @param key of at most 64 bytes
 */
export function createMac(key: Buffer): (text: string) => string {
  const block = (fill: number): string => {
    const bytes = Buffer.alloc(BLOCK_BYTES, fill);
    for (const [at, byte] of key.entries()) bytes[at] = byte ^ fill;
    return bytes.toString("latin1");
  };
  const [inner, outer] = [block(0x36), block(0x5c)];
  return (text) => {
    const digest = hash("sha256", Buffer.from(inner + text, "latin1"), "latin1");
    return hash("sha256", Buffer.from(outer + digest, "latin1"), "base64url").slice(0, MAC_CHARS);
  };
}
