import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { consumed, expectSound, expectUntouched, readLedger } from "../support/audit.ts";
import { until } from "../support/gateway.ts";
import { type RawClient, rawClient, rawPost } from "../support/raw-client.ts";
import { generate, givenStage, readyz, type Stage, sent, TEXT_TO_VIDEO } from "../support/store-stage.ts";

let stage: Stage;
beforeAll(async () => {
  // Longer than any test here: Redis may stand still while something happens, and never counts as away.
  const config = { store: { commandTimeoutMs: 60_000 } };
  stage = await givenStage({ behaviour: { durationMs: 60_000 }, config });
});
afterAll(() => stage.stop());
beforeEach(() => {
  stage.gateway.generator.requests.length = 0;
});

const WAYS = ["reset", "close"] as const;

/** Sends a generation, whole or in part, from a client that will leave. */
async function begin(
  key: IssuedKey,
  upTo: "head" | "half" | "whole",
  prompt = "A paper boat",
): Promise<RawClient> {
  const client = await rawClient(stage.gateway.url);
  const { head, body } = rawPost(TEXT_TO_VIDEO, key.key, { prompt }, ["Idempotency-Key: gone"]);
  const part = { head: "", half: body.slice(0, 10), whole: body }[upTo];
  client.send(head + part);
  return client;
}

const answered = async (outcome: string): Promise<boolean> =>
  (await stage.gateway.metric("tollgate_requests_total")).some((line) =>
    line.includes(`outcome="${outcome}"`),
  );

const idle = (): Promise<void> =>
  until(
    async () =>
      (await stage.gateway.metric("tollgate_requests_in_flight ")).every((line) => line.endsWith(" 0")),
    "no request to be in flight",
  );
const busy = (): Promise<void> =>
  until(
    async () =>
      (await stage.gateway.metric("tollgate_requests_in_flight ")).some((line) => line.endsWith(" 1")),
    "the request to be in flight",
  );

async function expectBound(key: IssuedKey, prompt?: string): Promise<void> {
  await idle();
  const ledger = await readLedger(stage.redis.client, key);
  expectSound(ledger);
  expect(ledger).toMatchObject({ balance: 990, held: 0, totalUsed: 10, totalRequests: 1 });
  expect(ledger.slots).toHaveLength(1);
  expect(sent(stage.gateway)).toHaveLength(1);
  expect(consumed(ledger).map(({ taskId }) => taskId)).toEqual([sent(stage.gateway)[0]?.taskId]);
  const found = await generate(stage.gateway, key, prompt, { "idempotency-key": "gone" });
  expect(found.headers.get("idempotency-replayed"), "the customer finds his task again").toBe("true");
}

test.each(WAYS)("a client that leaves before its body has changed nothing (%s)", async (way) => {
  for (const part of ["head", "half"] as const) {
    const key = await stage.givenKey();
    const client = await begin(key, part);
    await busy();
    client[way]();
    await idle();
    expectUntouched(await readLedger(stage.redis.client, key), 1000);
  }
  expect(sent(stage.gateway)).toHaveLength(0);
  expect(await answered("client_gone")).toBe(true);
});

/** A client sends a whole request, and something happens to its connection while its key is looked up. */
async function whileLookedUp(happens: (client: RawClient) => void) {
  const key = await stage.givenKey();
  const lookups = stage.proxy.count("get");
  await stage.proxy.steer({ stall: true });
  const client = await begin(key, "whole");
  await until(() => stage.proxy.count("get") > lookups, "the lookup to be on its way");
  happens(client);
  // The connection ends while nobody reads the body yet, and nobody may wait for that body later.
  await client.ended();
  for (let tick = 0; tick < 3; tick++) await readyz(stage.gateway);
  await stage.proxy.heal();
  await idle();
  return key;
}

test("a client that leaves while its key is looked up has changed nothing (reset)", async () => {
  const key = await whileLookedUp((client) => client.reset());
  expectUntouched(await readLedger(stage.redis.client, key), 1000);
  expect(sent(stage.gateway)).toHaveLength(0);
});

// Behind a whole request, its FIN is that of a client that waits for the answer: both look the same from here.
test("a client that closes behind a whole request has made it: its task is bound, and found again", async () => {
  await expectBound(await whileLookedUp((client) => client.close()));
});

test.each(WAYS)("a client that leaves during admission leaves no slot behind (%s)", async (way) => {
  const key = await stage.givenKey();
  await stage.gateway.request("GET", "/api/v1/credits", { key: key.key });
  const admissions = stage.proxy.count("admit");
  await stage.proxy.steer({ stall: true });
  const client = await begin(key, "whole");
  await until(() => stage.proxy.count("admit") > admissions, "ADMIT to be on its way");
  client[way]();
  await stage.proxy.heal();
  await expectBound(key);
});

test.each(WAYS)("a client that leaves while the upstream works gets its task bound (%s)", async (way) => {
  const key = await stage.givenKey();
  const prompt = "[sandbox: delay=200ms]";
  const client = await begin(key, "whole", prompt);
  await until(() => sent(stage.gateway).length === 1, "the request to reach the upstream");
  client[way]();
  await expectBound(key, prompt);
});

test.each(WAYS)("a client that leaves during the upstream's answer gets its task bound (%s)", async (way) => {
  const key = await stage.givenKey();
  const prompt = "[sandbox: drip drip-ms=2]";
  const client = await begin(key, "whole", prompt);
  await until(() => sent(stage.gateway)[0]?.taskId !== undefined, "the upstream to answer");
  client[way]();
  await expectBound(key, prompt);
});

test.each(WAYS)("a client that leaves during BIND gets its task bound (%s)", async (way) => {
  const key = await stage.givenKey();
  const prompt = "[sandbox: delay=100ms]";
  const binds = stage.proxy.count("bind");
  const client = await begin(key, "whole", prompt);
  await until(() => sent(stage.gateway).length === 1, "the request to reach the upstream");
  await stage.proxy.steer({ stall: true });
  await until(() => stage.proxy.count("bind") > binds, "BIND to be on its way");
  client[way]();
  await stage.proxy.heal();
  await expectBound(key, prompt);
});

test.each(WAYS)("a client that leaves during its answer has its task bound (%s)", async (way) => {
  const key = await stage.givenKey();
  const client = await begin(key, "whole");
  await until(() => client.received().length > 0, "the first byte of the answer");
  client[way]();
  await expectBound(key);
});

test("a client that leaves before a refusal gets its hold back", async () => {
  const key = await stage.givenKey();
  const client = await begin(key, "whole", "[sandbox: status=400 delay=150ms]");
  await until(() => sent(stage.gateway).length === 1, "the request to reach the upstream");
  client.reset();
  await idle();
  const ledger = await readLedger(stage.redis.client, key);
  expect(ledger).toMatchObject({ balance: 1000, held: 0, slots: [], dayCount: 0 });
});
