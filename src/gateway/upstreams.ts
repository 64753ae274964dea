import type { Config } from "../config/config.ts";
import { memoizeByConfigPart } from "../config/memoize.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { observeAdapter } from "../upstream/adapter-observer.ts";
import { observeGate } from "../upstream/gate.ts";
import { type TaskUpstream, TaskUpstreams } from "../upstream/task-upstreams.ts";
import { createUploadTunnel, type UploadTunnel } from "../upstream/upload-stream.ts";
import { createUpstream, type Upstream } from "../upstream/upstream.ts";

/** The upstreams of a gateway, each created for a snapshot of the configuration: its address, its credential, its timeouts. */
export interface Upstreams {
  upstream(config: Config): Upstream;
  /** The upstream that made a task, by the tag that is stored with the task; undefined for a task that was restored. */
  upstreamOf(tag: string | undefined, config: Config): TaskUpstream;
  uploads(config: Config): UploadTunnel;
  /** Creates what a new snapshot needs. @throws Error for a snapshot that cannot be applied */
  prepare(config: Config): void;
  /** Aborts requests in flight, which settles them. */
  close(config: Config): Promise<void>;
}

export function createUpstreams({ metrics, log }: { metrics: Metrics; log: Logger }): Upstreams {
  const adapter = observeAdapter(metrics, log);
  const observer = {
    generate: observeGate(metrics, "generate"),
    poll: observeGate(metrics, "poll"),
    adapter,
  };
  // Connections of a replaced upstream close by themselves, soon after its last request.
  const taskUpstreams = new TaskUpstreams({ observer, log });
  const upstream = memoizeByConfigPart(
    (config) => config.upstream,
    ({ upstream }) => {
      taskUpstreams.using(upstream.url, upstream);
      return createUpstream({ ...upstream, idempotent: upstream.idempotencyKey, observer });
    },
  );
  const uploads = memoizeByConfigPart(
    ({ upstream, server }) => [upstream, server.uploadIdleTimeoutMs, server.uploadMinBytesPerSecond],
    ({ upstream, server }) =>
      createUploadTunnel({
        ...upstream,
        totalTimeoutMs: upstream.uploadTotalTimeoutMs,
        idleTimeoutMs: server.uploadIdleTimeoutMs,
        minBytesPerSecond: server.uploadMinBytesPerSecond,
        connections: upstream.uploadConnections,
        observer: { adapter },
      }),
  );
  return {
    upstream,
    upstreamOf: (tag, config) => taskUpstreams.of(tag, upstream(config), config.upstream),
    uploads,
    prepare(config) {
      upstream(config);
      uploads(config);
    },
    async close(config) {
      uploads(config).close();
      await Promise.all([upstream(config).close(), taskUpstreams.close()]);
    },
  };
}
