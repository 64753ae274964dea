import { afterAll, beforeAll, expect, test } from "vitest";
import { generate, givenStage, type Stage } from "../support/store-stage.ts";
import { setKeyFields } from "../support/stored-records.ts";

let stage: Stage;
beforeAll(async () => {
  stage = await givenStage();
});
afterAll(() => stage.stop());

/** Redis calls of one request, by name, without those of the gateway's own regular work. */
async function storeCallsOf(request: () => Promise<{ status: number }>) {
  const names = ["get", "inspect", "admit", "credits"];
  const counts = () => names.map((name) => stage.proxy.count(name));
  const before = counts();
  const { status } = await request();
  return { status, calls: counts().map((count, at) => count - before[at]!) };
}

// Guarantee: the time of an answer does not tell whether a wrong key was once a good one.
test("a revoked or expired key costs the same store calls as an unknown one", async () => {
  const { gateway } = stage;
  const revoked = await stage.givenKey();
  const partition = `tg:*:key:${revoked.keyId}`;
  const [name] = await stage.redis.client.keys(partition);
  await setKeyFields(stage.redis.client, name!, { revoked_at: Date.now() });
  const expired = await stage.givenKey({ expiresAtMs: Date.now() - 1000 });
  const unknown = `sk_${"u".repeat(40)}`;
  for (const ask of [
    (key: string) => gateway.request("GET", "/api/v1/credits", { key }),
    (key: string) => generate(gateway, { key }),
    (key: string) => gateway.request("GET", "/api/v1/tasks/task_x", { key }),
  ]) {
    const costs = [];
    for (const key of [unknown, revoked.key, expired.key]) costs.push(await storeCallsOf(() => ask(key)));
    expect(costs[0]!.status).toBe(401);
    expect(costs[1]).toEqual(costs[0]);
    expect(costs[2]).toEqual(costs[0]);
  }
});

test("a good key is looked up once", async () => {
  const { key } = await stage.givenKey();
  const ask = () => stage.gateway.request("GET", "/api/v1/credits", { key });
  expect(await storeCallsOf(ask)).toEqual({ status: 200, calls: [1, 1, 0, 1] });
  expect(await storeCallsOf(ask)).toEqual({ status: 200, calls: [0, 0, 0, 1] });
});
