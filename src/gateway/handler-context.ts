import type { Config } from "../config/config.ts";
import { dropOldest } from "../domain/bounded.ts";
import { retrySeconds } from "../domain/envelope.ts";
import { GatewayError, type Refusal, refuse } from "../domain/errors.ts";
import type { Holds } from "../settlement/holds.ts";
import type { KeyRef } from "../store/names.ts";
import { isFinal } from "../store/script-errors.ts";
import type { Store } from "../store/store.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { Carried, OpenSpan, Tracing } from "../telemetry/trace.ts";
import type { TaskUpstream } from "../upstream/task-upstreams.ts";
import type { UploadTunnel } from "../upstream/upload.ts";
import type { Upstream } from "../upstream/upstream.ts";
import type { ClientAddress } from "./address.ts";
import type { Authenticator } from "./authenticate.ts";
import type { BodyRead } from "./body.ts";
import type { BodyBudget } from "./body-budget.ts";
import type { Exchange } from "./exchange.ts";
import type { RefusedKeys } from "./full-windows.ts";
import type { RequestHead } from "./protocol.ts";
import type { UploadCounts } from "./upload-counts.ts";
import type { KeyUse, UtilityRate } from "./utility-rate.ts";

/** What the handlers work with; built once in gateway/public-port.ts. */
export interface Gateway {
  /** The snapshot in force; taken once per request. */
  config(): Config;
  store: Store & Holds;
  /** Made for the snapshot: its address, its credential, its timeouts. */
  upstream(config: Config): Upstream;
  /** The one that made a task, by the tag that is stored with it; undefined for a task of an earlier release. */
  upstreamOf(tag: string | undefined, config: Config): TaskUpstream;
  uploads(config: Config): UploadTunnel;
  /** Uploads under way in this process. */
  uploadCounts: UploadCounts;
  authenticator: Authenticator<KeyRef>;
  clientAddress: ClientAddress;
  /** The memory for JSON bodies under way. */
  bodies: BodyBudget;
  /** A piece of so many bytes of a body was read: much at once lets its sender's address rest. */
  bodyRead: BodyRead;
  /** Counts a request of a good key with an X-Forwarded-For that is not believed, and warns of it. */
  noteUntrustedProxy(peer: string): void;
  /** Keys whose window was full a moment ago. */
  refusedKeys: RefusedKeys;
  utilityRate: UtilityRate;
  /** Keys that a script has called good; one that is called invalid comes back as another object. */
  goodKeys: WeakSet<KeyRef>;
  /** Tasks this process has bound or polled, and their accounts: what may be polled while the store is away. */
  seenTasks: SeenTasks;
  /** Tasks it made while the store was away, which the store will never know. */
  unmeteredTasks: SeenTasks;
  /** Counts a refusal of a known key for the console; `outcome` is the name in the error table. */
  countRefusal(keyId: string, accountId: string, outcome: string): void;
  metrics: Metrics;
  tracing: Tracing;
  log: Logger;
  draining(): boolean;
}

/** One authenticated request on its way through a handler. */
export interface Call {
  gateway: Gateway;
  config: Config;
  exchange: Exchange;
  head: RequestHead;
  key: KeyRef;
  token: string;
  use: KeyUse;
}

/** Remembered only where it matters: with `allow`, while the store is away. That a key was found proves nothing. */
export function sawKeyGood({ gateway, config, key }: Call): void {
  if (config.store.fallbackStrategy === "allow") gateway.goodKeys.add(key);
}

/** Remembered only where it matters, too. */
export function sawTask({ gateway, config, key }: Call, taskId: string, upstream: string | undefined): void {
  if (config.store.fallbackStrategy === "allow") gateway.seenTasks.add(taskId, key.accountId, upstream);
}

/** True for a task that this process has seen as another account's; for when the store cannot be asked whose it is. */
export function isOthersTask({ gateway, key }: Call, taskId: string): boolean {
  return (gateway.seenTasks.owner(taskId) ?? key.accountId) !== key.accountId;
}

const SEEN_TASKS_MAX = 100_000;

export interface SeenTasks {
  /** @param upstream tag of the one that made it; what is known of it stays where this is undefined */
  add(taskId: string, accountId: string, upstream: string | undefined): void;
  has(taskId: string, accountId: string): boolean;
  owner(taskId: string): string | undefined;
  upstream(taskId: string): string | undefined;
  forget(taskId: string, accountId: string): void;
}

