import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { cliActor } from "../../src/records/actor.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { recharge } from "../../src/scripts/credit-changes.ts";
import { partitionFor } from "../support/audit.ts";
import { EXTREME_NUMBERS, NO_AMOUNT, NO_NUMBERS } from "../support/extreme-numbers.ts";
import { expectStatus, type Reply } from "../support/gateway.ts";
import { givenManageStage, type ManageStage } from "./manage-stage.ts";

// Guarantee: a number of any size in a call is taken as what it is, or refused by the name of its parameter.

const MAX = Number.MAX_SAFE_INTEGER;
const LIMIT_MAX = 1_000_000_000;
const CREDITS_MAX = 1_000_000_000_000;

let stage: ManageStage;
beforeAll(async () => {
  stage = await givenManageStage();
});
afterAll(() => stage.stop());

const TEXTS: readonly (readonly [string, number | undefined])[] = [
  ...EXTREME_NUMBERS,
  ...NO_NUMBERS.map((text) => [text, undefined] as const),
];

/** A field that takes a whole number within bounds, and where it is read again. */
interface Field {
  name: string;
  least: number;
  most: number;
  /** Sends the text as the field's value, to a new account of its own. */
  send(text: string, accountId: string): Promise<Reply>;
  /** The value as it is shown afterwards. */
  shown(accountId: string, reply: Reply): Promise<unknown>;
}

const account = async (accountId: string) => (await stage.manage("GET", `/accounts/${accountId}`)).body;
const limit = (name: string): Field => ({
  name: `limits.${name}`,
  least: 0,
  most: LIMIT_MAX,
  send: (text, id) => stage.manage("PATCH", `/accounts/${id}`, { body: `{"limits":{"${name}":${text}}}` }),
  shown: async (id) => (await account(id)).limits[name],
});
const ofKey = (
  name: string,
  body: (text: string) => string,
  read: (key: Reply["body"]) => unknown,
): Field => ({
  name,
  least: 0,
  most: name === "monthly_credits" ? CREDITS_MAX : LIMIT_MAX,
  async send(text, id) {
    const { key_id } = await stage.givenKey(id);
    return stage.manage("PATCH", `/accounts/${id}/keys/${key_id}`, { body: body(text) });
  },
  shown: async (_, reply) => read(reply.body),
});
const FIELDS: Field[] = [
  {
    name: "credits",
    least: 1,
    most: CREDITS_MAX,
    send: (text, id) =>
      stage.manage("POST", `/accounts/${id}/grants`, { body: `{"reference":"r","credits":${text}}` }),
    shown: async (id) => (await account(id)).balance,
  },
  {
    name: "amount",
    least: 1,
    most: CREDITS_MAX,
    send: (text, id) =>
      stage.manage("POST", `/accounts/${id}/adjustments`, {
        body: `{"reference":"r","reason":"test","amount":${text}}`,
      }),
    shown: async (id) => (await account(id)).balance,
  },
  limit("rate_limit"),
  limit("max_concurrent"),
  limit("daily_limit"),
  ofKey(
    "monthly_credits",
    (text) => `{"monthly_credits":${text}}`,
    (key) => key.monthly_credits,
  ),
  ofKey(
    "limits.rate_limit",
    (text) => `{"limits":{"rate_limit":${text}}}`,
    (key) => key.limits.rate_limit,
  ),
  ofKey(
    "limits.max_concurrent",
    (text) => `{"limits":{"max_concurrent":${text}}}`,
    (key) => key.limits.max_concurrent,
  ),
  ofKey(
    "limits.daily_limit",
    (text) => `{"limits":{"daily_limit":${text}}}`,
    (key) => key.limits.daily_limit,
  ),
];

describe.each(FIELDS)("management API: $name", (field) => {
  test.each(TEXTS)("%s", async (text, whole) => {
    const accountId = await stage.givenAccount();
    const before = await account(accountId);
    const reply = await field.send(text, accountId);
    if (whole !== undefined && whole >= field.least && whole <= field.most) {
      expect(reply.status, JSON.stringify(reply.body)).toBeLessThan(300);
      expect(await field.shown(accountId, reply)).toBe(whole);
      return;
    }
    const isTaking = field.name === "amount" && whole !== undefined && whole < 0;
    expectStatus(reply, isTaking ? 409 : 400);
    const [problem] = reply.body.errors;
    expect(problem.message).toMatch(problem.path === "" ? /^the body is not valid JSON/ : /\w/);
    if (problem.path !== "") expect(problem.path).toBe(`/${field.name.replace(".", "/")}`);
    expect(problem.message).not.toMatch(NO_AMOUNT);
    expect(await account(accountId)).toEqual(before);
  });
});

test("a refund has no amount: it is the price", async () => {
  for (const [text] of TEXTS) {
    const body = `{"reference":"r","reason":"test","amount":${text}}`;
    expectStatus(await stage.manage("POST", "/tasks/none/refund", { body }), 400, text);
  }
});

