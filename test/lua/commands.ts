import fc from "fast-check";
import type { Said } from "./model.ts";

interface Asked {
  key: number;
  price: number;
  idempotency?: { key: number; body: number } | undefined;
}

/** One step of a sequence. `request` counts from the latest; `tasks`: only of those that have a task. */
export type Command =
  | ({ kind: "submit" | "plan" } & Asked)
  | { kind: "admit"; request: number }
  | { kind: "bind"; request: number; task: "own" | "another's" }
  | { kind: "void"; request: number; reason: "refused" | "due" | "unsent" }
  | {
      kind: "observe";
      request: number;
      tasks: boolean;
      status: Said;
      refundFailed: boolean;
      poller?: number | undefined;
    }
  | { kind: "recharge"; key: number; amount: number; reference: number }
  | { kind: "inspect"; key: number; request?: number | undefined; tasks: boolean; cacheMs: number }
  | { kind: "credits"; key: number }
  | { kind: "claim"; key: number; most: number }
  | { kind: "collect"; key: number; retentionMs: number }
  | { kind: "time"; byMs: number }
  | { kind: "limits"; key: number; rateLimit: number; maxConcurrent: number; dailyLimit: number }
  | { kind: "end key"; key: number; how: "revoked" | "expires" };

export interface Scenario {
  onePartition: boolean;
  commands: Command[];
}

const key = fc.nat(2);
/** The latest requests are the most worth to come back to. */
const request = fc.oneof(
  { weight: 5, arbitrary: fc.constant(0) },
  { weight: 4, arbitrary: fc.nat(3) },
  { weight: 2, arbitrary: fc.nat(30) },
);
const tasks = fc.constantFrom(true, true, true, true, false);
const asked = {
  key,
  price: fc.constantFrom(10, 20, 40),
  idempotency: fc.option(fc.record({ key: fc.nat(2), body: fc.nat(1) }), { nil: undefined, freq: 3 }),
};
const kind = <K extends string>(name: K) => fc.constant(name);
export const SECOND = 1000;
export const HOUR = 3_600 * SECOND;

const command: fc.Arbitrary<Command> = fc.oneof(
  { weight: 24, arbitrary: fc.record({ kind: kind("submit"), ...asked }) },
  { weight: 4, arbitrary: fc.record({ kind: kind("plan"), ...asked }) },
  { weight: 6, arbitrary: fc.record({ kind: kind("admit"), request }) },
  {
    weight: 14,
    arbitrary: fc.record({
      kind: kind("bind"),
      request,
      task: fc.constantFrom("own" as const, "own" as const, "own" as const, "another's" as const),
    }),
  },
  {
    weight: 12,
    arbitrary: fc.record({
      kind: kind("void"),
      request,
      reason: fc.constantFrom("refused" as const, "due" as const, "unsent" as const),
    }),
  },
  {
    weight: 16,
    arbitrary: fc.record({
      kind: kind("observe"),
      request,
      tasks,
      status: fc.constantFrom<Said[]>(
        "pending",
        "processing",
        "completed",
        "failed",
        "failed",
        "gone",
        "gone",
        "gone",
        "expired",
      ),
      refundFailed: fc.boolean(),
      poller: fc.option(key, { nil: undefined }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: kind("recharge"),
      key,
      amount: fc.constantFrom(10, 20, Number.MAX_SAFE_INTEGER),
      reference: fc.nat(2),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: kind("inspect"),
      key,
      request: fc.option(request, { nil: undefined, freq: 5 }),
      tasks,
      cacheMs: fc.constantFrom(0, 5 * SECOND),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: kind("credits"), key }) },
  { weight: 4, arbitrary: fc.record({ kind: kind("claim"), key, most: fc.integer({ min: 1, max: 4 }) }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: kind("collect"), key, retentionMs: fc.constantFrom(0, 70 * SECOND) }),
  },
  {
    weight: 14,
    arbitrary: fc.record({
      kind: kind("time"),
      byMs: fc.oneof(
        fc.constantFrom(1, 500, SECOND, 5 * SECOND, 20 * SECOND, 30 * SECOND, 60 * SECOND, 61 * SECOND),
        fc.constantFrom(-1, -SECOND, -61 * SECOND, -HOUR, HOUR, 6 * HOUR),
      ),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: kind("limits"),
      key,
      rateLimit: fc.nat(5),
      maxConcurrent: fc.nat(4),
      dailyLimit: fc.nat(9),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: kind("end key"),
      key,
      how: fc.constantFrom("revoked" as const, "expires" as const),
    }),
  },
);

export const scenario: fc.Arbitrary<Scenario> = fc.record({
  onePartition: fc.boolean(),
  commands: fc.array(command, { minLength: 40, maxLength: 60, size: "max" }),
});
