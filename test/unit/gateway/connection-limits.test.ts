import { expect, test } from "vitest";
import {
  createConnectionLimits,
  type LimitedConnection,
} from "../../../src/gateway/connections/connection-limits.ts";

interface Fake extends LimitedConnection {
  name: string;
  idle: boolean;
  sending: boolean;
}

function givenLimits(total: number, perAddress: number) {
  const limits = createConnectionLimits<Fake>(() => ({ total, perAddress }));
  let active = 0;
  return {
    ...limits,
    /** One connection: `a1` comes from the address `a`; with a capital letter from a trusted proxy. */
    come(name: string, idle = true, sending = false) {
      const address = name.replace(/\d+/, "");
      const connection: Fake = {
        name,
        address,
        trusted: address === address.toUpperCase(),
        idle,
        sending,
        lastActive: active++,
        isIdle: () => connection.idle,
        isSending: () => connection.idle || connection.sending,
      };
      const entry = limits.enter(connection);
      return entry.outcome === "admitted_instead" ? `instead of ${entry.of.name}` : entry.outcome;
    },
  };
}

test("at the limit of an address its longest idle connection makes room; busy ones stay", () => {
  const limits = givenLimits(100, 3);
  expect(["a1", "a2", "a3"].map((name) => limits.come(name, name !== "a1"))).toEqual(
    Array(3).fill("admitted"),
  );
  expect(limits.come("a4")).toBe("instead of a2");
  expect(limits.come("b1")).toBe("admitted");
  expect(limits.count()).toBe(4);
});

test("where none of an address is idle, one more is refused, and others are not", () => {
  const limits = givenLimits(100, 2);
  for (const name of ["a1", "a2"]) limits.come(name, false);
  expect(limits.come("a3")).toBe("refused");
  expect(limits.come("b1")).toBe("admitted");
});

// Guarantee: requests that are never finished lock nobody out.
test("where none is idle, the one whose client has owed the rest of a request for the longest makes room", () => {
  const limits = givenLimits(4, 3);
  limits.come("a1", false);
  for (const name of ["a2", "a3"]) limits.come(name, false, true);
  expect(limits.come("a4", true)).toBe("instead of a2");
  expect(limits.come("b1", false)).toBe("admitted");
  expect(limits.come("c1"), "idle ones first").toBe("instead of a4");
  expect(limits.come("c2"), "never one that waits for an answer").toBe("instead of c1");
});

// Guarantee: an attacker pushes out nobody but himself, however many addresses he has.
test("at the total limit the address that holds the most makes room, never one with as few as the newcomer", () => {
  const limits = givenLimits(5, 4);
  for (const name of ["h1", "a1", "a2", "a3", "a4"]) limits.come(name);
  expect(limits.come("b1")).toBe("instead of a1");
  expect(limits.come("c1")).toBe("instead of a2");
  // Now a holds two, and h, b and c one each.
  expect(limits.come("d1")).toBe("instead of a3");
  expect(limits.come("e1")).toBe("refused");
  expect(limits.come("d2")).toBe("instead of d1");
  expect(limits.count()).toBe(5);
});

test("connections of trusted proxies count in total only, and make room for nobody", () => {
  const limits = givenLimits(4, 1);
  for (const name of ["P1", "P2", "P3", "a1"]) expect(limits.come(name)).toBe("admitted");
  expect(limits.come("b1")).toBe("refused");
  expect(limits.come("P4")).toBe("refused");
});

test("one that has left makes room", () => {
  const limits = givenLimits(1, 1);
  const gone: Fake = {
    name: "a1",
    address: "a",
    trusted: false,
    idle: false,
    lastActive: 0,
    isIdle: () => false,
    sending: false,
    isSending: () => false,
  };
  limits.enter(gone);
  expect(limits.come("b1")).toBe("refused");
  limits.leave(gone);
  expect(limits.come("b1")).toBe("admitted");
});
