import { type Config, memoizeByConfigPart } from "../config/config.ts";
import { GATE_REFUSALS, type GateObserver } from "../domain/fair-gate.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { ADAPTER_FUNCTIONS, type AdapterObserver } from "../upstream/dialect.ts";
import { type TaskUpstream, TaskUpstreams } from "../upstream/task-upstreams.ts";
import { createUploadTunnel } from "../upstream/upload-stream.ts";
import { createUpstream } from "../upstream/upstream.ts";

export type Upstreams = ReturnType<typeof createUpstreams>;

/** The upstreams of a gateway, each created for a snapshot of the configuration: its address, its credential, its timeouts. */
export function createUpstreams({ metrics, log }: { metrics: Metrics; log: Logger }) {
  const adapter = observeAdapter(metrics, log);
  const observer = {
    generate: observeGate(metrics, "generate"),
    poll: observeGate(metrics, "poll"),
    adapter,
  };
  // Connections of a replaced upstream close by themselves, soon after its last request.
  const inUse = new InUse();
  const taskUpstreams = new TaskUpstreams({ observer, log });
  const upstream = memoizeByConfigPart(
    (config) => config.upstream,
    ({ upstream }) => {
      taskUpstreams.using(upstream.url, upstream);
      return inUse.add(createUpstream({ ...upstream, idempotent: upstream.idempotencyKey, observer }));
    },
  );
  const uploads = memoizeByConfigPart(
    ({ upstream, server }) => [upstream, server.uploadIdleTimeoutMs, server.uploadMinBytesPerSecond],
    ({ upstream, server }) =>
      inUse.add(
        createUploadTunnel({
          ...upstream,
          totalTimeoutMs: upstream.uploadTotalTimeoutMs,
          idleTimeoutMs: server.uploadIdleTimeoutMs,
          minBytesPerSecond: server.uploadMinBytesPerSecond,
          connections: upstream.uploadConnections,
          observer: { adapter },
        }),
      ),
  );
  return {
    upstream,
    upstreamOf: (tag: string | undefined, config: Config): TaskUpstream =>
      taskUpstreams.of(tag, upstream(config), config.upstream),
    uploads,
    /** Creates what a new snapshot needs. @throws Error for a snapshot that cannot be applied */
    prepare(config: Config): void {
      upstream(config);
      uploads(config);
    },
    /** Aborts requests in flight, also those of replaced snapshots, which settles them. */
    async close(): Promise<void> {
      await Promise.all([inUse.close(), taskUpstreams.close()]);
    },
  };
}

interface Closable {
  close(): Promise<void> | void;
}

/** Upstreams and tunnels of the snapshot in force, and of those that requests still keep. */
class InUse {
  readonly #made = new Set<WeakRef<Closable>>();

  add<Made extends Closable>(made: Made): Made {
    for (const one of this.#made) if (one.deref() === undefined) this.#made.delete(one);
    this.#made.add(new WeakRef(made));
    return made;
  }

  async close(): Promise<void> {
    await Promise.all([...this.#made].map((one) => one.deref()?.close()));
  }
}

const LOG_EVERY_MS = 60_000;

/** Counts what adapters do wrong; the answer's own line of the log says what it was. Slow ones are logged once a minute. */
function observeAdapter(
  { upstreamAdapterFaults }: Pick<Metrics, "upstreamAdapterFaults">,
  log: Pick<Logger, "warn">,
): AdapterObserver {
  for (const called of ADAPTER_FUNCTIONS) upstreamAdapterFaults.inc({ call: called }, 0);
  let loggedAtMs = Number.NEGATIVE_INFINITY;
  return {
    fault: (_adapter, called) => upstreamAdapterFaults.inc({ call: called }),
    slow(adapter, called, tookMs) {
      if (performance.now() - loggedAtMs < LOG_EVERY_MS) return;
      loggedAtMs = performance.now();
      const fields = { adapter, call: called, took_ms: Math.round(tookMs) };
      log.warn(fields, "a function of the adapter is slow: meanwhile the gateway serves nobody");
    },
  };
}

function observeGate(
  metrics: Pick<Metrics, "upstreamWaiting" | "upstreamWaitSeconds" | "upstreamOverloaded">,
  kind: "generate" | "poll",
): GateObserver {
  const { upstreamWaiting, upstreamWaitSeconds, upstreamOverloaded } = metrics;
  // All series exist from the start, so that the first refusal is seen.
  upstreamWaiting.inc({ kind }, 0);
  for (const reason of GATE_REFUSALS) upstreamOverloaded.inc({ kind, reason }, 0);
  return {
    waiting: (change) => upstreamWaiting.inc({ kind }, change),
    waited: (ms) => upstreamWaitSeconds.observe({ kind }, ms / 1000),
    refused: (reason) => upstreamOverloaded.inc({ kind, reason }),
  };
}
