import type { LiveConfig } from "../config/live.ts";
import { type Callbacks, createCallbacks } from "../gateway/callbacks.ts";
import type { Upstreams } from "../gateway/upstreams.ts";
import type { Connection } from "../redis/connection.ts";
import { CallbackTasks, type CallbackTasksOptions } from "../settlement/callback-tasks.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { createCallbackGuard } from "../webhooks/operator-rules.ts";

export interface RelayOptions {
  connection: Connection;
  store: CallbackTasksOptions["store"];
  upstreams: Upstreams;
  live: LiveConfig;
  metrics: Metrics;
  log: Logger;
}

/** The relay of `callBackUrl`, of the present configuration. */
export function createCallbackRelay(options: RelayOptions): Callbacks {
  const { connection, store, upstreams, live, metrics, log } = options;
  const tasks = new CallbackTasks({
    connection,
    store,
    upstream: () => upstreams.upstream(live.config()),
    upstreamOf: (tag) => upstreams.upstreamOf(tag, live.config()),
    settings: live.config,
    metrics,
    log,
  });
  return createCallbacks({ tasks, guard: createCallbackGuard(connection) }, metrics);
}
