import { afterAll, beforeAll, expect, test } from "vitest";
import type { Limits } from "../../src/domain/limits.ts";
import {
  count,
  createStage,
  openConnection,
  type Stage,
  type TestConnection,
  times,
} from "../support/store.ts";

// By Redis TIME and over several connections, as several gateways would.

const GATEWAYS = 4;
const SIMULTANEOUS = 200;
const LIMIT = 37;

let connections: TestConnection[];
beforeAll(async () => {
  connections = await Promise.all(times(GATEWAYS, () => openConnection()));
});
afterAll(() => Promise.all(connections.map((connection) => connection.close())));

/** Stages of all gateways over one partition. */
function givenGateways(): Stage[] {
  const [first, ...rest] = connections;
  const stage = createStage(first!, { clock: "redis" });
  const { partition } = stage;
  return [stage, ...rest.map((connection) => createStage(connection, { clock: "redis", partition }))];
}

async function admitAll(wanted: Partial<Limits> & { credits?: number }, digest?: string) {
  const gateways = givenGateways();
  const key = await gateways[0]!.givenKey({ credits: 100_000, ...wanted });
  const results = await Promise.all(
    times(SIMULTANEOUS, (at) => {
      const gateway = gateways[at % GATEWAYS]!;
      const idempotency = digest ? { idempotency: { digest, fingerprint: "a body" } } : {};
      return gateway.admit(gateway.request(key, idempotency));
    }),
  );
  return { results, key, stage: gateways[0]! };
}

test.each([
  ["the window", { rate_limit: LIMIT }, "rate_limited"],
  ["the slots", { max_concurrent: LIMIT }, "concurrency_limited"],
  ["the credits", { credits: LIMIT * 10 + 9 }, "insufficient_credits"],
])("200 simultaneous admissions fill %s exactly", async (_, wanted, refusal) => {
  const { results, key, stage } = await admitAll(wanted);
  expect(count(results, "admitted")).toBe(LIMIT);
  expect(count(results, refusal)).toBe(SIMULTANEOUS - LIMIT);
  expect(await stage.credits(key)).toMatchObject({ totalRequests: LIMIT, state: { active: LIMIT } });
  expect(await stage.held(key)).toBe(LIMIT * 10);
});

test("200 simultaneous admissions fill the day exactly", async () => {
  const today = async (): Promise<number> =>
    Math.floor(Number((await connections[0]!.redis.time())[0]) / 86_400);
  let day: number;
  let results: { outcome: string }[];
  do {
    day = await today();
    ({ results } = await admitAll({ daily_limit: LIMIT }));
    // At midnight UTC a second day may be open: ask again on that one.
  } while ((await today()) !== day);
  expect(count(results, "admitted")).toBe(LIMIT);
  expect(count(results, "daily_limited")).toBe(SIMULTANEOUS - LIMIT);
});

test("of 200 simultaneous requests with one Idempotency-Key one is admitted", async () => {
  const { results, key, stage } = await admitAll({}, "one key");
  expect(count(results, "admitted")).toBe(1);
  expect(count(results, "idempotency_in_progress")).toBe(SIMULTANEOUS - 1);
  expect(await stage.credits(key)).toMatchObject({ totalRequests: 1, state: { active: 1 } });
});

test("limits that are wide enough refuse nobody", async () => {
  const { results } = await admitAll({
    rate_limit: SIMULTANEOUS,
    max_concurrent: SIMULTANEOUS,
    credits: 2000,
  });
  expect(count(results, "admitted")).toBe(SIMULTANEOUS);
});

test("a task that all gateways see fail at once is refunded once", async () => {
  const gateways = givenGateways();
  const key = await gateways[0]!.givenKey({ credits: 10 });
  const generation = gateways[0]!.request(key);
  await gateways[0]!.givenTask(generation);
  const seen = await Promise.all(gateways.map((gateway) => gateway.observe(generation, "failed")));
  expect(count(seen, "finished")).toBe(1);
  expect(await gateways[0]!.credits(key)).toMatchObject({ balance: 10, totalUsed: 0 });
});
