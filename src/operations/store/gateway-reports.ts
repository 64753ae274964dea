import type { Connection } from "../../redis/connection.ts";
import type { RedisNodes } from "../../redis/store-facts.ts";

const REPORTS = "tg:gateways";
const SHOWN_MS = 20_000;
const FORGOTTEN_MS = 5 * 60_000;
const GATEWAYS_MAX = 500;

/** Rates are per second, over 10 s. */
export interface GatewayReport {
  gatewayId: string;
  host: string;
  pid: number;
  startedAtMs: number;
  seenAtMs: number;
  configHash: string;
  notReady?: string | undefined;
  requestsPerSecond: number;
  refusedPerSecond: number;
  failedPerSecond: number;
  inFlight: number;
  settlementsWaiting: number;
}

/** @throws GatewayError `store_unavailable` */
export async function writeReport(connection: Connection, report: GatewayReport): Promise<void> {
  await connection.ofName(REPORTS).command(async (redis) => {
    await redis.hset(REPORTS, report.gatewayId, JSON.stringify(report));
  });
}

/** @param gatewayId undefined: all that have been silent for minutes @throws GatewayError `store_unavailable` */
export async function removeReports(connection: Connection, gatewayId?: string): Promise<void> {
  await connection.ofName(REPORTS).command(async (redis) => {
    if (gatewayId !== undefined) return void (await redis.hdel(REPORTS, gatewayId));
    const nowMs = connection.nowMs();
    const old = reportsIn(await redis.hgetall(REPORTS)).filter(
      ({ seenAtMs }) => Math.abs(seenAtMs - nowMs) > FORGOTTEN_MS,
    );
    if (old.length > 0) await redis.hdel(REPORTS, ...old.map((report) => report.gatewayId));
  });
}

export async function readReports(nodes: RedisNodes, nowMs: number): Promise<GatewayReport[]> {
  const reports = reportsIn(await nodes.ofName(REPORTS).hgetall(REPORTS));
  // Reports of the future were written before the store's clock was set back.
  return reports
    .filter(({ seenAtMs }) => Math.abs(seenAtMs - nowMs) <= SHOWN_MS)
    .sort((a, b) => (a.host === b.host ? a.pid - b.pid : a.host < b.host ? -1 : 1))
    .slice(0, GATEWAYS_MAX);
}

const reportsIn = (fields: Record<string, string>): GatewayReport[] =>
  Object.values(fields).map((text) => JSON.parse(text) as GatewayReport);
