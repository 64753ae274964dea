import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { keyRecord, readLedger } from "../support/audit.ts";
import { expectStatus, type Reply, until } from "../support/gateway.ts";
import { tinyImage } from "../support/images.ts";
import { rawClient, rawPost } from "../support/raw-client.ts";
import {
  away,
  expectStoreAway,
  expectZeros,
  generate,
  givenStage,
  PRICE,
  polled,
  ready,
  type Stage,
  sent,
  TEXT_TO_VIDEO,
  whileAway,
} from "../support/store-stage.ts";
import { setKeyFields } from "../support/stored-records.ts";
import { asking, BOAT, setStatus } from "./spec-stage.ts";

let stage: Stage;
beforeAll(async () => {
  stage = await givenStage({ config: { store: { fallbackStrategy: "allow" }, tasks: { cacheMs: 0 } } });
});
afterAll(() => stage.stop());
beforeEach(() => {
  stage.gateway.generator.requests.length = 0;
});

const poll = (taskId: string, { key }: IssuedKey): Promise<Reply> =>
  stage.gateway.request("GET", `/api/v1/tasks/${taskId}`, { key });
const credits = ({ key }: IssuedKey): Promise<Reply> =>
  stage.gateway.request("GET", "/api/v1/credits", { key });

/** A key that this gateway has seen good, and a task made with it. */
async function seenKey(
  options: Parameters<Stage["givenKey"]>[0] = {},
): Promise<{ key: IssuedKey; taskId: string }> {
  const key = await stage.givenKey(options);
  const made = await generate(stage.gateway, key);
  expectStatus(made, 200);
  return { key, taskId: made.body.data.task_id };
}

/** @param limit what the headers say of the key's limits: all of it is left */
function expectDegraded(reply: Reply, limit = { rate: 1000, concurrent: 1000 }): void {
  expect(reply.body).toMatchObject({ code: 200 });
  expect(reply.headers.get("x-gateway-degraded")).toBe("store");
  expect(reply.headers.get("x-request-id")).toBeTruthy();
  const shown = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-concurrent-limit", "x-concurrent-active"];
  expect(shown.map((name) => Number(reply.headers.get(name)))).toEqual([
    ...[limit.rate, limit.rate],
    ...[limit.concurrent, 0],
  ]);
}

async function degradedCount(route: string): Promise<number> {
  const lines = await stage.gateway.metric("tollgate_degraded_requests_total");
  return Number(
    lines
      .find((line) => line.includes(`route="${route}"`))
      ?.split(" ")
      .at(-1) ?? 0,
  );
}

const lastLine = (): Record<string, unknown> =>
  stage.gateway.logs.map((line) => JSON.parse(line)).findLast(({ status }) => status !== undefined);

async function inFlight(): Promise<number> {
  const [line] = await stage.gateway.metric("tollgate_requests_in_flight ");
  return Number(line?.split(" ")[1]);
}

test("a key seen before passes unmetered, uncharged, marked and counted", async () => {
  const { key } = await seenKey({
    credits: 10,
    limits: { rate_limit: 1, max_concurrent: 1, daily_limit: 1 },
  });
  const route = "/api/v1/gen2/text-to-video";
  const counted = await degradedCount(route);
  await whileAway(stage, async () => {
    for (let nth = 0; nth < 3; nth++)
      expectDegraded(await generate(stage.gateway, key), { rate: 1, concurrent: 1 });
  });
  expect(sent(stage.gateway)).toHaveLength(4);
  expect(await degradedCount(route)).toBe(counted + 3);
  const ledger = await readLedger(stage.redis.client, key);
  expect(ledger).toMatchObject({ balance: 0, held: 0, totalRequests: 1, windowEntries: 1, dayCount: 1 });
  expect((await credits(key)).headers.get("x-gateway-degraded"), "no longer marked").toBeNull();
});

// Guarantee: what passed unmetered or was lost can be billed by hand.
test("the line of an unmetered generation has its price, also where its outcome stays unknown", async () => {
  const { key } = await seenKey();
  await whileAway(stage, async () => {
    await generate(stage.gateway, key);
    expect(lastLine()).toMatchObject({ outcome: "unmetered", degraded: true, price: PRICE });
    await generate(stage.gateway, key, "[sandbox: reset]");
    expect(lastLine()).toMatchObject({ outcome: "upstream_unclear", degraded: true, price: PRICE });
  });
});

test("an unmetered generation that finds the upstream's queue full is refused as the API describes it", async () => {
  const narrow = await givenStage({
    config: { store: { fallbackStrategy: "allow" }, upstream: { connections: 1 } },
  });
  try {
    const key = await narrow.givenKey();
    expectStatus(await generate(narrow.gateway, key), 200);
    await whileAway(narrow, async () => {
      const slow = [1, 2].map(() => generate(narrow.gateway, key, "A boat [sandbox: delay=2s]"));
      const waiting = () => narrow.gateway.metric('tollgate_upstream_waiting_requests{kind="generate"}');
      await until(
        async () => (await waiting())[0]?.endsWith(" 1") === true,
        "one to wait for the connection",
      );
      const refused = await asking(narrow.gateway)("POST", TEXT_TO_VIDEO, { key: key.key, body: BOAT });
      expectStatus(refused, 503);
      expect(refused.headers.get("x-gateway-degraded")).toBe("store");
      for (const reply of await Promise.all(slow)) expectDegraded(reply);
    });
  } finally {
    await narrow.stop();
  }
});

