import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { consumed, expectSound, makeDue, readLedger } from "../support/audit.ts";
import { expectStatus, givenGateway, type Reply, type TestGateway, until } from "../support/gateway.ts";
import { type End, givenPatientUpstream, type PatientUpstream } from "../support/patient-upstream.ts";
import { rawClient, rawPost } from "../support/raw-client.ts";
import {
  generate,
  givenRedis,
  givenStage,
  ready,
  type Stage,
  settled,
  TEXT_TO_VIDEO,
  type TestRedis,
} from "../support/store-stage.ts";

// Two requests with one Idempotency-Key at once: the first is at the upstream, the second breaks in each of its phases.

let redis: TestRedis;
let upstream: PatientUpstream;
let stage: Stage;
let twin: TestGateway;
beforeAll(async () => {
  redis = await givenRedis();
  upstream = await givenPatientUpstream();
  const config = { tasks: { sweepIntervalMs: 20 } };
  stage = await givenStage({ redis, upstreamUrl: upstream.url, config });
  twin = await givenGateway({ redisUrl: redis.url, upstreamUrl: upstream.url, config });
  await ready(twin);
});
afterAll(async () => {
  upstream.stop();
  await twin.stop();
  await stage.stop();
  await redis.stop();
});
afterEach(async () => {
  await stage.proxy.heal();
  while (upstream.waiting.length > 0) upstream.answer("refusal");
});

const IDEMPOTENCY = { "idempotency-key": "twice" };
const BODY = { prompt: "A paper boat" };
const keyed = (on: TestGateway, key: IssuedKey, prompt = BODY.prompt): Promise<Reply> =>
  generate(on, key, prompt, IDEMPOTENCY);

/** Ends what is left of the second request, after the first has its answer. */
type Rest = () => Promise<unknown>;

/** Sends parts of the second request and leaves. */
async function leaveAfter(
  key: IssuedKey,
  parts: (post: ReturnType<typeof rawPost>) => string,
): Promise<void> {
  const client = await rawClient(stage.gateway.url);
  client.send(parts(rawPost(TEXT_TO_VIDEO, key.key, BODY, ["Idempotency-Key: twice"])));
  client.reset();
  await client.ended();
}

/** ADMIT's connection meets this; the gateway answers 503 and voids what it may have admitted. */
async function loseAdmission(
  key: IssuedKey,
  kind: "drop_reply" | "reset_before" | "reset_after",
): Promise<void> {
  const { struck } = stage.proxy.strike(kind, "admit");
  expectStatus(await keyed(stage.gateway, key), 503);
  await struck;
  await settled(stage.gateway);
}

const PHASES: Record<string, (key: IssuedKey) => Promise<Rest | undefined>> = {
  async "within its head"(key) {
    await leaveAfter(key, ({ head }) => head.slice(0, -10));
    return undefined;
  },
  async "within its body"(key) {
    await leaveAfter(key, ({ head, body }) => head + body.slice(0, 10));
    return undefined;
  },
  async "behind its body"(key) {
    await leaveAfter(key, ({ head, body }) => head + body);
    return undefined;
  },
  async "while ADMIT is on its way"(key) {
    // So that its key is known.
    await stage.gateway.request("GET", "/api/v1/credits", { key: key.key });
    const admissions = stage.proxy.count("admit");
    await stage.proxy.steer({ stall: true });
    const client = await rawClient(stage.gateway.url);
    const { head, body } = rawPost(TEXT_TO_VIDEO, key.key, BODY, ["Idempotency-Key: twice"]);
    client.send(head + body);
    await until(() => stage.proxy.count("admit") > admissions, "ADMIT to be on its way");
    client.reset();
    await stage.proxy.heal();
    return undefined;
  },
  async "with another body"(key) {
    expectStatus(await keyed(stage.gateway, key, "Another boat"), 422);
    return undefined;
  },
  async "with an invalid body"(key) {
    for (const prompt of ["", "x".repeat(2001)]) expectStatus(await keyed(stage.gateway, key, prompt), 400);
    return undefined;
  },
  async "with a body that is no JSON"(key) {
    const headers = IDEMPOTENCY;
    const reply = await stage.gateway.request("POST", TEXT_TO_VIDEO, { key: key.key, body: "{", headers });
    expectStatus(reply, 400);
    return undefined;
  },
  async whole(key) {
    expectStatus(await keyed(stage.gateway, key), 409);
    return undefined;
  },
  async "its ADMIT never arrives"(key) {
    await loseAdmission(key, "reset_before");
    return undefined;
  },
  async "its ADMIT has run, and the reply is lost"(key) {
    await loseAdmission(key, "drop_reply");
    return undefined;
  },
  async "its ADMIT has run, and the connection is reset"(key) {
    await loseAdmission(key, "reset_after");
    return undefined;
  },
  async "its ADMIT arrives after its VOID and the answer to the first"(key) {
    const admission = stage.proxy.strike("detain", "admit");
    expectStatus(await keyed(stage.gateway, key), 503);
    await admission.struck;
    await settled(stage.gateway);
    return () => admission.release();
  },
  async "its VOID arrives after the answer to the first"(key) {
    const admission = stage.proxy.strike("drop_reply", "admit");
    const voiding = stage.proxy.strike("detain", "void");
    expectStatus(await keyed(stage.gateway, key), 503);
    await Promise.all([admission.struck, voiding.struck]);
    return () => voiding.release();
  },
};