export function createSeenTasks(): SeenTasks {
  const tasks = new Map<string, { accountId: string; upstream: string | undefined }>();
  const owner = (taskId: string): string | undefined => tasks.get(taskId)?.accountId;
  return {
    add(taskId, accountId, upstream) {
      const known = tasks.get(taskId);
      if (known?.accountId === accountId && (upstream === undefined || known.upstream === upstream)) return;
      if (!known) dropOldest(tasks, SEEN_TASKS_MAX);
      tasks.set(taskId, { accountId, upstream });
    },
    has: (taskId, accountId) => owner(taskId) === accountId,
    owner,
    upstream: (taskId) => tasks.get(taskId)?.upstream,
    forget(taskId, accountId) {
      if (owner(taskId) === accountId) tasks.delete(taskId);
    },
  };
}

/**
 * Counts a poll, credits, an upload or a refused request against the key's rate.
 * @returns the refusal to answer without asking the store, when the key has none left
 */
export function limitUtility(call: Call): Refusal | undefined {
  const { gateway, config, use } = call;
  if (gateway.utilityRate.take(use, config.server.utilityRequestsPerSecond)) return undefined;
  return slowDown(call);
}

/**
 * Counts a generation that will be refused for want of credits, as far as can be known before the store is asked. Whatever
 * costs less than what was refused last is not counted: the key may have the credits for it.
 */
export function limitUnaffordable(call: Call, price: number): Refusal | undefined {
  return isUnaffordable(call.use, price) ? limitUtility(call) : undefined;
}

/** Notes whether the credits of a key sufficed for a generation at this price. */
export function noteAffordable({ gateway, config, use }: Call, price: number, sufficed: boolean): void {
  const wasCounted = isUnaffordable(use, price);
  if (sufficed) {
    if (wasCounted) use.unaffordable = undefined;
    return;
  }
  if (wasCounted) return;
  gateway.utilityRate.take(use, config.server.utilityRequestsPerSecond);
  use.unaffordable = price;
}

const isUnaffordable = ({ unaffordable }: KeyUse, price: number): boolean =>
  unaffordable !== undefined && price >= unaffordable;

/** One key's polls, credits and uploads may hold this share of the requests in flight. */
const KEY_SHARE = 1 / 4;

/**
 * Counts a poll, credits or an upload, until it is recorded, against the key's share of the requests in flight: a task that
 * the upstream is slow to tell of would else gather all of them, though each came within the key's rate.
 * @returns the refusal to answer without asking the store, when the key holds its share already
 */
export function limitUnderWay(call: Call): Refusal | undefined {
  const { config, exchange, use } = call;
  if (use.underWay >= Math.ceil(config.server.maxRequestsInFlight * KEY_SHARE)) {
    return slowDown(call, "Too many requests at a time with this API key; wait for their answers");
  }
  use.underWay++;
  exchange.countedIn = use;
  return undefined;
}

function slowDown({ exchange, use }: Call, text?: string): Refusal {
  if (use.state) exchange.state = { ...use.state, resetAtMs: Math.max(use.state.resetAtMs, Date.now()) };
  return refuse("slow_down", text === undefined ? { retryAfterSeconds: 1 } : { retryAfterSeconds: 1, text });
}

/**
 * An early refusal of a known key costs one INSPECT, so that a revoked key's bad body is 401 and the five numbers
 * are true. It counts against the key's rate.
 * @returns the refusal to answer
 */
export async function refuseKnown(call: Call, refusal: Refusal): Promise<Refusal> {
  return limitUtility(call) ?? refuseCounted(call, refusal);
}

/** The same for a request that is counted already. */
export async function refuseCounted(call: Call, refusal: Refusal): Promise<Refusal> {
  try {
    return (await inspectKey(call)) ?? refusal;
  } catch (error) {
    if (await passUnmetered(call, error)) return refusal;
    throw error;
  }
}

/** Reads the key's numbers into the exchange. @returns the 401 of a key that is no good any more */
export async function inspectKey(call: Call): Promise<Refusal | undefined> {
  const { gateway, config, exchange, key } = call;
  const inspection = await storeStep(call, "INSPECT", gateway.store.inspect(key, config.tiers));
  exchange.state = inspection.state;
  if (inspection.outcome === "unknown_key") return disown(call);
  sawKeyGood(call);
  return undefined;
}

/** The 401 of a key that a script has called invalid. */
export function disown({ gateway, exchange, head, token }: Call): Refusal {
  const address = gateway.clientAddress(exchange.req.socket.remoteAddress, head.forwardedFor);
  gateway.authenticator.disown(token, address);
  return refuse("invalid_api_key");
}

