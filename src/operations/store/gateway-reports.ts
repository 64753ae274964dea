import type { Connection } from "../../redis/connection.ts";
import type { RedisNodes } from "../../redis/nodes.ts";

const REPORTS = "tg:gateways";
/** A gateway that has said nothing for so long is not shown. */
const SHOWN_MS = 20_000;
/** After so long without a report a gateway's field is removed by the others. */
const FORGOTTEN_MS = 5 * 60_000;
/** More are not shown, and never is more read. */
const GATEWAYS_MAX = 500;

/** What a gateway says of itself every few seconds. Rates per second, over the last 10 s. */
export interface GatewayReport {
  gatewayId: string;
  host: string;
  pid: number;
  startedAtMs: number;
  /** The store's clock, Unix ms. */
  seenAtMs: number;
  configHash: string;
  /** Why it is not ready, in words; missing when it is. */
  notReady?: string | undefined;
  requestsPerSecond: number;
  refusedPerSecond: number;
  failedPerSecond: number;
  inFlight: number;
  /** Charges that wait for Redis in this gateway. */
  settlementsWaiting: number;
}

/**
 * Writes a gateway's report over its last one.
 * @throws GatewayError `store_unavailable`
 */
export async function writeReport(connection: Connection, report: GatewayReport): Promise<void> {
  await connection.ofName(REPORTS).command(async (redis) => {
    await redis.hset(REPORTS, report.gatewayId, JSON.stringify(report));
  });
}

/**
 * Removes one gateway's report, or those of gateways that ended without doing so.
 * @param gatewayId undefined for those that have been silent for minutes
 * @throws GatewayError `store_unavailable`
 */
export async function removeReports(connection: Connection, gatewayId?: string): Promise<void> {
  await connection.ofName(REPORTS).command(async (redis) => {
    if (gatewayId !== undefined) return void (await redis.hdel(REPORTS, gatewayId));
    const nowMs = connection.nowMs();
    const old = reportsIn(await redis.hgetall(REPORTS)).filter(
      ({ seenAtMs }) => seenAtMs < nowMs - FORGOTTEN_MS,
    );
    if (old.length > 0) await redis.hdel(REPORTS, ...old.map((report) => report.gatewayId));
  });
}

/** All gateways that have reported lately, by host and process. @param nowMs the store's clock, Unix ms */
export async function readReports(nodes: RedisNodes, nowMs: number): Promise<GatewayReport[]> {
  const reports = reportsIn(await nodes.ofName(REPORTS).hgetall(REPORTS));
  return reports
    .filter(({ seenAtMs }) => seenAtMs >= nowMs - SHOWN_MS)
    .sort((a, b) => (a.host === b.host ? a.pid - b.pid : a.host < b.host ? -1 : 1))
    .slice(0, GATEWAYS_MAX);
}

const reportsIn = (fields: Record<string, string>): GatewayReport[] =>
  Object.values(fields).map((text) => JSON.parse(text) as GatewayReport);
