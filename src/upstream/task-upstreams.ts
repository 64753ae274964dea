import { dropOldest } from "../domain/bounded.ts";
import type { Logger } from "../telemetry/log.ts";
import type { PollOutcome } from "./poll-request.ts";
import { type RouteSettings, routeOf, type TaskRoute, upstreamTag } from "./task-route.ts";
import { createUpstream, type Upstream, type UpstreamOptions } from "./upstream.ts";

/** Clients of former upstreams at a time, addresses that are remembered, and tags that are logged. */
const FORMER_MAX = 8;
const USED_MAX = 8;
const UNROUTABLE_MAX = 64;
const LOG_EVERY_MS = 60_000;

/** An upstream as far as it is asked about tasks that exist. */
export type TaskUpstream = Pick<Upstream, "tag" | "poll">;

/** The settings of the present upstream, and of those before it. */
export type TaskUpstreamSettings = Omit<UpstreamOptions, "observer" | "idempotent"> & RouteSettings;

type Unroutable = Extract<TaskRoute, { to: "unroutable" }>;

/**
 * Finds the upstream to poll for a task: the one that made it. Owns the clients of former upstreams, whose connections close
 * on their own soon after their last poll.
 */
export class TaskUpstreams {
  readonly #former: FormerUpstreams;
  readonly #log: Logger;
  readonly #nowMs: () => number;
  readonly #used = new Map<string, true>();
  readonly #unroutable = new Map<string, { upstream: TaskUpstream; loggedAtMs: number }>();

  constructor(options: { observer?: UpstreamOptions["observer"]; log: Logger; nowMs?: () => number }) {
    this.#former = new FormerUpstreams(options.observer);
    this.#log = options.log;
    this.#nowMs = options.nowMs ?? (() => performance.now());
  }

  /** Remembers an address at which tasks are made from now on. */
  using(url: string): void {
    if (!this.#used.has(url)) dropOldest(this.#used, USED_MAX);
    this.#used.set(url, true);
  }

  /**
   * @param tag as stored with the task; undefined for one that was restored
   * @param present made of these settings
   */
  of(tag: string | undefined, present: TaskUpstream, settings: TaskUpstreamSettings): TaskUpstream {
    if (tag === undefined || tag === present.tag) return present;
    const route = routeOf(tag, settings, this.#used.keys());
    switch (route.to) {
      case "present":
        return present;
      case "other":
        return this.#former.at(settings, route.url, route.apiKey);
      case "unroutable":
        return this.#unroutableOf(tag, route);
    }
  }

  readonly close = (): Promise<void> => this.#former.close();

  #unroutableOf(tag: string, { origin, lacks }: Unroutable): TaskUpstream {
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
        "tasks of another upstream cannot be asked for: set UPSTREAM_PREVIOUS_URL, whole and with its path, and " +
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

  at(settings: TaskUpstreamSettings, url: string, apiKey: string | undefined): TaskUpstream {
    const options = clientOptions(settings, url, apiKey);
    const name = JSON.stringify(options);
    const former = this.#clients.get(name) ?? this.#open(options);
    if (!former) return busy(upstreamTag(url, apiKey));
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

/** What a client is made of, and nothing else: other settings may change without a new one. */
function clientOptions(
  settings: TaskUpstreamSettings,
  url: string,
  apiKey: string | undefined,
): UpstreamOptions {
  const { connectTimeoutMs, headersTimeoutMs, totalTimeoutMs, keepAliveTimeoutMs } = settings;
  const timeouts = { connectTimeoutMs, headersTimeoutMs, totalTimeoutMs, keepAliveTimeoutMs };
  // Nothing is generated there any more.
  const { pollConnections, tlsCa, statuses = {} } = settings;
  return { url, apiKey, tlsCa, ...timeouts, connections: 1, pollConnections, idempotent: false, statuses };
}
