import { expect, test, vi } from "vitest";
import type { UsageQuestion } from "../../../src/gateway/usage.ts";
import { inTurn } from "../../../src/process/customer-usage.ts";

/** Questions that differ, so that no answer is shared. */
const question = (nth: number): UsageQuestion => ({
  from: `2026-10-${nth + 10}`,
  to: "2026-11-30",
  by: "day",
});
const ANSWER = { rows: [], since: null };

// Guarantee: however many questions one account asks at once, few are read at a time, and others wait for none of them.
test("of many questions of one account two are read at a time, and another account is not kept waiting", async () => {
  const reading: { of: string; end(): void }[] = [];
  const usageOf = inTurn((of) => new Promise((resolve) => reading.push({ of, end: () => resolve(ANSWER) })));
  const many = Array.from({ length: 50 }, (_, nth) => usageOf("greedy", question(nth)));
  const refused = many.map((one) =>
    one.then(
      () => undefined,
      ({ refusal }) => refusal,
    ),
  );
  expect(reading.map(({ of }) => of)).toEqual(["greedy", "greedy"]);
  const other = usageOf("other", question(0));
  expect(reading.map(({ of }) => of)).toEqual(["greedy", "greedy", "other"]);
  reading[2]!.end();
  expect(await other).toEqual(ANSWER);
  for (let at = 0; at < 35; at++) {
    await vi.waitFor(() => expect(reading.length).toBeGreaterThan(at));
    reading[at]!.end();
  }
  const refusals = (await Promise.all(refused)).filter((one) => one !== undefined);
  expect(refusals).toHaveLength(16);
  expect(refusals[0]).toMatchObject({ name: "slow_down", status: 429, code: 2007, retryAfterSeconds: 1 });
});

// Guarantee: accounts that ask much leave room for those that ask once.
test("where five accounts wait with all they may, another waits with them and is answered", async () => {
  const reading: (() => void)[] = [];
  const usageOf = inTurn(() => new Promise((resolve) => reading.push(() => resolve(ANSWER))));
  const greedy = Array.from({ length: 100 }, (_, nth) => usageOf(`greedy-${nth % 5}`, question(nth)));
  for (const one of greedy) one.catch(() => undefined);
  let isAnswered = false;
  const other = usageOf("other", question(0)).then(() => {
    isAnswered = true;
  });
  for (let at = 0; !isAnswered; at++) {
    await vi.waitFor(() => expect(reading.length).toBeGreaterThan(at));
    reading[at]!();
    await new Promise(setImmediate);
  }
  await other;
});

test("an answer is kept for five seconds, and a failure not at all", async () => {
  vi.useFakeTimers({ toFake: ["performance"] });
  try {
    const read = vi.fn(async () => ANSWER);
    const usageOf = inTurn(read);
    await usageOf("one", question(0));
    vi.advanceTimersByTime(4999);
    await usageOf("one", question(0));
    expect(read).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(1);
    read.mockRejectedValueOnce(new Error("away"));
    await expect(usageOf("one", question(0))).rejects.toThrow("away");
    await usageOf("one", question(0));
    expect(read).toHaveBeenCalledTimes(3);
  } finally {
    vi.useRealTimers();
  }
});