test("a key never seen by this gateway is denied, however good it is", async () => {
  const key = await stage.givenKey();
  await whileAway(stage, async () => {
    expectStoreAway(await generate(stage.gateway, key));
    expectStoreAway(await generate(stage.gateway, { key: "sk_unheard_of" }));
  });
  expect(sent(stage.gateway)).toHaveLength(0);
  expectStatus(await generate(stage.gateway, key), 200);
});

// Guarantee: an outage of the store is no way around a suspension that this gateway knows of.
test("of a suspended account only polls pass, of a closed one nothing, until it is active again", async () => {
  const { key, taskId } = await seenKey();
  const other = await stage.givenKey({ accountId: key.accountId, credits: 0 });
  const sentBefore = sent(stage.gateway).length;
  await setStatus({ redis: stage.redis.client }, key, "suspended");
  // The other key's refusal tells of both.
  expectStatus(await generate(stage.gateway, other), 403);
  await whileAway(stage, async () => {
    expectStoreAway(await generate(stage.gateway, key));
    expectDegraded(await poll(taskId, key));
  });
  await setStatus({ redis: stage.redis.client }, key, "closed");
  expectStatus(await credits(key), 403);
  await whileAway(stage, async () => {
    expectStoreAway(await generate(stage.gateway, key));
    expectStoreAway(await poll(taskId, key));
  });
  expect(sent(stage.gateway)).toHaveLength(sentBefore);
  await setStatus({ redis: stage.redis.client }, key, "active");
  expectStatus(await credits(key), 200);
  await whileAway(stage, async () => expectDegraded(await generate(stage.gateway, key)));
});

// Guarantee: a revoked key whose client never sent a body was found, but no script has called it good.
test("a key that was looked up and never called good is denied", async () => {
  const key = await stage.givenKey();
  await setKeyFields(stage.redis.client, await keyRecord(stage.redis.client, key), { revoked_at: 1 });
  const client = await rawClient(stage.gateway.url);
  client.send(rawPost(TEXT_TO_VIDEO, key.key, { prompt: "A paper boat" }).head);
  // It is refused from its head: whether a key is good is asked with its look-up.
  await until(() => client.received().includes("401"), "the refusal");
  client.close();
  await until(async () => (await inFlight()) === 0, "the client to be gone");
  await whileAway(stage, async () => expectStoreAway(await generate(stage.gateway, key)));
  expect(sent(stage.gateway)).toHaveLength(0);
});

test.each(["generation", "poll", "credits", "bad body"])(
  "a key that a %s's script called invalid is no longer let through",
  async (kind) => {
    const { key, taskId } = await seenKey();
    const ask: Record<string, () => Promise<Reply>> = {
      generation: () => generate(stage.gateway, key),
      poll: () => poll(taskId, key),
      credits: () => credits(key),
      "bad body": () => generate(stage.gateway, key, ""),
    };
    await setKeyFields(stage.redis.client, await keyRecord(stage.redis.client, key), {
      revoked_at: Date.now(),
    });
    expectStatus(await ask[kind]!(), 401);
    stage.gateway.generator.requests.length = 0;
    await whileAway(stage, async () => {
      expectStoreAway(await generate(stage.gateway, key));
      expectStoreAway(await poll(taskId, key));
    });
    expect(stage.gateway.generator.requests).toHaveLength(0);
  },
);

// Guarantee: no answer with somebody else's task, also while nobody can be asked whose it is.
test("a task id that this gateway has seen as another account's is nobody's answer", async () => {
  const { key, taskId } = await seenKey();
  const { key: stranger } = await seenKey();
  stage.gateway.generator.behave({ taskId });
  await whileAway(stage, async () => {
    expectStatus(await generate(stage.gateway, stranger), 502);
    stage.gateway.generator.reset();
    expectStoreAway(await poll(taskId, stranger));
    expectDegraded(await poll(taskId, key));
  });
  expectStatus(await poll(taskId, stranger), 404);
  expectStatus(await poll(taskId, key), 200);
});

test("polls pass for tasks that this gateway has seen, and only for their own account", async () => {
  const { key, taskId } = await seenKey();
  const { key: stranger } = await seenKey();
  await whileAway(stage, async () => {
    const reply = await poll(taskId, key);
    expectDegraded(reply);
    expect(reply.body.data.task_id).toBe(taskId);
    expect(lastLine()).toMatchObject({ outcome: "unmetered", task_id: taskId });
    expectStoreAway(await poll(taskId, stranger));
    expectStoreAway(await poll("task_unheard_of", key));
    expect(polled(stage.gateway)).toHaveLength(1);
    const made = await generate(stage.gateway, key);
    expectDegraded(await poll(made.body.data.task_id, key));
  });
});

