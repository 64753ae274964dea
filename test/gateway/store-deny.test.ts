import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { expectUntouched, readLedger } from "../support/audit.ts";
import { expectStatus, type Reply, until } from "../support/gateway.ts";
import {
  away,
  expectStoreAway,
  generate,
  givenRedis,
  givenStage,
  loadScripts,
  ready,
  readyz,
  type Stage,
  sent,
} from "../support/store-stage.ts";

let stage: Stage;
beforeAll(async () => {
  const redis = await givenRedis(["--enable-debug-command", "local"]);
  stage = await givenStage({ redis });
});
afterAll(async () => {
  await stage.stop();
  await stage.redis.stop();
});

const GENERATIONS = [
  "gen2/text-to-video",
  "gen2/image-to-video",
  "gen2-pro/text-to-video",
  "gen2-pro/image-to-video",
  "gen2/watermark-remove",
  "gen2-pro/storyboard",
];

/** One request for every path under /api/v1, and every early way out of them. */
async function everyPath({ key }: { key: string }): Promise<[string, Reply][]> {
  const ask = async (name: string, method: string, path: string, body?: unknown, token = key) => {
    const request = { key: token, ...(body === undefined ? {} : { body }) };
    return [name, await stage.gateway.request(method, `/api/v1/${path}`, request)] as [string, Reply];
  };
  const form = `--x\r\nContent-Disposition: form-data; name="file"; filename="a.gif"\r\n\r\nGIF89a\r\n--x--\r\n`;
  const upload = { key, body: form, headers: { "content-type": "multipart/form-data; boundary=x" } };
  return Promise.all([
    ...GENERATIONS.map((path) => ask(path, "POST", path, { prompt: "A paper boat" })),
    ask("a bad body", "POST", "gen2/text-to-video", {}),
    ask("a task", "GET", "tasks/task_1"),
    ask("no task id", "GET", "tasks/%20"),
    ask("credits", "GET", "credits"),
    ask("an unknown path", "GET", "nothing/here"),
    ask("a wrong method", "DELETE", "credits"),
    ask("a key never seen", "GET", "credits", undefined, "sk_never_seen_before"),
    stage.gateway
      .request("POST", "/api/v1/upload", upload)
      .then((reply) => ["upload", reply] as [string, Reply]),
  ]);
}

/** Everything that deny promises while the store is away, and that it costs the store nothing. */
async function expectDenied(key: IssuedKey): Promise<void> {
  const { gateway, proxy } = stage;
  const generations = sent(gateway).length;
  await generate(gateway, key);
  await away(gateway);
  const commands = proxy.foreground();
  for (const [name, reply] of await everyPath(key)) {
    expectStatus(reply, 503, name);
    expectStoreAway(reply);
  }
  expect(proxy.foreground(), "no request asks the store").toBe(commands);
  expect(gateway.generator.requests.length, "nothing goes upstream").toBe(generations);
  expect(await gateway.metric("tollgate_store_up ")).toEqual(["tollgate_store_up 0"]);
  expect(await readyz(gateway)).toBe(503);
}

async function expectBack(key: IssuedKey): Promise<void> {
  await ready(stage.gateway);
  expect(await stage.gateway.metric("tollgate_store_up ")).toEqual(["tollgate_store_up 1"]);
  expectStatus(await generate(stage.gateway, key), 200);
}

const WAYS: [string, hurt: () => Promise<unknown>, heal: () => Promise<unknown>][] = [
  ["refuses connections", () => stage.proxy.steer({ connections: "refuse" }), () => stage.proxy.heal()],
  ["resets connections", () => stage.proxy.steer({ connections: "reset" }), () => stage.proxy.heal()],
  ["swallows everything", () => stage.proxy.steer({ blackHole: true }), () => stage.proxy.heal()],
  ["stands still", async () => stage.redis.pause(), async () => stage.redis.resume()],
  [
    "became a read-only replica",
    () => stage.redis.client.replicaof("127.0.0.1", 1),
    () => stage.redis.client.replicaof("NO", "ONE"),
  ],
  [
    "may evict",
    async () => {
      await stage.redis.client.config("SET", "maxmemory-policy", "allkeys-lru");
      await stage.proxy.steer({ connections: "reset" });
      await stage.proxy.heal();
    },
    () => stage.redis.client.config("SET", "maxmemory-policy", "noeviction"),
  ],
];

