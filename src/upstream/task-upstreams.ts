import { dropOldest } from "../domain/bounded.ts";
import type { Logger } from "../telemetry/log.ts";
import type { UpstreamTls } from "./json-client.ts";
import type { PollOutcome } from "./poll-request.ts";
import { type RouteSettings, routeOf, type TaskRoute, upstreamTag } from "./task-route.ts";
import { createUpstream, type Upstream, type UpstreamOptions } from "./upstream.ts";

/** Clients of former upstreams at a time, addresses that are remembered, and tags that are logged. */
const FORMER_MAX = 8;
const USED_MAX = 8;
const UNROUTABLE_MAX = 64;
const LOG_EVERY_MS = 60_000;

export type TaskUpstream = Pick<Upstream, "tag" | "poll">;

export type TaskUpstreamSettings = Omit<UpstreamOptions, "observer" | "idempotent"> & RouteSettings;

/** How an upstream is spoken to, beside its address and its credential. */
type Manner = Pick<UpstreamOptions, "authHeader" | "authScheme" | "headers" | "statuses" | "dialect"> &
  UpstreamTls;

type Unroutable = Extract<TaskRoute, { to: "unroutable" }>;

/** The upstream that made a task. Owns clients of former ones, whose connections close on their own after their last poll. */
export class TaskUpstreams {
  readonly #former: FormerUpstreams;
  readonly #log: Logger;
  readonly #nowMs: () => number;
  /** By address and adapter, the latest first. */
  #used: (Manner & { url: string })[] = [];
  readonly #unroutable = new Map<string, { upstream: TaskUpstream; loggedAtMs: number }>();

  constructor(options: { observer?: UpstreamOptions["observer"]; log: Logger; nowMs?: () => number }) {
    this.#former = new FormerUpstreams(options.observer);
    this.#log = options.log;
    this.#nowMs = options.nowMs ?? (() => performance.now());
  }

  /** Remembers an address at which tasks are made from now on, and how. */
  using(url: string, manner: Manner = {}): void {
    const others = this.#used.filter((one) => one.url !== url || one.dialect?.name !== manner.dialect?.name);
    this.#used = [{ ...manner, url }, ...others].slice(0, USED_MAX);
  }

  /** @param tag undefined for a restored task @param present made of these settings */
  of(tag: string | undefined, present: TaskUpstream, settings: TaskUpstreamSettings): TaskUpstream {
    if (tag === undefined || tag === present.tag || tag.startsWith(`${present.tag}/`)) return present;
    const urls = this.#used.map(({ url }) => url);
    const dialects = this.#used.flatMap(({ dialect }) => dialect ?? []);
    const route = routeOf(tag, settings, urls, dialects);
    switch (route.to) {
      case "present":
        return present;
      case "other":
        return this.#former.at(settings, this.#mannerAt(route, settings), route.url, route.apiKey);
      case "unroutable":
        return this.#unroutableOf(tag, route);
    }
  }

  readonly close = (): Promise<void> => this.#former.close();

  /** Headers of the operator's go only to the address that they were set for. */
  #mannerAt(route: Extract<TaskRoute, { to: "other" }>, settings: TaskUpstreamSettings): Manner {
    const { url, dialect = settings.dialect } = route;
    const isSame = (one: Manner): boolean => one.dialect?.name === dialect?.name;
    const known = [settings, ...this.#used].find((one) => one.url === url && isSame(one));
    if (known) return known;
    const { authHeader, authScheme, tlsCa, tlsCert, tlsKey } = settings;
    const manner = { tlsCa, tlsCert, tlsKey, ...(dialect && { dialect }) };
    return isSame(settings) ? { ...manner, authHeader, authScheme } : manner;
  }