test("another key of the same account may poll its tasks", async () => {
  const { key, taskId } = await seenKey();
  const { key: other } = await seenKey({ accountId: key.accountId });
  await whileAway(stage, async () => expectDegraded(await poll(taskId, other)));
});

test("uploads of seen keys pass", async () => {
  const { key } = await seenKey();
  await whileAway(stage, async () => {
    const form = new FormData();
    form.append("file", new Blob([new Uint8Array(tinyImage("image/png"))], { type: "image/png" }), "a.png");
    const response = await fetch(`${stage.gateway.url}/api/v1/upload`, {
      method: "POST",
      headers: { authorization: `Bearer ${key.key}` },
      body: form,
    });
    const body = (await response.json()) as Reply["body"];
    const reply: Reply = { status: response.status, headers: response.headers, body };
    expectDegraded(reply);
    expect(reply.body.data.url).toMatch(/^https:/);
  });
});

test("credits are 503, bad bodies are still 400, and nothing of it goes upstream", async () => {
  const { key } = await seenKey();
  stage.gateway.generator.requests.length = 0;
  await whileAway(stage, async () => {
    expectStoreAway(await credits(key));
    const bad = await generate(stage.gateway, key, "x".repeat(2001));
    expect(bad.body).toMatchObject({ code: 400, details: [{ path: "/prompt" }] });
    expectStatus(bad, 400);
    expectZeros(bad);
  });
  expect(stage.gateway.generator.requests).toHaveLength(0);
});

test("the very request that finds the store gone passes, and its late admission charges nothing", async () => {
  const { key } = await seenKey();
  stage.redis.pause();
  try {
    const reply = await generate(stage.gateway, key);
    expectDegraded(reply);
  } finally {
    stage.redis.resume();
  }
  await ready(stage.gateway);
  const ledger = await readLedger(stage.redis.client, key);
  expect(ledger).toMatchObject({ held: 0, totalUsed: 10, totalRequests: 1, dayCount: 1, windowEntries: 1 });
  expect(ledger.slots, "only the metered task's slot").toHaveLength(1);
});

test("an upstream's refusal is told as it is while the store is away", async () => {
  const { key } = await seenKey();
  await whileAway(stage, async () => {
    const reply = await generate(stage.gateway, key, "[sandbox: status=422 code=1234]");
    expectStatus(reply, 422);
    expect(reply.body.code).toBe(1234);
    expect(reply.headers.get("x-gateway-degraded")).toBe("store");
  });
});

test("an operator may cap what passes unmetered, per key and outage; polls are not counted", async () => {
  const capped = await givenStage({
    redis: stage.redis,
    config: { store: { fallbackStrategy: "allow", allowMaxPerKey: 2 }, tasks: { cacheMs: 0 } },
  });
  try {
    const [key, other] = [await capped.givenKey(), await capped.givenKey()];
    const made = await generate(capped.gateway, key);
    expectStatus(await generate(capped.gateway, other), 200);
    for (const outage of ["first", "second"]) {
      await capped.proxy.steer({ connections: "reset" });
      await away(capped.gateway);
      for (let nth = 0; nth < 2; nth++) expectDegraded(await generate(capped.gateway, key));
      expectStoreAway(await generate(capped.gateway, key));
      const path = `/api/v1/tasks/${made.body.data.task_id}`;
      for (let nth = 0; nth < 3; nth++)
        expectDegraded(await capped.gateway.request("GET", path, { key: key.key }));
      expectDegraded(await generate(capped.gateway, other));
      await capped.proxy.heal();
      await ready(capped.gateway);
      expect((await generate(capped.gateway, key)).status, `after the ${outage} outage`).toBe(200);
    }
  } finally {
    await capped.stop();
  }
});

// Guarantee: what passed can be billed by hand.
test("each unmetered generation has a line in the log that names its key, account and task", async () => {
  const { key } = await seenKey();
  await whileAway(stage, async () => {
    const reply = await generate(stage.gateway, key);
    expectDegraded(reply);
    expect(lastLine()).toMatchObject({
      outcome: "unmetered",
      degraded: true,
      key_id: key.keyId,
      account_id: key.accountId,
      task_id: reply.body.data.task_id,
    });
  });
});

// Guarantee: an unmetered task shows nobody another account's video.
test("a task passed unmetered is its maker's, and the store knows it as that", async () => {
  const [{ key: first }, { key: second }] = [await seenKey(), await seenKey()];
  let taskId = "";
  await whileAway(stage, async () => {
    taskId = (await generate(stage.gateway, first)).body.data.task_id;
  });
  expectStatus(await poll(taskId, first), 200);
  expectStatus(await generate(stage.gateway, second, `[sandbox: task-id=${taskId}]`), 502);
  expectStatus(await poll(taskId, first), 200);
  expectStatus(await poll(taskId, second), 404);
  await whileAway(stage, async () => expectStoreAway(await poll(taskId, second)));
});
