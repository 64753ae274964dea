import { expect, test } from "vitest";
import { GatewayError } from "../../../src/domain/errors.ts";
import type { RequestContext } from "../../../src/gateway/http-exchange.ts";
import { createKeyUsages, rememberGoodKey } from "../../../src/gateway/key-memory.ts";
import { createFallbackMemory, passUnmetered } from "../../../src/gateway/unmetered.ts";
import { keyRef } from "../../../src/records/names.ts";
import type { AccountStatus } from "../../../src/records/records.ts";
import type { KeyTerms } from "../../../src/scripts/holds.ts";

const NOV_MS = Date.UTC(2026, 10, 30, 23);
const DEC_MS = Date.UTC(2026, 11, 1);
const AWAY = new GatewayError("store_unavailable", "the breaker is open");

/** One key at a gateway whose store has been away since the replies that it is told of. */
function givenKey() {
  const clock = { nowMs: NOV_MS };
  const store = { outage: async (): Promise<number | undefined> => 1, nowMs: () => clock.nowMs };
  const key = keyRef("key", "ann", 1);
  const usage = createKeyUsages().of(key);
  const context = {
    config: { store: { fallbackStrategy: "allow", allowMaxPerKey: 0 } },
    exchange: { route: "/", price: 10 },
    gateway: {
      fallback: createFallbackMemory({ find: async () => undefined }),
      metrics: { degraded: { inc: () => undefined } },
      store,
    },
    key,
    usage,
  } as unknown as RequestContext;
  const state = { limit: 5, remaining: 5, resetAtMs: 0, concurrentLimit: 5, active: 0 };
  return {
    clock,
    store,
    usage,
    exchange: context.exchange,
    reply: (atMs: number, status: AccountStatus = "active", terms?: KeyTerms) =>
      rememberGoodKey(context, { state, tier: "standard", terms, restrictions: undefined, atMs }, status),
    passes: (error: unknown = AWAY) => passUnmetered(context, error, true),
    polls: () => passUnmetered(context, AWAY),
  };
}

// Guarantee: the order in which replies are handled undoes nothing that a later script has said.
test("a reply that ran before a suspension, and is handled after it, does not lift it", async () => {
  const { reply, passes } = givenKey();
  reply(1000);
  expect(await passes()).toBe(true);
  reply(3000, "suspended");
  reply(2000);
  expect(await passes()).toBe(false);
  reply(4000);
  expect(await passes()).toBe(true);
});

test("an INSPECT whose reply comes after the key was called invalid does not make it good again", async () => {
  const { usage, reply, passes } = givenKey();
  reply(1000);
  usage.isInvalid = true;
  reply(2000);
  expect(await passes()).toBe(false);
});

test("an earlier reply handled late brings back no earlier terms", async () => {
  const { reply, passes } = givenKey();
  reply(2000, "active", { expiresAtMs: NOV_MS - 1, cap: 100, spent: 0 });
  reply(1000);
  expect(await passes()).toBe(false);
});

test("a new month has all of the cap, less what passed in this outage", async () => {
  const { clock, reply, passes } = givenKey();
  reply(NOV_MS, "active", { expiresAtMs: Number.POSITIVE_INFINITY, cap: 20, spent: 20 });
  expect(await passes()).toBe(false);
  clock.nowMs = DEC_MS;
  expect([await passes(), await passes(), await passes()]).toEqual([true, true, false]);
});

test("a suspended account's tasks are polled during an outage, and a closed one's are not", async () => {
  const { reply, passes, polls } = givenKey();
  reply(1000, "suspended");
  expect([await passes(), await polls()]).toEqual([false, true]);
  reply(2000, "closed");
  expect([await passes(), await polls()]).toEqual([false, false]);
});

// Guarantee: without limits passes only what a store that is away could not judge.
test("a request passes only while the store is away, and if its key is still good then", async () => {
  const { reply, passes, store, usage, exchange } = givenKey();
  reply(1000);
  expect(await passes(new GatewayError("internal", "a bug"))).toBe(false);
  expect(await passes(new Error("a bug"))).toBe(false);
  store.outage = async () => undefined;
  expect(await passes()).toBe(false);
  expect(exchange.degraded).toBeUndefined();
  store.outage = async () => 1;
  expect([await passes(), exchange.degraded]).toEqual([true, true]);
  store.outage = async () => {
    usage.isInvalid = true;
    return 1;
  };
  expect(await passes()).toBe(false);
});

test("a key is good until the moment that it expires", async () => {
  const { clock, reply, passes } = givenKey();
  reply(1000, "active", { expiresAtMs: NOV_MS, cap: Number.POSITIVE_INFINITY, spent: 0 });
  expect(await passes()).toBe(false);
  clock.nowMs = NOV_MS - 1;
  expect(await passes()).toBe(true);
});
