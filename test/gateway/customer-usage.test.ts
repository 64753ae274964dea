import { afterAll, beforeAll, expect, test, vi } from "vitest";
import {
  expectStatus,
  givenGateway,
  limitsOf,
  type Reply,
  type TestGateway,
  until,
} from "../support/gateway.ts";
import { asking, BOAT, PRO_TEXT_TO_VIDEO, setStatus, TEXT_TO_VIDEO } from "./spec-stage.ts";

let gateway: TestGateway;
let ask: ReturnType<typeof asking>;
beforeAll(async () => {
  gateway = await givenGateway();
  ask = asking(gateway);
});
afterAll(() => gateway.stop());

const usage = (key: string, query = ""): Promise<Reply> => ask("GET", `/api/v1/usage${query}`, { key });
const today = new Date().toISOString().slice(0, 10);

// Guarantee: customers see what they used, of all their keys, and nobody else's.
test("an account reads its usage by day, endpoint and key, of all its keys", async () => {
  const one = await gateway.givenKey();
  const two = await gateway.givenKey({ accountId: one.accountId, credits: 0 });
  const stranger = await gateway.givenKey();
  for (const [{ key }, path] of [
    [one, TEXT_TO_VIDEO],
    [one, PRO_TEXT_TO_VIDEO],
    [two, TEXT_TO_VIDEO],
  ] as const)
    expectStatus(await ask("POST", path, { key, body: BOAT }), 200);
  // Each question of its own: an answer is kept for five seconds.
  let days = 0;
  await until(async () => {
    const from = new Date(Date.now() - ++days * 86_400_000).toISOString().slice(0, 10);
    return (await usage(one.key, `?from=${from}`)).body.data.rows[0]?.requests === 3;
  }, "the roll-up");
  const byEndpoint = (await usage(two.key, "?group_by=endpoint")).body.data;
  expect(byEndpoint).toMatchObject({ to: today, group_by: "endpoint" });
  expect(byEndpoint.rows).toMatchObject([
    { endpoint: PRO_TEXT_TO_VIDEO, requests: 1, credits: 150 },
    { endpoint: TEXT_TO_VIDEO, requests: 2, credits: 20 },
  ]);
  const byKey = (await usage(one.key, "?group_by=key")).body.data.rows;
  expect(byKey).toHaveLength(2);
  expect(byKey).toContainEqual(expect.objectContaining({ key_id: two.keyId, requests: 1 }));
  const others = await usage(stranger.key);
  expect(others.body.data.rows).toEqual([]);
  expect(limitsOf(others)).toMatchObject({ limit: 1000, remaining: 1000 });
});

// Guarantee: an answer without days ends with the store's day, by which usage is counted, whatever the gateway's clock says.
test("today is that of the store's clock", async () => {
  const { key } = await gateway.givenKey();
  const nowMs = Date.now();
  const clock = vi.spyOn(Date, "now").mockReturnValue(nowMs - 2 * 86_400_000);
  try {
    const { data } = (await usage(key)).body;
    expect(data).toMatchObject({
      to: today,
      from: new Date(nowMs - 30 * 86_400_000).toISOString().slice(0, 10),
    });
  } finally {
    clock.mockRestore();
  }
});

test.each([
  ["?from=2026-02-30", /from must be a day such as 2026-10-31; 2026-02 has no day 30/],
  ["?to=-000001-01", /^Invalid request: to must be a day such as 2026-10-31$/],
  ["?from=%2B012026-10&to=%2B012026-10", /from must be a day such as 2026-10-31/],
  ["?to=0000-01-01", /from must be a day such as 2026-10-31/],
  ["?from=2026-03-02&to=2026-03-01", /from must not come after to/],
  // 92 days apart, and so 93 days.
  ["?from=2026-08-29&to=2026-11-29", /at most 92 days, from and to included/],
  ["?group_by=hour", /group_by must be one of/],
  ["?group_by=day&group_by=key", /given twice/],
  ["?form=2026-01-01", /did you mean from/],
])("%s is refused in words", async (query, words) => {
  const { key } = await gateway.givenKey();
  const reply = await usage(key, query);
  expectStatus(reply, 400);
  expect(reply.body.error).toMatch(words);
  // Paths point into a body, and there is none.
  for (const { path } of reply.body.details) expect(path).toBe("");
});

test("of a query with many unknown names the first problems are named, as of a body", async () => {
  const { key } = await gateway.givenKey();
  const names = Array.from({ length: 1000 }, (_, at) => `a${at}`);
  const reply = await usage(key, `?${names.join("&")}&from=yesterday`);
  expectStatus(reply, 400);
  expect(reply.body.details).toHaveLength(20);
});

test("it needs a key that is good, is of a suspended account, too, and not of a closed one", async () => {
  const key = await gateway.givenKey();
  expectStatus(await ask("GET", "/api/v1/usage", {}), 401);
  expectStatus(await usage("sk_unknown"), 401);
  expectStatus(await ask("POST", "/api/v1/usage", { key: key.key, body: {} }), 405);
  await setStatus(gateway, key, "suspended");
  expectStatus(await usage(key.key), 200);
  await setStatus(gateway, key, "closed");
  expectStatus(await usage(key.key), 403);
});

test("it counts toward the rate of polls and credits", async () => {
  const strict = await givenGateway({
    config: { server: { utilityRequestsPerSecond: 2 } },
    generator: gateway.generator,
  });
  try {
    const { key } = await gateway.givenKey();
    const replies = await Promise.all(
      Array.from({ length: 12 }, () => strict.request("GET", "/api/v1/usage", { key })),
    );
    expect(new Set(replies.map(({ body }) => body.code))).toEqual(new Set([200, 2007]));
  } finally {
    await strict.stop();
  }
});
