import { expect, test } from "vitest";
import {
  type GatewayReport,
  readReports,
  removeReports,
  writeReport,
} from "../../src/store/gateway-reports.ts";
import { oneNode } from "../../src/store/nodes.ts";
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
  const gateways = await Promise.all([givenGateway(), givenGateway()]);
  const [{ redis }] = gateways as [(typeof gateways)[number], unknown];
  const own = async () => {
    const reports = await readReports(oneNode(redis), Date.now());
    return reports.filter(({ pid }) => pid === process.pid);
  };
  const before = (await own()).length;
  await until(async () => (await own()).length >= Math.max(2, before), "two reports");
  const reports = await own();
  expect(reports[0]).toMatchObject({
    gatewayId: expect.stringMatching(/^gtw_[0-9a-f]{12}$/),
    configHash: expect.stringMatching(/^[0-9a-f]+$/),
    requestsPerSecond: expect.any(Number),
    settlementsWaiting: 0,
  });
  expect(reports[0]).not.toHaveProperty("notReady");
  // The Redis of a run is shared with other files' gateways, which come and go.
  const ids = new Set(reports.map(({ gatewayId }) => gatewayId));
  await Promise.all(gateways.map((gateway) => gateway.stop()));
  const connection = await openConnection();
  try {
    const left = await readReports(oneNode(connection.redis), Date.now());
    expect(left.filter(({ gatewayId }) => ids.has(gatewayId)).length).toBeLessThanOrEqual(ids.size - 2);
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
    await writeReport(connection, { ...REPORT, gatewayId, seenAtMs: nowMs - 301_000 });
    await removeReports(connection);
    expect(await connection.redis.hexists("tg:gateways", gatewayId)).toBe(0);
  } finally {
    await connection.redis.hdel("tg:gateways", gatewayId);
    await connection.close();
  }
});
