import { expect, test } from "vitest";
import { refuse } from "../../../src/domain/errors.ts";
import { createRefusalCounts } from "../../../src/jobs/refusal-counts.ts";
import type { Refusal } from "../../../src/operations/accounts/refusal-log.ts";
import type { HourlyRefusals } from "../../../src/operations/accounts/refusals.ts";
import { createLogger } from "../../../src/telemetry/log.ts";

function given() {
  const store = {
    usable: true,
    added: [] as HourlyRefusals[][],
    single: [] as Refusal[],
    fails: false,
    nowMs: 0,
  };
  const counts = createRefusalCounts({
    async add(refusals) {
      store.added.push(refusals);
      if (store.fails) throw new Error("no answer");
    },
    async addSingle(refusals) {
      store.single.push(...refusals);
    },
    usable: () => store.usable,
    nowMs: () => store.nowMs,
    log: createLogger("silent"),
  });
  const count = (keyId: string, accountId: string, outcome: string): void =>
    counts.count(
      { keyId, accountId, requestId: "req_1", shownId: "mine" },
      outcome,
      refuse("rate_limited", { limit: 5 }),
    );
  return { counts: { ...counts, count }, store };
}

test("refusals are added once, by key and reason, and an idle gateway writes nothing", async () => {
  const { counts, store } = given();
  await counts.flush();
  for (let n = 0; n < 3; n++) counts.count("key_1", "acme", "rate_limited");
  counts.count("key_1", "acme", "insufficient_credits");
  counts.count("key_2", "acme", "rate_limited");
  await counts.flush();
  await counts.flush();
  expect(store.added).toEqual([
    [
      { keyId: "key_1", accountId: "acme", outcome: "rate_limited", count: 3, atMs: 0 },
      { keyId: "key_1", accountId: "acme", outcome: "insufficient_credits", count: 1, atMs: 0 },
      { keyId: "key_2", accountId: "acme", outcome: "rate_limited", count: 1, atMs: 0 },
    ],
  ]);
});

test("between two writes a thousand pairs are kept, and those among them go on counting", async () => {
  const { counts, store } = given();
  for (let n = 0; n < 5000; n++) counts.count(`key_${n}`, "acme", "rate_limited");
  counts.count("key_7", "acme", "rate_limited");
  await counts.flush();
  expect(store.added[0]).toHaveLength(1000);
  expect(store.added[0]?.find(({ keyId }) => keyId === "key_7")?.count).toBe(2);
});

test("between two writes a thousand refusals are kept one by one, with their limit and both ids", async () => {
  const { counts, store } = given();
  for (let n = 0; n < 5000; n++) counts.count("key_1", "acme", "rate_limited");
  await counts.flush();
  await counts.flush();
  expect(store.single).toHaveLength(1000);
  expect(store.single[0]).toMatchObject({ limit: 5, requestId: "req_1", shownId: "mine", keyId: "key_1" });
});

test("while the store is away they wait; what may have counted is not sent twice", async () => {
  const { counts, store } = given();
  store.usable = false;
  counts.count("key_1", "acme", "rate_limited");
  await counts.flush();
  expect(store.added).toEqual([]);
  store.usable = true;
  store.fails = true;
  await counts.flush();
  store.fails = false;
  await counts.flush();
  expect(store.added).toHaveLength(1);
});

test("what is left is written at the end", async () => {
  const { counts, store } = given();
  counts.start();
  counts.count("key_1", "acme", "rate_limited");
  await counts.stop();
  expect(store.added).toHaveLength(1);
});

test("refusals of two hours are counted apart, by the time of each and not of the write", async () => {
  const { counts, store } = given();
  for (const nowMs of [3_599_999, 3_600_000, 3_600_001]) {
    store.nowMs = nowMs;
    counts.count("key_1", "acme", "rate_limited");
  }
  await counts.flush();
  expect(store.added[0]?.map(({ atMs, count }) => [atMs, count])).toEqual([
    [3_599_999, 1],
    [3_600_000, 2],
  ]);
});
