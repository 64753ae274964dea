import { expect, onTestFinished, test, vi } from "vitest";
import {
  createConfirmedCharges,
  type SentCharge,
} from "../../../../src/durability/losses/confirmed-charges.ts";
import { keyRef, partitionNames } from "../../../../src/records/names.ts";
import type { Binding } from "../../../../src/scripts/holds.ts";
import { newTask } from "../../../support/store.ts";

// Charges of the last seconds, kept in memory in case the store loses them.

const NOW_MS = 1_800_000_000_000;

const chargeOf = (nth: number, more: Partial<SentCharge> = {}): SentCharge => ({
  ...{ storeId: "store", atMs: NOW_MS, settleWithinMs: 60_000, ...more },
  call: {
    ...{ requestId: `req_${nth}`, key: keyRef("key", "account", nth % 2), price: 10, endpoint: "/" },
    ...{ retentionMs: 3_600_000, task: newTask(`task_${nth}`) },
    ...{ admittedAtMs: NOW_MS - 1, idempotency: { digest: "d", fingerprint: "f" } },
  },
});

/** Keeps up to four charges. */
function givenCharges() {
  const sent: string[] = [];
  const charges = createConfirmedCharges(async ({ call }) => void sent.push(call.requestId), 4);
  const clock = { nowMs: NOW_MS };
  const recent = (partition?: number, storeId = "store") => {
    const ledger = partition === undefined ? undefined : partitionNames(partition).ledger;
    const has = (name: string): boolean => ledger === undefined || name === ledger;
    return charges.recentOn({ has, nowMs: () => clock.nowMs }, storeId);
  };
  return {
    clock,
    sent,
    recent,
    add: (nth: number, outcome: Binding = "bound", more?: Partial<SentCharge>) =>
      charges.add(chargeOf(nth, more), outcome),
    sendAgain: (...numbers: number[]) => charges.sendAgain(numbers.map((nth) => chargeOf(nth))),
    forgetSentAgain: charges.forgetSentAgain,
    numbers: (...of: Parameters<typeof recent>) =>
      recent(...of).map(({ call }) => Number(call.requestId.slice("req_".length))),
  };
}

test("the latest charges are kept as they were sent, and what charged nothing is not", () => {
  const { add, recent, numbers } = givenCharges();
  for (const nth of [1, 2, 3, 4]) add(nth);
  add(5, "late", { untilMs: NOW_MS + 1 });
  add(6, "uncollected");
  add(7, "conflict");
  add(8, "forgotten");
  add(9, "bound", { storeId: undefined });
  expect(recent()).toEqual([
    chargeOf(3),
    chargeOf(4),
    chargeOf(5, { untilMs: NOW_MS + 1 }),
    chargeOf(6, { unpaid: true }),
  ]);
  expect([numbers(0), numbers(1), numbers(0, "another")]).toEqual([[4, 6], [3, 5], []]);
});

test("a charge is sent again while it may be settled, and for 30 s after its answer", () => {
  vi.useFakeTimers({ toFake: ["performance"] });
  onTestFinished(() => void vi.useRealTimers());
  const { add, clock, numbers } = givenCharges();
  add(1);
  add(2, "bound", { untilMs: NOW_MS + 5 });
  clock.nowMs = NOW_MS + 4;
  expect(numbers()).toEqual([1, 2]);
  clock.nowMs = NOW_MS + 5;
  expect(numbers()).toEqual([1]);
  vi.advanceTimersByTime(30_000);
  add(3);
  expect(numbers()).toEqual([1, 3]);
  vi.advanceTimersByTime(1);
  add(4);
  expect(numbers()).toEqual([3, 4]);
  clock.nowMs = NOW_MS + 60_000;
  expect(numbers()).toEqual([]);
});

// Guarantee: what a second failover may lose is still known after the first.
test("charges that were sent again are forgotten, and of the others the oldest first", async () => {
  const { add, sendAgain, forgetSentAgain, sent, numbers } = givenCharges();
  for (const nth of [1, 2, 3, 4, 5, 6]) add(nth);
  await sendAgain(3, 5);
  await sendAgain(5);
  expect(sent).toEqual(["req_3", "req_5"]);
  forgetSentAgain();
  expect(numbers()).toEqual([4, 6]);
  for (const nth of [7, 8, 9]) add(nth);
  expect(numbers()).toEqual([6, 7, 8, 9]);
  await sendAgain(1);
  forgetSentAgain();
  add(10);
  expect(numbers()).toEqual([7, 8, 9, 10]);
  await sendAgain(1);
  expect(sent).toEqual(["req_3", "req_5", "req_1", "req_1"]);
});
