import type { IncomingMessage } from "node:http";
import type { Config } from "../config/config.ts";
import type { KeyRef } from "../records/names.ts";
import type { Holds } from "../settlement/holds.ts";
import type { Store } from "../settlement/store.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Observations } from "../telemetry/metrics/distribution.ts";
import type { Series } from "../telemetry/metrics/factory.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { Carried, OpenSpan, Tracing } from "../telemetry/trace.ts";
import type { TaskUpstream } from "../upstream/task-upstreams.ts";
import type { UploadTunnel } from "../upstream/upload-stream.ts";
import type { Upstream } from "../upstream/upstream.ts";
import type { ClientAddress } from "./address.ts";
import type { Authenticator } from "./authenticate.ts";
import type { BodyRead } from "./body.ts";
import type { Exchange } from "./http-exchange.ts";
import type { BodyBudget } from "./json-body-budget.ts";
import type { KeyUsage, KeyUsages } from "./key-usage.ts";
import type { OverLimitCache } from "./over-limit-cache.ts";
import type { RequestHead } from "./protocol.ts";
import type { FallbackMemory } from "./unmetered-fallback.ts";

/** What the handlers work with; built once in gateway/public-port.ts. */
export interface Gateway {
  /** The snapshot in force; read once per request. */
  config(): Config;
  store: Store & Holds;
  /** The upstream of a snapshot: its address, its credential, its timeouts. */
  upstream(config: Config): Upstream;
  /** The upstream that made a task, by the tag that is stored with the task; undefined for a task that was restored. */
  upstreamOf(tag: string | undefined, config: Config): TaskUpstream;
  uploads(config: Config): UploadTunnel;
  authenticator: Authenticator<KeyRef>;
  clientAddress: ClientAddress;
  /** The memory for JSON bodies that are being received. */
  bodies: BodyBudget;
  bodyRead: BodyRead;
  /** The account is throttled for the rest of this request's body, and not the address. */
  uploadStarted(req: IncomingMessage, accountId: string): void;
  /** Counts a request of a valid key whose X-Forwarded-For is not trusted, and logs a warning. */
  noteUntrustedProxy(peer: string): void;
  overLimit: OverLimitCache;
  keyUsages: KeyUsages;
  fallback: FallbackMemory;
  /** Counts a refusal of a known key for the console; `outcome` is the name in the error table. */
  countRefusal(keyId: string, accountId: string, outcome: string): void;
  metrics: Metrics;
  /** The series of `metrics.holds`. */
  holds: Series;
  /** The series of `metrics.upstreamSeconds`. */
  upstreamSeconds(kind: string, outcome: string): Observations;
  tracing: Tracing;
  log: Logger;
  isDraining(): boolean;
}

/** One authenticated request. */
export interface Call {
  gateway: Gateway;
  config: Config;
  exchange: Exchange;
  head: RequestHead;
  key: KeyRef;
  token: string;
  usage: KeyUsage;
}

/** Awaits a script of the store; measures its time and its span where the configuration asks for them. */
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
  // The store is unavailable: the settlement is sent later.
  return result === undefined ? "later" : "ok";
}

const METHODS = { generate: "POST", poll: "GET", upload: "POST" } as const;

/** One upstream exchange of a request: measures its time and its span. */
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

  /** The trace context that is sent to the upstream. */
  get carried(): Carried | undefined {
    return this.#span ?? this.#call.exchange.trace;
  }

  /** @param result how the exchange ended @returns the same */
  end<T extends { outcome: string }>(result: T): T {
    const { gateway, exchange } = this.#call;
    exchange.upstreamMs = performance.now() - this.#startedMs;
    gateway.upstreamSeconds(this.#kind, result.outcome).add(exchange.upstreamMs / 1000);
    this.#span?.end(result.outcome);
    return result;
  }
}
