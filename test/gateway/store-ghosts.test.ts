import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { expectUntouched, readLedger } from "../support/audit.ts";
import { expectStatus, type Reply, until } from "../support/gateway.ts";
import { expectStoreAway, generate, givenStage, type Stage, sent, settled } from "../support/store-stage.ts";

let stage: Stage;
beforeAll(async () => {
  stage = await givenStage();
});
afterAll(() => stage.stop());
beforeEach(async () => {
  // The first use of a connection and a key is over before the fault.
  const key = await stage.givenKey();
  await generate(stage.gateway, key);
  stage.gateway.generator.requests.length = 0;
});

/** A key whose admission costs one command: this gateway knows it. */
async function knownKey(): Promise<IssuedKey> {
  const key = await stage.givenKey();
  expectStatus(await stage.gateway.request("GET", "/api/v1/credits", { key: key.key }), 200);
  return key;
}

const five = (key: IssuedKey, headers: Record<string, string> = {}): Promise<Reply>[] =>
  Array.from({ length: 5 }, (_, nth) =>
    generate(
      stage.gateway,
      key,
      "A paper boat",
      headers.prefix ? { "idempotency-key": `${headers.prefix}-${nth}` } : {},
    ),
  );

async function expectNoGhost(key: IssuedKey): Promise<void> {
  await settled(stage.gateway);
  expectUntouched(await readLedger(stage.redis.client, key), 1000);
  expect(sent(stage.gateway), "no upstream call was made").toHaveLength(0);
}

test("a stop shorter than the command timeout only delays", async () => {
  const patient = await givenStage({ redis: stage.redis, config: { store: { commandTimeoutMs: 10_000 } } });
  try {
    const key = await patient.givenKey();
    await patient.gateway.request("GET", "/api/v1/credits", { key: key.key });
    patient.redis.pause();
    const replies = Array.from({ length: 5 }, () => generate(patient.gateway, key));
    await until(() => patient.proxy.count("admit") === 5, "five ADMITs to be on their way");
    patient.redis.resume();
    for (const reply of await Promise.all(replies)) expect(reply.status).toBe(200);
    expect(await readLedger(stage.redis.client, key)).toMatchObject({
      balance: 950,
      held: 0,
      totalRequests: 5,
      windowEntries: 5,
    });
  } finally {
    patient.redis.resume();
    await patient.stop();
  }
});

test.each([{}, { prefix: "ghost" }])(
  "five POSTs answered 503 leave nothing when Redis goes on at once %o",
  async (headers) => {
    const key = await knownKey();
    stage.redis.pause();
    const replies = await Promise.all(five(key, headers)).finally(() => stage.redis.resume());
    for (const reply of replies) expectStoreAway(reply);
    await expectNoGhost(key);
    // Whatever was taken back can be done again, under the same Idempotency-Keys too.
    for (const reply of await Promise.all(five(key, headers))) expect(reply.status).toBe(200);
  },
);

test("five POSTs answered 503 leave nothing when Redis goes on after the gateway has reconnected", async () => {
  const key = await knownKey();
  const connections = stage.proxy.connections();
  stage.redis.pause();
  const replies = await Promise.all(five(key));
  for (const reply of replies) expectStoreAway(reply);
  await until(() => stage.proxy.connections() > connections, "a new connection").finally(() =>
    stage.redis.resume(),
  );
  await expectNoGhost(key);
});

test.each(["drop_reply", "reset_after", "reset_before"] as const)(
  "an ADMIT that meets %s is 503 and taken back",
  async (kind) => {
    const key = await knownKey();
    const { struck } = stage.proxy.strike(kind, "admit");
    expectStoreAway(await generate(stage.gateway, key));
    await struck;
    await expectNoGhost(key);
    expectStatus(await generate(stage.gateway, key), 200);
  },
);

test("an ADMIT whose VOID is lost too is taken back in the end", async () => {
  const key = await knownKey();
  const admit = stage.proxy.strike("reset_after", "admit");
  const first = stage.proxy.strike("reset_before", "void");
  const second = stage.proxy.strike("reset_after", "void");
  expectStoreAway(await generate(stage.gateway, key));
  await Promise.all([admit.struck, first.struck, second.struck]);
  await expectNoGhost(key);
});

test("a tombstone keeps out an ADMIT that arrives after its VOID, though it is not stale yet", async () => {
  const slow = await givenStage({ redis: stage.redis, config: { store: { commandTimeoutMs: 20_000 } } });
  try {
    const key = await slow.givenKey();
    await slow.gateway.request("GET", "/api/v1/credits", { key: key.key });
    const admit = slow.proxy.strike("detain", "admit");
    expectStoreAway(await generate(slow.gateway, key, "A paper boat", { "idempotency-key": "late" }));
    await admit.struck;
    await settled(slow.gateway);
    expect(slow.proxy.count("void"), "the VOID has been answered").toBe(1);
    await admit.release();
    expectUntouched(await readLedger(stage.redis.client, key), 1000);
    expect(sent(slow.gateway)).toHaveLength(0);
    const again = await generate(slow.gateway, key, "A paper boat", { "idempotency-key": "late" });
    expectStatus(again, 200, "the Idempotency-Key is free");
  } finally {
    await slow.stop();
  }
});
