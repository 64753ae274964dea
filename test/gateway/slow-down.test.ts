import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { readLedger } from "../support/audit.ts";
import { expectStatus, limitsOf, type Reply, until } from "../support/gateway.ts";
import { rawClient, rawPost } from "../support/raw-client.ts";
import { generate, givenStage, PRICE, type Stage, TEXT_TO_VIDEO } from "../support/store-stage.ts";

let stage: Stage;
beforeAll(async () => {
  stage = await givenStage({ config: { server: { utilityRequestsPerSecond: 1 } } });
});
afterAll(() => stage.stop());

/** Costs 330 by the reference prices. */
const DEAR = "/api/v1/gen2-pro/text-to-video";
const MANY = 30;
/** A burst of 2, and what a slow machine earns meanwhile. */
const PASSING_MAX = MANY / 2;

/** Sends many requests at once; answers how many each HTTP status had, and the 429s. */
async function many(ask: () => Promise<Reply>): Promise<{ passed: Reply[]; refused: Reply[] }> {
  const replies = await Promise.all(Array.from({ length: MANY }, ask));
  const refused = replies.filter(({ status }) => status === 429);
  return { refused, passed: replies.filter(({ status }) => status !== 429) };
}

function expectSlowDown(refused: Reply[], numbers: Record<string, unknown>): void {
  expect(refused.length).toBeGreaterThanOrEqual(MANY - PASSING_MAX);
  for (const reply of refused) {
    expect(reply.body).toMatchObject({ code: 2007, retryAfter: 1, error: reply.body.msg });
    expect(reply.headers.get("retry-after")).toBe("1");
    expect(limitsOf(reply)).toMatchObject(numbers);
    expect(limitsOf(reply).reset).toBeGreaterThanOrEqual(Math.floor(Date.now() / 1000) - 60);
  }
}

const WAYS: [what: string, script: string, ask: (key: IssuedKey) => Promise<Reply>][] = [
  ["credits", "credits", ({ key }) => stage.gateway.request("GET", "/api/v1/credits", { key })],
  ["polls", "inspect", ({ key }) => stage.gateway.request("GET", "/api/v1/tasks/task_none", { key })],
  [
    "uploads",
    "inspect",
    ({ key }) => stage.gateway.request("POST", "/api/v1/upload", { key, body: "nothing" }),
  ],
  ["bad bodies", "inspect", ({ key }) => stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: {} })],
  ["unknown paths", "inspect", ({ key }) => stage.gateway.request("GET", "/api/v1/nothing", { key })],
  ["wrong methods", "inspect", ({ key }) => stage.gateway.request("DELETE", "/api/v1/credits", { key })],
];

test.each(WAYS)(
  "%s of a key above its rate are refused before the store is asked",
  async (_what, script, ask) => {
    const { proxy, gateway } = stage;
    const key = await stage.givenKey();
    expectStatus(await generate(gateway, key), 200);
    const before = proxy.count(script);
    const { passed, refused } = await many(() => ask(key));
    expect(proxy.count(script) - before).toBe(passed.length);
    // The gateway's last numbers of the key, though nobody has asked for them.
    expectSlowDown(refused, { limit: 1000, remaining: 999, maxConcurrent: 1000, active: 1 });

    const other = await stage.givenKey();
    expect((await ask(other)).status, "another key is not concerned").not.toBe(429);
    expectStatus(await generate(gateway, key), 200, "nor are generations");
    expect(await readLedger(stage.redis.client, key)).toMatchObject({ totalRequests: 2, windowEntries: 2 });
  },
);

// Guarantee: a request that is refused in the middle of its body costs the store no more than others.
test("heads and bodies that break HTTP count against the key's rate", async () => {
  const key = await stage.givenKey();
  expectStatus(await generate(stage.gateway, key), 200);
  const before = stage.proxy.count("inspect");
  for (let nth = 0; nth < MANY; nth++) {
    const client = await rawClient(stage.gateway.url);
    const { head } = rawPost(TEXT_TO_VIDEO, key.key, {});
    client.send(head.replace("\r\n\r\n", "\r\nHost: another\r\n\r\n"));
    await client.ended();
  }
  expect(stage.proxy.count("inspect") - before).toBeLessThanOrEqual(PASSING_MAX);
});

test("before the store has answered anything about a key, its numbers are zeros", async () => {
  const key = await stage.givenKey();
  const { refused } = await many(() => stage.gateway.request("GET", "/api/v1/credits", { key: key.key }));
  expect(refused.length).toBeGreaterThanOrEqual(MANY - PASSING_MAX);
  for (const reply of refused) expect([0, 1000]).toContain(limitsOf(reply).limit);
});

describe("generations for which the credits do not suffice", () => {
  const withCredits = (credits: number) => stage.givenKey({ credits, limits: { daily_limit: 1000 } });

  // Guarantee: a key without credits costs the store no more than its rate.
  test("count against the key's rate, also with an Idempotency-Key, and toward no limit", async () => {
    const key = await withCredits(0);
    expectStatus(await generate(stage.gateway, key), 402);
    const before = stage.proxy.count("admit");
    let sent = 0;
    const { passed, refused } = await many(() =>
      generate(stage.gateway, key, undefined, sent++ % 2 === 0 ? {} : { "idempotency-key": `k${sent}` }),
    );
    expect(stage.proxy.count("admit") - before).toBe(passed.length);
    expect(new Set(passed.map(({ status }) => status))).toEqual(new Set([402]));
    expectSlowDown(refused, { limit: 1000, remaining: 1000, maxConcurrent: 1000, active: 0 });
    expect(await readLedger(stage.redis.client, key)).toMatchObject({ totalRequests: 0, windowEntries: 0 });
  });

  // Guarantee: a key with credits is not concerned.
  test("do not concern a key whose credits suffice", async () => {
    const key = await withCredits(MANY * PRICE);
    const { passed } = await many(() => generate(stage.gateway, key));
    expect(passed.map(({ status }) => status)).toEqual(Array(MANY).fill(200));
  });

  test("do not concern what costs less", async () => {
    const key = await withCredits(MANY * PRICE);
    const body = { prompt: "A paper boat", quality: "high" };
    const dear = () => stage.gateway.request("POST", DEAR, { key: key.key, body });
    expectStatus(await dear(), 402);
    const { refused } = await many(dear);
    expect(refused.length).toBeGreaterThan(0);
    const { passed } = await many(() => generate(stage.gateway, key));
    expect(passed.map(({ status }) => status)).toEqual(Array(MANY).fill(200));
  });

  // Guarantee: credits that are bought count for the next request that may pass, and from then on there is no rate.
  test("no longer count once credits were granted", async () => {
    const key = await withCredits(0);
    expectStatus(await generate(stage.gateway, key), 402);
    expect((await many(() => generate(stage.gateway, key))).refused.length).toBeGreaterThan(0);
    await grantCredits(oneNode(stage.redis.client), key.accountId, (MANY + 1) * PRICE, "bought", cliActor());
    await until(async () => (await generate(stage.gateway, key)).status === 200, "a generation to pass");
    const { passed } = await many(() => generate(stage.gateway, key));
    expect(passed.map(({ status }) => status)).toEqual(Array(MANY).fill(200));
  });
});
