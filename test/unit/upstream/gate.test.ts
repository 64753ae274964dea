import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { createGate, type GateObserver, type GateRefusal } from "../../../src/upstream/gate.ts";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

function givenGate({ inFlightMax = 1, waitingMax = 10, waitMaxMs = 1000 } = {}) {
  const seen = { waiting: 0, waitedMs: [] as number[], refused: [] as GateRefusal[] };
  const observer: GateObserver = {
    waiting: (change) => {
      seen.waiting += change;
    },
    waited: (ms) => void seen.waitedMs.push(ms),
    refused: (reason) => void seen.refused.push(reason),
  };
  return { gate: createGate({ inFlightMax, waitingMax, waitMaxMs, observer }), seen };
}

describe("the gate before the upstream", () => {
  // Guarantee: never more in flight than there are connections, so that none waits in the pool.
  test("lets as many in as there are connections, and one more for each that leaves", async () => {
    const { gate } = givenGate({ inFlightMax: 2 });
    expect([gate.enter(), gate.enter(), gate.enter()]).toEqual([true, true, false]);
    const waiting = gate.wait();
    gate.leave();
    expect(await waiting).toBeUndefined();
    expect(gate.enter()).toBe(false);
    gate.leave();
    gate.leave();
    expect([gate.enter(), gate.enter(), gate.enter()]).toEqual([true, true, false]);
  });

  test("serves first who came first, and says how long each waited", async () => {
    const { gate, seen } = givenGate();
    gate.enter();
    const order: number[] = [];
    const waits = [1, 2, 3].map((nth) => gate.wait().then(() => order.push(nth)));
    expect(seen.waiting).toBe(3);
    for (let at = 0; at < 3; at++) {
      await vi.advanceTimersByTimeAsync(100);
      gate.leave();
    }
    await Promise.all(waits);
    expect(order).toEqual([1, 2, 3]);
    expect(seen).toMatchObject({ waiting: 0, waitedMs: [100, 200, 300], refused: [] });
  });

  // Guarantee: who waits has an end, and it comes while there is time enough left for an answer.
  test("refuses who has waited too long, each at its own time", async () => {
    const { gate, seen } = givenGate();
    gate.enter();
    const first = gate.wait();
    await vi.advanceTimersByTimeAsync(400);
    const second = gate.wait();
    await vi.advanceTimersByTimeAsync(600);
    expect(await first).toBe("waited_too_long");
    expect(seen.waiting).toBe(1);
    await vi.advanceTimersByTimeAsync(400);
    expect(await second).toBe("waited_too_long");
    expect(seen.waiting).toBe(0);
    gate.leave();
    expect(gate.enter()).toBe(true);
  });

  test("gives no connection to who waited too long while the process stood still", async () => {
    const { gate } = givenGate();
    gate.enter();
    const late = gate.wait();
    // No timer runs, as while the thread is busy.
    vi.setSystemTime(Date.now() + 900);
    vi.spyOn(performance, "now").mockReturnValue(performance.now() + 1500);
    const intime = gate.wait();
    gate.leave();
    expect(await late).toBe("waited_too_long");
    expect(await intime).toBeUndefined();
  });

  // Guarantee: neither memory nor the wait grows with the load.
  test("refuses at once when as many wait as may", async () => {
    const { gate, seen } = givenGate({ waitingMax: 2 });
    gate.enter();
    void gate.wait();
    void gate.wait();
    expect(await gate.wait()).toBe("queue_full");
    expect(seen).toMatchObject({ waiting: 2, refused: ["queue_full"] });
  });

  test("refuses at once where no time is left to wait", async () => {
    const { gate } = givenGate({ waitMaxMs: 0 });
    gate.enter();
    expect(await gate.wait()).toBe("waited_too_long");
  });

  test("counts a connection that a request occupies though it was given up", async () => {
    const { gate } = givenGate();
    gate.enter();
    gate.keep();
    const waiting = gate.wait();
    gate.leave();
    expect(gate.enter()).toBe(false);
    gate.leave();
    expect(await waiting).toBeUndefined();
  });

  test("refuses all that wait and all that come once it is closed", async () => {
    const { gate, seen } = givenGate({ inFlightMax: 1 });
    gate.enter();
    const waiting = gate.wait();
    gate.close();
    gate.leave();
    expect(await waiting).toBe("closed");
    expect(gate.enter()).toBe(false);
    expect(await gate.wait()).toBe("closed");
    expect(seen.waiting).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });
});
