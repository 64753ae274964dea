import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import {
  FairGate,
  type GateObserver,
  type GateOptions,
  type GateRefusal,
} from "../../../src/domain/fair-gate.ts";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

function givenGate(given: Partial<GateOptions> = {}) {
  const seen = { waiting: 0, waitedMs: [] as number[], refused: [] as GateRefusal[] };
  const observer: GateObserver = {
    waiting: (change) => {
      seen.waiting += change;
    },
    waited: (ms) => void seen.waitedMs.push(ms),
    refused: (reason) => void seen.refused.push(reason),
  };
  return {
    gate: new FairGate({ inFlightMax: 1, waitingMax: 10, waitMaxMs: 1000, ...given, observer }),
    seen,
  };
}

describe("the gate before the upstream", () => {
  // Guarantee: never more in flight than there are connections, so that none waits in the pool.
  test("lets as many in as there are connections, and one more for each that leaves", async () => {
    const { gate } = givenGate({ inFlightMax: 2 });
    expect([gate.enter("a"), gate.enter("a"), gate.enter("a")]).toEqual([true, true, false]);
    const waiting = gate.wait("a");
    gate.leave("a");
    expect(await waiting).toBeUndefined();
    expect(gate.enter("a")).toBe(false);
    gate.leave("a");
    gate.leave("a");
    expect([gate.enter("a"), gate.enter("a"), gate.enter("a")]).toEqual([true, true, false]);
  });

  test("serves first who came first, and says how long each waited", async () => {
    const { gate, seen } = givenGate();
    gate.enter("a");
    const order: number[] = [];
    const waits = [1, 2, 3].map((nth) => gate.wait("a").then(() => order.push(nth)));
    expect(seen.waiting).toBe(3);
    for (let at = 0; at < 3; at++) {
      await vi.advanceTimersByTimeAsync(100);
      gate.leave("a");
    }
    await Promise.all(waits);
    expect(order).toEqual([1, 2, 3]);
    expect(seen).toMatchObject({ waiting: 0, waitedMs: [100, 200, 300], refused: [] });
  });

  // Guarantee: who waits has an end, and it comes while there is time enough left for an answer.
  test("refuses who has waited too long, each at its own time", async () => {
    const { gate, seen } = givenGate();
    gate.enter("a");
    const first = gate.wait("a");
    await vi.advanceTimersByTimeAsync(400);
    const second = gate.wait("a");
    await vi.advanceTimersByTimeAsync(600);
    expect(await first).toBe("waited_too_long");
    expect(seen.waiting).toBe(1);
    await vi.advanceTimersByTimeAsync(400);
    expect(await second).toBe("waited_too_long");
    expect(seen.waiting).toBe(0);
    gate.leave("a");
    expect(gate.enter("a")).toBe(true);
  });

  test("gives no connection to who waited too long while the process stood still", async () => {
    const { gate } = givenGate();
    gate.enter("a");
    const late = gate.wait("a");
    // No timer runs, as while the thread is busy.
    vi.setSystemTime(Date.now() + 900);
    vi.spyOn(performance, "now").mockReturnValue(performance.now() + 1500);
    const intime = gate.wait("a");
    gate.leave("a");
    expect(await late).toBe("waited_too_long");
    expect(await intime).toBeUndefined();
  });

  // Guarantee: neither memory nor the wait grows with the load.
  test("refuses at once when as many wait as may", async () => {
    const { gate, seen } = givenGate({ waitingMax: 2 });
    gate.enter("a");
    void gate.wait("a");
    void gate.wait("a");
    expect(await gate.wait("a")).toBe("queue_full");
    expect(seen).toMatchObject({ waiting: 2, refused: ["queue_full"] });
  });

  test("refuses at once where no time is left to wait", async () => {
    const { gate } = givenGate({ waitMaxMs: 0 });
    gate.enter("a");
    expect(await gate.wait("a")).toBe("waited_too_long");
  });

  test("counts a connection that a request occupies though it was given up", async () => {
    const { gate } = givenGate();
    gate.enter("a");
    gate.occupy("a");
    const waiting = gate.wait("a");
    gate.leave("a");
    expect(gate.enter("a")).toBe(false);
    gate.leave("a");
    expect(await waiting).toBeUndefined();
  });

  test("refuses all that wait and all that come once it is closed", async () => {
    const { gate, seen } = givenGate({ inFlightMax: 1 });
    gate.enter("a");
    const waiting = gate.wait("a");
    gate.close();
    gate.leave("a");
    expect(await waiting).toBe("closed");
    expect(gate.enter("a")).toBe(false);
    expect(await gate.wait("a")).toBe("closed");
    expect(seen.waiting).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe("owners who share the upstream", () => {
  function order() {
    const served: string[] = [];
    const note = (name: string) => (refusal: GateRefusal | undefined) =>
      void served.push(refusal ? `${name} ${refusal}` : name);
    return { served, note };
  }
  /** Lets what the last call has resolved go on. */
  const settled = () => vi.advanceTimersByTimeAsync(0);

  // Guarantee: a flood of one account delays another account's request by one turn, not by the flood.
  test("take turns, each in the order of its own requests", async () => {
    const { gate } = givenGate();
    const { served, note } = order();
    gate.enter("flood");
    for (const name of ["flood 1", "flood 2", "flood 3"]) void gate.wait("flood").then(note(name));
    for (const name of ["other 1", "other 2"]) void gate.wait("other").then(note(name));
    for (const owner of ["flood", "flood", "other", "flood", "other"]) gate.leave(owner);
    await settled();
    expect(served).toEqual(["flood 1", "other 1", "flood 2", "other 2", "flood 3"]);
  });

  // Guarantee: who fills the wait is the one who is refused, also when others come later.
  test("who has most waiting is refused first, and the newest of its requests", async () => {
    const { gate, seen } = givenGate({ waitingMax: 4 });
    const { served, note } = order();
    gate.enter("flood");
    for (const nth of [1, 2, 3, 4, 5]) void gate.wait("flood").then(note(`flood ${nth}`));
    for (const nth of [1, 2, 3]) void gate.wait("other").then(note(`other ${nth}`));
    await settled();
    expect(served).toEqual([
      "flood 5 queue_full",
      "flood 4 queue_full",
      "flood 3 queue_full",
      "other 3 queue_full",
    ]);
    expect(seen).toMatchObject({ waiting: 4, refused: Array(4).fill("queue_full") });
  });

  // Guarantee: requests of one account that hang leave connections to the others.
  test("one has no more in flight than its share, and waits for its own while others pass", async () => {
    const { gate } = givenGate({ inFlightMax: 4, inFlightPerFreeMax: 3 });
    const { served, note } = order();
    expect([1, 2, 3, 4].map(() => gate.enter("flood"))).toEqual([true, true, true, false]);
    void gate.wait("flood").then(note("flood 4"));
    expect([gate.enter("other"), gate.enter("other")]).toEqual([true, false]);
    void gate.wait("other").then(note("other 2"));
    gate.leave("other");
    await settled();
    expect(served).toEqual(["other 2"]);
    gate.leave("flood");
    await settled();
    expect(served).toEqual(["other 2", "flood 4"]);
  });

  // Guarantee: neither do requests of several accounts that hang.
  test("several that take all they may leave a connection to the next", () => {
    const { gate } = givenGate({ inFlightMax: 256, inFlightPerFreeMax: 3 });
    const taken = ["one", "two", "three"].map((owner) => {
      let count = 0;
      while (gate.enter(owner)) count++;
      return count;
    });
    expect(taken).toEqual([192, 48, 12]);
    expect(gate.enter("another")).toBe(true);
  });

  test("an owner whose requests have left has its whole share again", () => {
    const { gate } = givenGate({ inFlightMax: 4, inFlightPerFreeMax: 1 });
    for (let round = 0; round < 3; round++) {
      expect([gate.enter("a"), gate.enter("a"), gate.enter("a")]).toEqual([true, true, false]);
      gate.leave("a");
      gate.leave("a");
    }
  });
});

// Guarantee: however many owners come and go, one that has its share gets no more.
test("owners that are in flight are counted while thousands of others come and go", () => {
  const { gate } = givenGate({ inFlightMax: 4, inFlightPerFreeMax: 1 });
  expect([gate.enter("busy"), gate.enter("busy"), gate.enter("busy")]).toEqual([true, true, false]);
  for (let nth = 0; nth < 5000; nth++) {
    expect(gate.enter(`other${nth}`)).toBe(true);
    gate.leave(`other${nth}`);
  }
  expect(gate.enter("busy")).toBe(false);
  gate.leave("busy", 2);
  expect(gate.enter("busy")).toBe(true);
});
