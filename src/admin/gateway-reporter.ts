import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { type GatewayReport, removeReports, writeReport } from "../operations/store/gateway-reports.ts";
import type { Connection } from "../redis/connection.ts";
import { repeated } from "../redis/repeated-work.ts";
import type { Logger } from "../telemetry/log.ts";

const REPORT_EVERY_MS = 5000;
/** Every so many reports, those of gateways that ended without a word are removed. */
const REMOVE_EVERY = 12;

type Figures = Pick<
  GatewayReport,
  "requestsPerSecond" | "refusedPerSecond" | "failedPerSecond" | "inFlight" | "settlementsWaiting"
>;

/** Writes this gateway's report to the store every 5 s, so that each gateway's console shows all. While the store is away nothing is written. */
export function createGatewayReporter(options: {
  connection: Connection;
  figures(): Figures;
  configHash(): string;
  /** Why the gateway is not ready, in words; undefined when it is. */
  notReady(): string | undefined;
  log: Logger;
}) {
  const { connection, log } = options;
  const gatewayId = `gtw_${randomBytes(6).toString("hex")}`;
  const startedAtMs = Math.round(Date.now() - process.uptime() * 1000);
  let written = 0;

  async function report(): Promise<void> {
    if (!connection.isUsable()) return;
    await writeReport(connection, {
      gatewayId,
      host: hostname(),
      pid: process.pid,
      startedAtMs,
      seenAtMs: connection.nowMs(),
      configHash: options.configHash(),
      notReady: options.notReady(),
      ...options.figures(),
    });
    if (written++ % REMOVE_EVERY === 0) await removeReports(connection);
  }

  const reports = repeated(report, {
    pauseMs: () => REPORT_EVERY_MS,
    failed: (error) => log.debug({ err: error }, "gateway report not written"),
  });
  return {
    gatewayId,
    report,
    start: (): void => reports.start(0),
    /** Removes the report: a gateway that has ended is not shown for 20 s more. */
    async stop(): Promise<void> {
      await reports.stop();
      if (written > 0 && connection.isUsable())
        await removeReports(connection, gatewayId).catch(() => undefined);
    },
  };
}
