import { expect, test } from "vitest";
import {
  type GatewayReport,
  readReports,
  removeReports,
  writeReport,
} from "../../src/operations/store/gateway-reports.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { givenGateway, until } from "../support/gateway.ts";
import { openConnection } from "../support/store.ts";

const REPORT: GatewayReport = {
  gatewayId: "gtw_none",
  host: "elsewhere",
  pid: 1,
  startedAtMs: 0,
  seenAtMs: 0,
  configHash: "none",
  requestsPerSecond: 0,
  refusedPerSecond: 0,
  failedPerSecond: 0,
  inFlight: 0,
  settlementsWaiting: 0,
};

// Guarantee: each gateway's console shows all gateways that run, and none that has ended.
test("gateways report themselves, and are gone from the reports once they have drained", async () => {
  const connection = await openConnection();
  // The Redis of a run is shared with other files' gateways, of which some are of this process.
  const all = () => readReports(oneNode(connection.redis), Date.now());
  const others = new Set((await all()).map(({ gatewayId }) => gatewayId));
  try {
    const gateways = await Promise.all([givenGateway(), givenGateway()]);
    const own = async () =>
      (await all()).filter(({ gatewayId, pid }) => pid === process.pid && !others.has(gatewayId));
    await until(async () => (await own()).length >= 2, "two reports");
    const reports = await own();
    expect(reports[0]).toMatchObject({
      gatewayId: expect.stringMatching(/^gtw_[0-9a-f]{12}$/),
      configHash: expect.stringMatching(/^[0-9a-f]+$/),
      requestsPerSecond: expect.any(Number),
      settlementsWaiting: 0,
    });
    expect(reports[0]).not.toHaveProperty("notReady");
    await Promise.all(gateways.map((gateway) => gateway.stop()));
    expect(await own()).toEqual([]);
  } finally {
    await connection.close();
  }
});

test("a gateway that was killed is not shown after 20 s, and forgotten after minutes", async () => {
  const connection = await openConnection();
  const nowMs = connection.nowMs();
  const gatewayId = `gtw_killed_${process.pid}`;
  const shown = async () => {
    const reports = await readReports(oneNode(connection.redis), nowMs);
    return reports.some((report) => report.gatewayId === gatewayId);
  };
  try {
    await writeReport(connection, { ...REPORT, gatewayId, seenAtMs: nowMs - 19_000 });
    expect(await shown()).toBe(true);
    await writeReport(connection, { ...REPORT, gatewayId, seenAtMs: nowMs - 21_000 });
    expect(await shown()).toBe(false);
    await removeReports(connection);
    expect(await connection.redis.hexists("tg:gateways", gatewayId)).toBe(1);
    // Guarantee: the same of one that was killed before the store's clock was set back.
    for (const seenAtMs of [nowMs - 301_000, nowMs + 3_600_000]) {
      await writeReport(connection, { ...REPORT, gatewayId, seenAtMs });
      expect(await shown()).toBe(false);
      await removeReports(connection);
      expect(await connection.redis.hexists("tg:gateways", gatewayId)).toBe(0);
    }
  } finally {
    await connection.redis.hdel("tg:gateways", gatewayId);
    await connection.close();
  }
});
