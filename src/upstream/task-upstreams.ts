import { dropOldest } from "../domain/bounded.ts";
import type { Logger } from "../telemetry/log.ts";
import { type RouteSettings, routeOf, type TaskRoute, upstreamTag } from "./task-route.ts";
import { createUpstream, type PollOutcome, type Upstream, type UpstreamOptions } from "./upstream.ts";

/** Former upstreams that are asked for their tasks at a time, addresses that are remembered, tags that are logged. */
const OTHERS_MAX = 8;
const USED_MAX = 8;
const UNROUTABLE_MAX = 64;
const LOG_EVERY_MS = 60_000;

/** An upstream as far as it is asked for tasks that exist. */
export type TaskUpstream = Pick<Upstream, "tag" | "poll">;

/** The settings of the present upstream, and of those before it. */
export type TaskUpstreamSettings = Omit<UpstreamOptions, "observer" | "idempotent"> & RouteSettings;

interface Other {
  client: Upstream;
  upstream: TaskUpstream;
  pollsUnderWay: number;
}

/**
 * Finds the upstream that a task is asked for at: the one that made it. Owns the clients of former ones, whose connections
 * close by themselves soon after their last poll.
 */
export function createTaskUpstreams({
  observer,
  log,
  nowMs = () => performance.now(),
}: {
  observer?: UpstreamOptions["observer"];
  log: Logger;
  nowMs?: () => number;
}) {
  /** By their options; the one that was asked longest ago comes first. */
  const others = new Map<string, Other>();
  const used = new Map<string, true>();
  const unroutable = new Map<string, { upstream: TaskUpstream; loggedAtMs: number }>();

  function otherAt(settings: TaskUpstreamSettings, url: string, apiKey: string | undefined): TaskUpstream {
    const options = clientOptions(settings, url, apiKey);
    const name = JSON.stringify(options);
    const other = others.get(name) ?? open(options);
    if (!other) return busy(upstreamTag(url, apiKey));
    others.delete(name);
    others.set(name, other);
    return other.upstream;
  }

  /** @returns undefined when as many as there may be are being asked */
  function open(options: UpstreamOptions): Other | undefined {
    if (others.size >= OTHERS_MAX) {
      const idle = [...others].find(([, { pollsUnderWay }]) => pollsUnderWay === 0);
      if (!idle) return undefined;
      others.delete(idle[0]);
      void idle[1].client.close();
    }
    const client = createUpstream({ ...options, ...(observer ? { observer } : {}) });
    const other: Other = {
      client,
      pollsUnderWay: 0,
      upstream: {
        tag: client.tag,
        async poll(...args) {
          other.pollsUnderWay++;
          try {
            return await client.poll(...args);
          } finally {
            other.pollsUnderWay--;
          }
        },
      },
    };
    return other;
  }

  function unroutableOf(tag: string, { origin, lacks }: Unroutable): TaskUpstream {
    const detail = `the ${lacks} of the upstream that made the task is not known (${origin})`;
    let known = unroutable.get(tag);
    if (!known) {
      known = {
        upstream: constant(tag, { outcome: "unroutable", detail }),
        loggedAtMs: Number.NEGATIVE_INFINITY,
      };
      dropOldest(unroutable, UNROUTABLE_MAX);
      unroutable.set(tag, known);
    }
    if (nowMs() - known.loggedAtMs >= LOG_EVERY_MS) {
      known.loggedAtMs = nowMs();
      log.error(
        { upstream: origin, lacks },
        "tasks of another upstream cannot be asked for: set UPSTREAM_PREVIOUS_URL, whole and with its path, and " +
          "UPSTREAM_PREVIOUS_API_KEY, or " +
          "upstream.replaces if it is the same upstream",
      );
    }
    return known.upstream;
  }

  return {
    /** Remembers an address that tasks are made at from now on. */
    using(url: string): void {
      if (!used.has(url)) dropOldest(used, USED_MAX);
      used.set(url, true);
    },
    /**
     * @param tag as stored with the task; undefined for one of an earlier release
     * @param present made of these settings
     */
    of(tag: string | undefined, present: TaskUpstream, settings: TaskUpstreamSettings): TaskUpstream {
      if (tag === undefined || tag === present.tag) return present;
      const route = routeOf(tag, settings, used.keys());
      switch (route.to) {
        case "present":
          return present;
        case "other":
          return otherAt(settings, route.url, route.apiKey);
        case "unroutable":
          return unroutableOf(tag, route);
      }
    },
    async close(): Promise<void> {
      await Promise.all([...others.values()].map(({ client }) => client.close()));
    },
  };
}

export type TaskUpstreams = ReturnType<typeof createTaskUpstreams>;

type Unroutable = Extract<TaskRoute, { to: "unroutable" }>;

const constant = (tag: string, outcome: PollOutcome): TaskUpstream => ({ tag, poll: async () => outcome });

const busy = (tag: string): TaskUpstream =>
  constant(tag, { outcome: "overloaded", detail: `${OTHERS_MAX} other former upstreams are being asked` });

/** What a client is made of, and nothing else: other settings may change without a new one. */
function clientOptions(
  settings: TaskUpstreamSettings,
  url: string,
  apiKey: string | undefined,
): UpstreamOptions {
  const { connectTimeoutMs, headersTimeoutMs, totalTimeoutMs, keepAliveTimeoutMs } = settings;
  const timeouts = { connectTimeoutMs, headersTimeoutMs, totalTimeoutMs, keepAliveTimeoutMs };
  // Nothing is generated there any more.
  const { pollConnections, tlsCa } = settings;
  return { url, apiKey, tlsCa, ...timeouts, connections: 1, pollConnections, idempotent: false };
}
