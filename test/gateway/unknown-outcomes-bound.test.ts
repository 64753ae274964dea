import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { requestName } from "../../src/records/names.ts";
import { ENVELOPE } from "../../src/upstream/adapters/envelope.ts";
import { makeDue, readLedger } from "../support/audit.ts";
import { expectStatus, until } from "../support/gateway.ts";
import { generate, givenStage, type Stage, sent } from "../support/store-stage.ts";
import { readRequest } from "../support/stored-requests.ts";

const STORYBOARD = "/api/v1/gen2-pro/storyboard";
const MAX_AGE_MS = 7_200_000;
const UNKNOWN_MAX = 2;
/** The sweeper voids what is due by the tests' own steps alone. */
const TASKS = { maxAgeMs: MAX_AGE_MS, unknownOutcomesPerAccount: UNKNOWN_MAX, sweepIntervalMs: 20 };

let stage: Stage;
beforeAll(async () => {
  stage = await givenStage({ config: { store: { commandTimeoutMs: 60_000 }, tasks: TASKS } });
});
afterAll(() => stage.stop());

const reset = (key: Parameters<typeof generate>[1]) => generate(stage.gateway, key, "[sandbox: reset]");

/** How long the hold of a request may stay without an answer, ms. */
async function holdMsOf(
  { redis: { client } }: Stage,
  accountId: string,
  requestId: string | null,
): Promise<number> {
  const [name] = await client.keys(`tg:{p*}:request:${requestId}`);
  const partition = Number(/\{p(\d+)\}/.exec(name ?? "")?.[1]);
  const record = await readRequest(client, requestName(partition, requestId ?? ""));
  expect(record.account_id).toBe(accountId);
  return Number(record.due_at) - Number(record.admitted_at);
}

// Guarantee: a callback brings no video of a request whose credits were given back.
describe("the hold of a storyboard with an unknown outcome", () => {
  const storyboard = async (more: Record<string, unknown>, at = stage) => {
    const key = await at.givenKey();
    const shots = [{ Scene: "[sandbox: reset] a lighthouse", duration: 10 }];
    const json = { nFrames: "10", shots, ...more };
    const reply = await at.gateway.request("POST", STORYBOARD, { key: key.key, body: json });
    expectStatus(reply, 502);
    return holdMsOf(at, key.accountId, reply.headers.get("x-request-id"));
  };

  test("lasts as long as a task may run where it has a callBackUrl", async () => {
    expect(await storyboard({ callBackUrl: "https://customer.example/done" })).toBe(MAX_AGE_MS);
  });

  test("lasts as long as the exchange may take where it has none", async () => {
    for (const more of [{}, { callBackUrl: null }]) expect(await storyboard(more)).toBeLessThan(120_000);
  });

  test("lasts as long as the exchange may take where the relay has nobody who calls back", async () => {
    const { callback: _, ...adapter } = ENVELOPE;
    const dialect = { name: adapter.name, id: "silent", adapter: () => adapter, options: {} };
    const webhooks = {
      publicUrl: "https://gateway.example",
      secretKey: "a secret of the gateways, long enough",
    };
    const silent = await givenStage({ config: { tasks: TASKS, webhooks, upstream: { dialect } } });
    onTestFinished(() => silent.stop());
    const callBackUrl = "https://customer.example/done";
    expect(await storyboard({ callBackUrl }, silent)).toBeLessThan(120_000);
  });

  test("ends at once where the upstream refuses it", async () => {
    const key = await stage.givenKey();
    const shots = [{ Scene: "[sandbox: status=422] a lighthouse", duration: 10 }];
    const json = { nFrames: "10", shots, callBackUrl: "https://customer.example/done" };
    await stage.gateway.request("POST", STORYBOARD, { key: key.key, body: json });
    expect(await readLedger(stage.redis.client, key)).toMatchObject({ held: 0, slots: [] });
  });
});

// Guarantee: videos of unknown outcomes, which nobody pays for, are bounded per account.
test("an account with too many unknown outcomes makes no further request until a hold of them has ended", async () => {
  const key = await stage.givenKey();
  const sibling = await stage.givenKey({ accountId: key.accountId, credits: 0 });
  for (let made = 0; made < UNKNOWN_MAX; made++) expectStatus(await reset(key), 502);
  const before = await readLedger(stage.redis.client, key);
  stage.gateway.generator.requests.length = 0;
  for (const one of [key, sibling]) {
    const reply = await generate(stage.gateway, one);
    expectStatus(reply, 503);
    expect(reply.body).toMatchObject({
      code: 503,
      error: expect.stringMatching(/are being cleared up; retry later$/),
    });
    expect(reply.body.retryAfter).toBeGreaterThan(60);
    expect(reply.headers.get("retry-after")).toBe(String(reply.body.retryAfter));
  }
  expect(sent(stage.gateway), "nothing goes upstream").toEqual([]);
  expect(await readLedger(stage.redis.client, key), "nothing is consumed").toEqual(before);
  expectStatus(await generate(stage.gateway, await stage.givenKey()), 200, "another account");
  const alert = stage.gateway.logs
    .map((line) => JSON.parse(line))
    .find(({ level, account_id }) => level === "error" && account_id === key.accountId);
  expect(alert).toMatchObject({ level: "error", unknown_outcomes: UNKNOWN_MAX });
  expect((await stage.gateway.metric("tollgate_admissions_total")).join("\n")).toMatch(
    /outcome="outcomes_unknown"\} 2/,
  );

  await makeDue(stage.redis.client, key.accountId);
  await until(async () => (await readLedger(stage.redis.client, key)).held === 0, "the holds to be voided");
  expectStatus(await generate(stage.gateway, key), 200);
});

// Requests in flight when the bound is reached were admitted, and count all the same.
test("requests in flight when the bound is reached are carried out, and none is admitted after them", async () => {
  const key = await stage.givenKey();
  const inFlight = await Promise.all(
    Array.from({ length: UNKNOWN_MAX + 2 }, () => generate(stage.gateway, key, "[sandbox: reset delay=1s]")),
  );
  for (const reply of inFlight) expectStatus(reply, 502);
  expectStatus(await generate(stage.gateway, key), 503);
  await makeDue(stage.redis.client, key.accountId);
  await until(async () => (await readLedger(stage.redis.client, key)).held === 0, "the holds to be voided");
  expectStatus(await generate(stage.gateway, key), 200);
});

// Three connections that were reset once locked a key out while each answer said to come back after 10 s.
test("a key whose slots are all taken by unknown outcomes is told when the first of them is cleared up", async () => {
  const [stuck, busy] = await Promise.all(
    [1, 2].map(() => stage.givenKey({ limits: { max_concurrent: 1 } })),
  );
  expectStatus(await reset(stuck!), 502);
  const refused = await generate(stage.gateway, stuck!);
  expect(refused.body).toMatchObject({
    code: 2002,
    error: expect.stringMatching(/got no answer .* being cleared up$/),
  });
  expect(refused.body.retryAfter).toBeGreaterThan(60);
  expectStatus(await generate(stage.gateway, busy!), 200);
  expect((await generate(stage.gateway, busy!)).body).toMatchObject({ code: 2002, retryAfter: 10 });
});