describe("deny: every path is 503 at no cost to the store, and all comes back without a restart", () => {
  test.each(WAYS)("when Redis %s", async (_name, hurt, heal) => {
    const key = await stage.givenKey();
    expectStatus(await generate(stage.gateway, key), 200);
    stage.gateway.generator.requests.length = 0;
    await hurt();
    try {
      await expectDenied(key);
    } finally {
      await heal();
    }
    await expectBack(key);
    const ledger = await readLedger(stage.redis.client, key);
    expect(ledger.totalRequests, "the refused ones left no trace").toBe(2);
  });

  test("when Redis is loading its data", async () => {
    const { client } = stage.redis;
    const key = await stage.givenKey();
    expectStatus(await generate(stage.gateway, key), 200);
    stage.gateway.generator.requests.length = 0;
    await client.call("DEBUG", "POPULATE", "4000", "filler", "100");
    await client.config("SET", "loading-process-events-interval-bytes", "1024");
    await client.config("SET", "key-load-delay", "2000");
    const loaded = client.call("DEBUG", "RELOAD");
    const observer = client.duplicate({ enableReadyCheck: false });
    observer.on("error", () => undefined);
    await until(async () => /^loading:1/m.test(await observer.info("persistence")), "Redis to load");
    await expectDenied(key);
    expect(await observer.info("persistence"), "it was still loading").toMatch(/^loading:1/m);
    await client.config("SET", "key-load-delay", "0");
    await loaded;
    observer.disconnect();
    await expectBack(key);
  });

  test("when Redis ends and starts again on its port without the scripts", async () => {
    const key = await stage.givenKey();
    expectStatus(await generate(stage.gateway, key), 200);
    stage.gateway.generator.requests.length = 0;
    await stage.redis.end();
    await expectDenied(key);
    await stage.redis.startAgain();
    await expectBack(key);
    await loadScripts(stage.redis.client);
  });
});

// Guarantee: no customer is told that there is no such task while a gateway may still have to bind it.
test("just after an outage, a task that nobody has bound is 503, then 404; another account's is 404", async () => {
  const [key, other] = [await stage.givenKey(), await stage.givenKey()];
  const poll = (taskId: string): Promise<Reply> =>
    stage.gateway.request("GET", `/api/v1/tasks/${taskId}`, { key: key.key });
  const { body } = await generate(stage.gateway, other);
  await stage.proxy.steer({ connections: "reset" });
  try {
    await generate(stage.gateway, key);
    await away(stage.gateway);
  } finally {
    await stage.proxy.heal();
  }
  await ready(stage.gateway);
  const reply = await poll("task_that_nobody_made");
  expectStatus(reply, 503);
  expect(reply.body.retryAfter).toBe(2);
  expectStatus(await poll(body.data.task_id), 404);
  const known = async () => (await poll("task_that_nobody_made")).status === 404;
  await until(known, "the other gateways to have sent what they kept");
});

test("a gateway that starts before its store is not ready, denies, and serves once the store is there", async () => {
  const { redis } = stage;
  const key = await stage.givenKey();
  await redis.end();
  const early = await givenStage({ redis, awaitReady: false });
  try {
    expect(await readyz(early.gateway)).toBe(503);
    expectStoreAway(await generate(early.gateway, key));
    await redis.startAgain();
    await ready(early.gateway);
    // Others may have bound nothing yet of what they kept meanwhile.
    const poll = early.gateway.request("GET", "/api/v1/tasks/task_that_nobody_made", { key: key.key });
    expectStatus(await poll, 503);
    expectStatus(await generate(early.gateway, key), 200);
  } finally {
    await early.stop();
  }
  await loadScripts(redis.client);
  await ready(stage.gateway);
});

test("out of memory: new generations are 503, reads and what is under way go on", async () => {
  const { client } = stage.redis;
  const key = await stage.givenKey();
  const before = sent(stage.gateway).length;
  const slow = generate(stage.gateway, key, "A paper boat [sandbox: delay=2s]");
  await until(() => sent(stage.gateway).length > before, "the slow generation to reach the upstream");
  await client.config("SET", "maxmemory", "1");
  try {
    const refused = await generate(stage.gateway, key);
    expectStatus(refused, 503);
    expect(refused.body).toMatchObject({ code: 503, retryAfter: expect.any(Number) });
    expectStatus(await slow, 200);
    expectStatus(await stage.gateway.request("GET", "/api/v1/credits", { key: key.key }), 200);
    expect(await readyz(stage.gateway)).toBe(200);
  } finally {
    await client.config("SET", "maxmemory", "0");
  }
  const ledger = await readLedger(client, key);
  expect(ledger).toMatchObject({ held: 0, totalUsed: 10, totalRequests: 1 });
});

test("a slow store that sends byte by byte is still a store", async () => {
  // How long so many pieces take depends on the machine.
  const patient = await givenStage({ redis: stage.redis, config: { store: { commandTimeoutMs: 60_000 } } });
  try {
    const key = await patient.givenKey();
    const credits = () => patient.gateway.request("GET", "/api/v1/credits", { key: key.key });
    await patient.proxy.steer({ splitBytes: true, delayMs: 5 });
    expectStatus(await generate(patient.gateway, key), 200);
    expect((await credits()).body.data.balance).toBe(990);
    await patient.proxy.heal();
  } finally {
    await patient.stop();
  }
});

test("a key that was never used before the store went away leaves no trace of its refused requests", async () => {
  const key = await stage.givenKey();
  await stage.proxy.steer({ connections: "reset" });
  await away(stage.gateway);
  const replies = await Promise.all(Array.from({ length: 5 }, () => generate(stage.gateway, key)));
  for (const reply of replies) expectStoreAway(reply);
  await stage.proxy.heal();
  await ready(stage.gateway);
  expectUntouched(await readLedger(stage.redis.client, key), 1000);
  expectStatus(await generate(stage.gateway, key), 200);
});
