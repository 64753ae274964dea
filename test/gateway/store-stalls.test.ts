import { setImmediate as nextCheckPhase } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { keyRef } from "../../src/records/names.ts";
import { inspect } from "../../src/scripts/tasks.ts";
import { expectStatus, givenGateway, type TestGateway, until } from "../support/gateway.ts";
import { openConnection, TIERS } from "../support/store.ts";
import {
  COMMAND_TIMEOUT_MS,
  expectStoreAway,
  generate,
  givenStage,
  PRICE,
  ready,
  readyz,
  type Stage,
  sent,
} from "../support/store-stage.ts";

let stage: Stage;
beforeAll(async () => {
  stage = await givenStage({ config: { store: { fallbackStrategy: "allow" } } });
});
afterAll(() => stage.stop());
beforeEach(() => {
  stage.gateway.generator.requests.length = 0;
});

/** Holds the event loop up, as a burst of work does. Redis and the kernel go on. */
function standStill(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

test("a reply that came while the process stood still is read before the call counts as timed out", async () => {
  // Of this file alone: others keep the one of all tests busy for longer than this limit.
  const connection = await openConnection(stage.redis.url, 100);
  try {
    const inspected = connection.run(inspect, { key: keyRef("none", "none", 0), tiers: TIERS });
    // The batch is sent at the end of this tick, before this goes on.
    await nextCheckPhase();
    standStill(500);
    expect((await inspected).outcome).toBe("unknown_key");
    const written = connection.command((redis) => redis.get("tg:meta:none"));
    await nextCheckPhase();
    standStill(500);
    expect(await written).toBeNull();
    expect(connection.breaker.isOpen).toBe(false);
  } finally {
    await connection.close();
  }
});

// A key without credits had hundreds of free videos by loading the gateway until its own calls timed out.
test("a gateway that stands still again and again lets nothing pass unmetered", async () => {
  const gateway = await givenGateway({
    redisUrl: stage.redis.url,
    config: { store: { fallbackStrategy: "allow", commandTimeoutMs: 100 } },
  });
  try {
    await ready(gateway);
    const key = await gateway.givenKey({ credits: PRICE });
    expectStatus(await generate(gateway, key), 200);
    const stalls = setInterval(() => standStill(150), 1);
    try {
      for (let round = 0; round < 5; round++) {
        const replies = await Promise.all(Array.from({ length: 10 }, () => generate(gateway, key)));
        expect(replies.map(({ status }) => status)).toEqual(replies.map(() => 402));
      }
    } finally {
      clearInterval(stalls);
    }
    expect(sent(gateway)).toHaveLength(1);
    expect(await readyz(gateway)).toBe(200);
  } finally {
    await gateway.stop();
  }
});

/** How many requests have passed unmetered. */
async function unmetered(gateway: TestGateway): Promise<number> {
  const lines = await gateway.metric("tollgate_degraded_requests_total{");
  return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

test.each(["drop_reply", "reset_before", "reset_after"] as const)(
  "nothing passes unmetered when one connection meets %s and Redis answers on another",
  async (kind) => {
    const key = await stage.givenKey({ credits: 2 * PRICE });
    expectStatus(await generate(stage.gateway, key), 200);
    const before = sent(stage.gateway).length;
    const { struck } = stage.proxy.strike(kind, "admit");
    const replies = [await generate(stage.gateway, key)];
    await struck;
    expectStoreAway(replies[0]!);
    await ready(stage.gateway);
    expect(sent(stage.gateway)).toHaveLength(before);
    expect(await unmetered(stage.gateway)).toBe(0);
    expectStatus(await generate(stage.gateway, key), 200);
    expectStatus(await generate(stage.gateway, key), 402);
  },
);

test("a Redis that hangs is found, and the connection is replaced", async () => {
  const key = await stage.givenKey();
  expectStatus(await generate(stage.gateway, key), 200);
  const connections = stage.proxy.connections();
  const unusable = () => stage.gateway.logs.filter((line) => line.includes("the store is unusable"));
  stage.gateway.logs.length = 0;
  stage.redis.pause();
  try {
    // The first request waits for its own call and for the probe, the second finds the verdict.
    for (let nth = 0; nth < 2; nth++) {
      const reply = await generate(stage.gateway, key);
      expect(reply.headers.get("x-gateway-degraded")).toBe("store");
    }
    expect(await readyz(stage.gateway)).toBe(503);
    await until(() => unusable().length > 0, "the reason in the log");
    for (const line of unusable()) expect(line).toContain("bring back this Redis with its data");
    await expect
      .poll(() => stage.proxy.connections(), { timeout: 60 * COMMAND_TIMEOUT_MS })
      .toBeGreaterThan(connections + 1);
  } finally {
    stage.redis.resume();
  }
  await ready(stage.gateway);
  expect((await generate(stage.gateway, key)).headers.get("x-gateway-degraded")).toBeNull();
});