/**
 * True when the store is away and the config lets requests of keys seen good through, which it then marks. That a call
 * failed is not enough: Redis must have failed a probe on its own connection.
 * @param isCapped whether `store.allow_max_per_key` counts this request
 */
export async function passUnmetered(
  { gateway, config, exchange, key, use }: Call,
  error: unknown,
  isCapped = false,
): Promise<boolean> {
  if (!(error instanceof GatewayError) || error.refusal.name !== "store_unavailable") return false;
  // A store that answers and refuses (no memory left) is not away: letting requests through would lift the limits.
  if (config.store.fallbackStrategy !== "allow" || isFinal(error.cause)) return false;
  if (!gateway.goodKeys.has(key)) return false;
  const outage = await gateway.store.outage();
  if (outage === undefined) return false;
  if (isCapped && !countUnmetered(use, outage, config.store.allowMaxPerKey)) return false;
  exchange.degraded = true;
  gateway.metrics.degraded.inc({ route: exchange.route });
  return true;
}

/** Counts an unmetered request of a key. @returns false when the key has had as many as it may in this outage */
function countUnmetered(use: KeyUse, outage: number, max: number): boolean {
  if (use.unmetered?.outage !== outage) use.unmetered = { outage, requests: 0 };
  if (max > 0 && use.unmetered.requests >= max) return false;
  use.unmetered.requests++;
  return true;
}

const UPSTREAM_WAIT_MIN_SECONDS = 10;
const UPSTREAM_WAIT_MAX_SECONDS = 30;

/** The upstream's own limit as the customer sees it: its wait clamped to 10..30 s. */
export function upstreamLimited(retryAfterSeconds: number | undefined): Refusal {
  const asked = retrySeconds((retryAfterSeconds ?? 0) * 1000);
  return refuse("upstream_rate_limited", {
    retryAfterSeconds: Math.min(UPSTREAM_WAIT_MAX_SECONDS, Math.max(UPSTREAM_WAIT_MIN_SECONDS, asked)),
  });
}

/** The upstream blames us: never passed on, logged as an error, counted. */
export function gatewayRefused({ gateway, exchange }: Call, detail: string, text?: string): Refusal {
  gateway.metrics.upstreamRefusedGateway.inc();
  gateway.log.error(
    { request_id: exchange.requestId, detail },
    "the upstream refuses the gateway: check UPSTREAM_API_KEY, UPSTREAM_URL and the account behind them",
  );
  return refuse("upstream_refused_gateway", text === undefined ? { detail } : { detail, text });
}

const METHODS = { generate: "POST", poll: "GET", upload: "POST" } as const;

/** An upstream exchange of a request: keeps its time and its span. */
export class UpstreamStep {
  readonly #call: Call;
  readonly #kind: keyof typeof METHODS;
  readonly #startedMs = performance.now();
  readonly #span: (OpenSpan & Carried) | undefined;

  constructor(call: Call, kind: keyof typeof METHODS) {
    const { route, trace } = call.exchange;
    this.#call = call;
    this.#kind = kind;
    this.#span = trace?.spans?.upstream(METHODS[kind], route);
  }

  /** What goes along of the request's trace. */
  get carried(): Carried | undefined {
    return this.#span ?? this.#call.exchange.trace;
  }

  /** @param result how the exchange ended; comes back as it is */
  end<T extends { outcome: string }>(result: T): T {
    const { gateway, exchange } = this.#call;
    exchange.upstreamMs = performance.now() - this.#startedMs;
    const labels = { kind: this.#kind, outcome: result.outcome };
    gateway.metrics.upstreamSeconds.observe(labels, exchange.upstreamMs / 1000);
    this.#span?.end(result.outcome);
    return result;
  }
}

/** Waits for a script of the store; keeps its time and its span where somebody wants to know them. */
export function storeStep<T>({ config, exchange }: Call, script: string, work: Promise<T>): Promise<T> {
  const spans = exchange.trace?.spans;
  if (spans === undefined && config.log.slowRequestMs === 0) return work;
  const startedMs = performance.now();
  const span = spans?.store(script);
  const end = (outcome: string | undefined): void => {
    exchange.storeMs = (exchange.storeMs ?? 0) + performance.now() - startedMs;
    span?.end(outcome);
  };
  return work.then(
    (result) => {
      end(outcomeOf(result));
      return result;
    },
    (error: unknown) => {
      end(undefined);
      throw error;
    },
  );
}

function outcomeOf(result: unknown): string {
  if (typeof result === "string") return result;
  if (typeof result === "object" && result !== null && "outcome" in result) return String(result.outcome);
  // The store is away: what is settled is told later.
  return result === undefined ? "later" : "ok";
}
