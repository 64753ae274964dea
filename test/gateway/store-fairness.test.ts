import { afterAll, beforeAll, expect, test } from "vitest";
import type { Reply } from "../support/gateway.ts";
import { expectStatus, until } from "../support/gateway.ts";
import { generate, givenStage, readyz, type Stage, settled } from "../support/store-stage.ts";

let stage: Stage;
beforeAll(async () => {
  // Longer than any test here: what is shown does not depend on time.
  stage = await givenStage({
    // The flood is refused for want of credits, and must reach the store.
    config: { store: { commandTimeoutMs: 60_000 }, server: { utilityRequestsPerSecond: 1_000_000 } },
  });
});
afterAll(() => stage.stop());

async function metric(name: string): Promise<number> {
  const [line] = await stage.gateway.metric(name);
  return Number(line?.split(" ").at(-1) ?? 0);
}

/** Calls under way at a time. */
const UNDER_WAY_MAX = 256;
/** Of the gateway's own among them, one for each kind of regular work: a slow machine has had nine there. */
const OWN_MAX = 16;

/** Many admissions of one key without credits, all of them in the gateway, while Redis stands still. */
async function whileFlooded(count: number, work: (flood: Promise<Reply>[]) => Promise<void>): Promise<void> {
  const attacker = await stage.givenKey({ credits: 0, limits: { rate_limit: 10_000 } });
  expectStatus(await generate(stage.gateway, attacker), 402);
  await stage.proxy.steer({ stall: true });
  try {
    const refusedBefore = await metric('tollgate_store_failures_total{reason="overloaded"}');
    const flood = Array.from({ length: count }, () => generate(stage.gateway, attacker));
    await until(async () => {
      const refused = (await metric('tollgate_store_failures_total{reason="overloaded"}')) - refusedBefore;
      return (await metric("tollgate_requests_in_flight ")) + refused === count;
    }, "the flood to be in the gateway");
    await work(flood);
  } finally {
    await stage.proxy.heal();
  }
}

test("another key's request goes before most of a flood that was there first", async () => {
  const honest = await stage.givenKey();
  expectStatus(await generate(stage.gateway, honest), 200);
  await whileFlooded(700, async (flood) => {
    const order: string[] = [];
    for (const reply of flood) void reply.then(() => order.push("flood"));
    // One call to the store and nothing else, as each of the flood.
    const honestReply = stage.gateway.request("GET", "/api/v1/credits", honest).then((reply) => {
      order.push("honest");
      return reply;
    });
    await until(async () => (await metric("tollgate_requests_in_flight ")) === 701, "the honest request");
    await stage.proxy.heal();
    expectStatus(await honestReply, 200);
    const replies = await Promise.all(flood);
    expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([402]));
    // Requests already under way, and some that a busy client reads early.
    expect(order.indexOf("honest")).toBeLessThan(450);
  });
});

test("what waits is bounded for each key; the rest is refused as overloaded, and leaves nothing behind", async () => {
  const honest = await stage.givenKey();
  expectStatus(await generate(stage.gateway, honest), 200);
  const admissions = stage.proxy.count("admit");
  await whileFlooded(900, async (flood) => {
    expect(await metric("tollgate_store_calls_waiting ")).toBe(500);
    // The honest one before the flood, and all that may be under way; the flood's first may share a call with it or not, and
    // calls of the gateway's own may be among them.
    const admitted = stage.proxy.count("admit") - admissions;
    expect(admitted).toBeGreaterThan(UNDER_WAY_MAX - OWN_MAX);
    expect(admitted).toBeLessThanOrEqual(UNDER_WAY_MAX + 1);
    const honestReply = generate(stage.gateway, honest);
    await until(async () => (await metric("tollgate_store_calls_waiting ")) === 501, "the honest request");
    await stage.proxy.heal();
    expectStatus(await honestReply, 200);
    const replies = await Promise.all(flood);
    const refused = replies.filter(({ status }) => status === 503);
    // A few more, where calls of the gateway's own were under way.
    expect(refused.length).toBeGreaterThanOrEqual(900 - 500 - UNDER_WAY_MAX);
    expect(refused.length).toBeLessThanOrEqual(900 - 500 - UNDER_WAY_MAX + OWN_MAX);
    for (const reply of refused)
      expect(reply.body).toMatchObject({ code: 503, retryAfter: 1, error: reply.body.msg });
    expect(refused[0]!.body.msg).toContain("busy");
    expect(replies.filter(({ status }) => status === 402)).toHaveLength(900 - refused.length);
  });
  expect(await readyz(stage.gateway)).toBe(200);
  expect(stage.proxy.count("void"), "nothing was sent that would have to be taken back").toBe(0);
  await settled(stage.gateway);
});

test("nobody waits for a turn at a store that has gone", async () => {
  const admissions = stage.proxy.count("admit");
  await whileFlooded(300, async (flood) => {
    // One of the attacker's was answered before the flood. Calls of the gateway's own may be among those under way.
    const underWay = stage.proxy.count("admit") - admissions - 1;
    expect(underWay).toBeLessThanOrEqual(UNDER_WAY_MAX);
    expect(underWay).toBeGreaterThan(UNDER_WAY_MAX - OWN_MAX);
    expect(await metric("tollgate_store_calls_waiting ")).toBe(300 - underWay);
    await stage.proxy.steer({ connections: "reset" });
    for (const { status } of await Promise.all(flood)) expect(status).toBe(503);
    expect(await metric("tollgate_store_calls_waiting ")).toBe(0);
  });
  await settled(stage.gateway);
});
