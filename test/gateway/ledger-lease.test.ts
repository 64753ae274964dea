import type { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createSurveys } from "../../src/operations/store/survey.ts";
import type { Connection } from "../../src/redis/connection.ts";
import { createScriptRunner } from "../../src/redis/script-runner.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";

let redis: TestRedis;
beforeAll(async () => {
  redis = await givenRedis();
});
afterAll(() => redis?.stop());

// The lease belongs to all gateways of a Redis: this test has one of its own.
test("a ledger check interval that was shortened counts for the lease that is held", async () => {
  const command = <T>(work: (client: Redis) => Promise<T>): Promise<T> => work(redis.client);
  const { run } = createScriptRunner(redis.client);
  const connection = { ofName: () => ({ command, run }) } as unknown as Connection;
  const { ledgerLease } = createSurveys(connection);
  const waitMs = (): Promise<number> => redis.client.pttl("tg:ledger-lease");
  expect(await ledgerLease(3_600_000)).toBe(true);
  expect(await ledgerLease(60_000)).toBe(false);
  expect(await waitMs()).toBeLessThanOrEqual(60_000);
  expect(await ledgerLease(3_600_000)).toBe(false);
  expect(await waitMs()).toBeLessThanOrEqual(60_000);
  expect(await waitMs()).toBeGreaterThan(0);
});