test("the largest limits are enforced and shown as they are", async () => {
  const accountId = await stage.givenAccount(100);
  const limits = { rate_limit: LIMIT_MAX, max_concurrent: LIMIT_MAX, daily_limit: LIMIT_MAX };
  await stage.manage("PATCH", `/accounts/${accountId}`, { body: { limits } });
  const { key } = await stage.givenKey(accountId, { limits, monthly_credits: CREDITS_MAX });
  const first = await stage.gateway.request("POST", "/api/v1/gen2/text-to-video", {
    key,
    body: { prompt: "a" },
  });
  expectStatus(first, 200);
  const credits = await stage.gateway.request("GET", "/api/v1/credits", { key });
  expect(credits.body.data).toMatchObject({ balance: 90, total_used: 10, limits });
  for (const reply of [first, credits]) {
    expect(reply.headers.get("x-ratelimit-limit")).toBe(String(LIMIT_MAX));
    expect(reply.headers.get("x-ratelimit-remaining")).toBe(String(LIMIT_MAX - 1));
    expect(reply.headers.get("x-concurrent-limit")).toBe(String(LIMIT_MAX));
  }
});

describe("the sum of a balance stays within the integers that a double holds", () => {
  const grant = (accountId: string, credits: number, reference: string): Promise<Reply> =>
    stage.manage("POST", `/accounts/${accountId}/grants`, { body: { credits, reference } });
  const adjust = (accountId: string, amount: number, reference: string): Promise<Reply> =>
    stage.manage("POST", `/accounts/${accountId}/adjustments`, {
      body: { amount, reference, reason: "test" },
    });

  /** As thousands of the largest grants would. */
  async function givenRich(credits: number): Promise<string> {
    const accountId = await stage.givenAccount();
    const { redis } = stage.gateway;
    const partition = await partitionFor(redis, accountId);
    const call = { partition, accountId, amount: credits, reference: "many", lookedUp: 0, actor: cliActor() };
    expect((await scriptsOf(redis).run(recharge, call)).outcome).toBe("recharged");
    return accountId;
  }

  test("many of the largest grants at once: each is made whole, or refused", async () => {
    const accountId = await givenRich(MAX - 5 * CREDITS_MAX - 5);
    const references = Array.from({ length: 20 }, (_, nth) => `g${nth}`);
    const replies = await Promise.all(references.map((each) => grant(accountId, CREDITS_MAX, each)));
    const statuses = replies.map(({ status }) => status).sort();
    expect(statuses).toEqual([...Array(5).fill(201), ...Array(15).fill(409)]);
    for (const { status, body } of replies)
      if (status === 409) expect(body.detail).toMatch(/too large to be exact/);
    expect((await account(accountId)).balance).toBe(MAX - 5);
    expectStatus(await adjust(accountId, 6, "a1"), 409);
    expectStatus(await adjust(accountId, 5, "a2"), 201);
    expectStatus(await adjust(accountId, -1, "a3"), 201);
    expectStatus(await grant(accountId, 2, "g-2"), 409);
    expectStatus(await grant(accountId, 1, "g-1"), 201);
    expect((await account(accountId)).balance).toBe(MAX);
    expect(
      (await verifyLedger(oneNode(stage.gateway.redis), { accountIds: [accountId] })).violations,
    ).toEqual([]);
  });

  test("grants up to the last credit are exact, and what is used counts: a refund would bring it back", async () => {
    const accountId = await givenRich(MAX - 10);
    const { key } = await stage.givenKey(accountId);
    const body = { prompt: "[sandbox: fail duration=0]" };
    const made = await stage.gateway.request("POST", "/api/v1/gen2/text-to-video", { key, body });
    expectStatus(made, 200);
    expect(await account(accountId)).toMatchObject({ balance: MAX - 20, total_used: 10 });
    expectStatus(await grant(accountId, 11, "beyond"), 409);
    for (let nth = 0; nth < 10; nth++) expectStatus(await grant(accountId, 1, `g${nth}`), 201);
    expect(await account(accountId)).toMatchObject({ balance: MAX - 10, total_used: 10 });
    const polled = await stage.gateway.request("GET", `/api/v1/tasks/${made.body.data.task_id}`, { key });
    expect(polled.body.data.status).toBe("failed");
    expect(await account(accountId)).toMatchObject({ balance: MAX, total_used: 0 });
    const { body: credits } = await stage.gateway.request("GET", "/api/v1/credits", { key });
    expect(credits.data.balance).toBe(MAX);
  });
});

test.each(["gen2-pro/text-to-video", "gen2-pro/storyboard", "gen2/text-to-video"])(
  "customer API, %s: any number is answered by 200, 400 or 402",
  async (endpoint) => {
    const accountId = await stage.givenAccount(100_000);
    const { key } = await stage.givenKey(accountId, { limits: { rate_limit: 1000, max_concurrent: 1000 } });
    for (const [text, whole] of TEXTS) {
      const body = {
        "gen2-pro/text-to-video": `{"prompt":"a","duration":${text}}`,
        "gen2-pro/storyboard": `{"nFrames":"10","shots":[{"Scene":"a","duration":${text}}]}`,
        "gen2/text-to-video": `{"prompt":"a","credits":${text}}`,
      }[endpoint];
      const { balance } = await account(accountId);
      const reply = await stage.gateway.request("POST", `/api/v1/${endpoint}`, { key, body });
      const spent = balance - (await account(accountId)).balance;
      if (reply.status === 200) {
        expect(spent, text).toBe(150);
        expect(whole ?? Math.round(Number(text)), text).toBe(10);
      } else {
        expectStatus(reply, 400, text);
        expect(spent, text).toBe(0);
        expect(reply.body.error).not.toMatch(/NaN|Infinity|-0\b/);
      }
    }
  },
);