  #unroutableOf(tag: string, route: Unroutable): TaskUpstream {
    const { origin, lacks } = route;
    let known = this.#unroutable.get(tag);
    if (!known) {
      const detail = `the ${lacks} of the upstream that made the task is not known (${origin})`;
      const upstream = constant(tag, { outcome: "unroutable", detail });
      known = { upstream, loggedAtMs: Number.NEGATIVE_INFINITY };
      dropOldest(this.#unroutable, UNROUTABLE_MAX);
      this.#unroutable.set(tag, known);
    }
    if (this.#nowMs() - known.loggedAtMs >= LOG_EVERY_MS) {
      known.loggedAtMs = this.#nowMs();
      this.#log.error(
        { upstream: origin, lacks },
        route.lacks === "adapter"
          ? `tasks of another adapter cannot be asked for: set upstream.previous_adapter to the file of ${route.adapter}`
          : "tasks of another upstream cannot be asked for: set UPSTREAM_PREVIOUS_URL, whole and with its path, and " +
              "UPSTREAM_PREVIOUS_API_KEY, or upstream.replaces if it is the same upstream",
      );
    }
    return known.upstream;
  }
}

interface Former {
  client: Upstream;
  upstream: TaskUpstream;
  pollsInFlight: number;
}

/** Clients of former upstreams. A client that is polled is never closed. */
class FormerUpstreams {
  readonly #observer: UpstreamOptions["observer"];
  /** By their options, least recently polled first. */
  readonly #clients = new Map<string, Former>();

  constructor(observer: UpstreamOptions["observer"]) {
    this.#observer = observer;
  }

  at(settings: TaskUpstreamSettings, manner: Manner, url: string, apiKey: string | undefined): TaskUpstream {
    const options = clientOptions(settings, manner, url, apiKey);
    const name = JSON.stringify(options);
    const former = this.#clients.get(name) ?? this.#open(options);
    if (!former) return busy(upstreamTag(url, apiKey, manner.dialect?.name));
    this.#clients.delete(name);
    this.#clients.set(name, former);
    return former.upstream;
  }

  async close(): Promise<void> {
    await Promise.all([...this.#clients.values()].map(({ client }) => client.close()));
  }

  /** @returns undefined if all clients that there may be are being polled */
  #open(options: UpstreamOptions): Former | undefined {
    if (this.#clients.size >= FORMER_MAX) {
      const idle = [...this.#clients].find(([, { pollsInFlight }]) => pollsInFlight === 0);
      if (!idle) return undefined;
      this.#clients.delete(idle[0]);
      void idle[1].client.close();
    }
    const client = createUpstream({ ...options, ...(this.#observer && { observer: this.#observer }) });
    const poll: Upstream["poll"] = async (...args) => {
      former.pollsInFlight++;
      try {
        return await client.poll(...args);
      } finally {
        former.pollsInFlight--;
      }
    };
    const former: Former = { client, pollsInFlight: 0, upstream: { tag: client.tag, poll } };
    return former;
  }
}

const constant = (tag: string, outcome: PollOutcome): TaskUpstream => ({ tag, poll: async () => outcome });

const busy = (tag: string): TaskUpstream =>
  constant(tag, { outcome: "overloaded", detail: `${FORMER_MAX} other former upstreams are being asked` });

/** The options of a client, and nothing else: other settings may change without a new one. Nothing is generated there any more. */
const clientOptions = (
  settings: TaskUpstreamSettings,
  { authHeader, authScheme, tlsCa, tlsCert, tlsKey, headers, dialect, statuses }: Manner,
  url: string,
  apiKey: string | undefined,
): UpstreamOptions => ({
  ...{ url, apiKey, authHeader, authScheme, ...(headers && { headers }), ...(dialect && { dialect }) },
  ...{ tlsCa, tlsCert, tlsKey },
  // A word that was added later may be one of its tasks.
  statuses: { ...settings.statuses, ...statuses },
  connectTimeoutMs: settings.connectTimeoutMs,
  headersTimeoutMs: settings.headersTimeoutMs,
  totalTimeoutMs: settings.totalTimeoutMs,
  keepAliveTimeoutMs: settings.keepAliveTimeoutMs,
  connections: 1,
  pollConnections: settings.pollConnections,
  idempotent: false,
});