interface Case {
  key: IssuedKey;
  first: Reply;
  end: End;
}

/** The first is at the upstream, the second breaks, the first gets its answer. */
async function play(on: TestGateway, phase: string, end: End): Promise<Case> {
  const key = await stage.givenKey();
  const pending = keyed(on, key);
  await until(() => upstream.waiting.length === 1, "the first to reach the upstream");
  const before = await readLedger(redis.client, key);
  expect(before).toMatchObject({ balance: 1000, held: 10, totalRequests: 1, windowEntries: 1, dayCount: 1 });

  const rest = await PHASES[phase]!(key);
  await ready(stage.gateway);
  expect(await readLedger(redis.client, key), "the first one's hold, slot and place").toEqual(before);
  expectStatus(await keyed(twin, key), 409, "the first has the Idempotency-Key");
  expect(upstream.waiting, "the second never comes to the upstream").toHaveLength(1);

  upstream.answer(end);
  const first = await pending;
  await rest?.();
  await settled(stage.gateway);
  return { key, first, end };
}

async function expectEnd({ key, first, end }: Case): Promise<void> {
  const ledger = await readLedger(redis.client, key);
  expectSound(ledger);
  switch (end) {
    case "task": {
      expectStatus(first, 200);
      expect(ledger).toMatchObject({
        balance: 990,
        held: 0,
        totalUsed: 10,
        totalRequests: 1,
        windowEntries: 1,
      });
      expect(ledger.slots).toHaveLength(1);
      expect(consumed(ledger).map(({ taskId }) => taskId)).toEqual([first.body.data.task_id]);
      for (const on of [stage.gateway, twin]) {
        const repeat = await keyed(on, key);
        expectStatus(repeat, 200);
        expect(repeat.headers.get("idempotency-replayed")).toBe("true");
        expect(repeat.body).toEqual(first.body);
      }
      expect(upstream.waiting, "one task").toEqual([]);
      return;
    }
    case "reset":
      expectStatus(first, 502);
      expect(ledger).toMatchObject({ balance: 1000, held: 10, totalRequests: 1, windowEntries: 1 });
      expect(ledger.slots).toHaveLength(1);
      for (const on of [stage.gateway, twin]) expectStatus(await keyed(on, key), 409);
      await makeDue(redis.client, key.accountId);
      await until(async () => (await readLedger(redis.client, key)).held === 0, "the hold to be voided");
      return expectFree(key);
    case "refusal":
      expectStatus(first, 400);
      expect(ledger).toMatchObject({ balance: 1000, held: 0, slots: [], totalRequests: 1 });
      return expectFree(key);
  }
}

/** Nothing of an earlier request with the Idempotency-Key holds another one up. */
async function expectFree(key: IssuedKey): Promise<void> {
  const pending = keyed(stage.gateway, key);
  await until(() => upstream.waiting.length === 1, "another one to reach the upstream");
  upstream.answer("task");
  expectStatus(await pending, 200);
  const ledger = await readLedger(redis.client, key);
  expectSound(ledger);
  expect(ledger).toMatchObject({ balance: 990, held: 0, totalUsed: 10 });
  expect(ledger.slots).toHaveLength(1);
}

const ENDS = ["task", "reset", "refusal"] as const;
/** `EVERY_END=1` plays each phase with each end of the first; otherwise with one, another one at each gateway. */
const casesFrom = (first: number) =>
  Object.keys(PHASES).flatMap((phase, at) => {
    const ends = process.env.EVERY_END ? ENDS : [ENDS[(first + at) % ENDS.length]!];
    return ends.map((end) => [phase, end] as const);
  });

// Guarantee: whatever becomes of the second, the first keeps its hold and its slot, and its answer arrives.
describe("the second breaks while the first is at the upstream", () => {
  test.each(casesFrom(0))("at another gateway, %s; the first ends by %s", async (phase, end) => {
    await expectEnd(await play(twin, phase, end));
  });

  test.each(casesFrom(1))("at the same gateway, %s; the first ends by %s", async (phase, end) => {
    await expectEnd(await play(stage.gateway, phase, end));
  });
});

// The upstream answers before the second has broken: which of the two is the first is left to chance.
test.each(Object.keys(PHASES).slice(0, 4))("both at once, and one breaks %s", async (phase) => {
  for (let round = 0; round < 5; round++) {
    const key = await stage.givenKey();
    const whole = keyed(twin, key);
    const breaking = PHASES[phase]!(key);
    await until(() => upstream.waiting.length > 0, "one of them to reach the upstream");
    upstream.answer("task");
    await breaking;
    const { status } = await whole;
    expect([200, 409]).toContain(status);
    await until(async () => (await readLedger(redis.client, key)).totalUsed > 0, "the charge");
    expect(upstream.waiting, "one task").toEqual([]);
    const ledger = await readLedger(redis.client, key);
    expectSound(ledger);
    expect(ledger).toMatchObject({ balance: 990, held: 0, totalRequests: 1, windowEntries: 1 });
    expect((await keyed(twin, key)).headers.get("idempotency-replayed")).toBe("true");
  }
});
