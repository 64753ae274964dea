import fc from "fast-check";
import type { Said } from "./model.ts";

interface Asked {
  key: number;
  price: number;
  /** Absent: none. */
  retentionMs?: number | undefined;
  idempotency?: { key: number; body: number } | undefined;
}

/**
 * A step that asks for one run of a script that serves requests. `request` counts from the latest; `tasks`: only of
 * those that have a task.
 */
export type Asking =
  | ({ kind: "submit" } & Asked)
  | { kind: "admit"; request: number }
  | { kind: "bind"; request: number; task: "own" | "another's" }
  | { kind: "unclear"; request: number; outcome: "unclear" | "timed_out" }
  | { kind: "void"; request: number; reason: "refused" | "due" | "unsent" }
  | {
      kind: "observe";
      request: number;
      tasks: boolean;
      status: Said;
      refundFailed: boolean;
      poller?: number | undefined;
    }
  | { kind: "inspect"; key: number; request?: number | undefined; tasks: boolean; cacheMs: number };

/** One step of a sequence. */
export type Command =
  | Asking
  /** Items of one script in one call; at `spoilt` stands one more, whose names are of another type. */
  | { kind: "together"; commands: Asking[]; spoilt?: number | undefined }
  | ({ kind: "plan" } & Asked)
  | { kind: "recharge"; key: number; amount: number; reference: number }
  | { kind: "credits"; key: number }
  | { kind: "lease"; key: number; list: "holds" | "polls"; most: number }
  /** `retentionMs` is that of the gateway that collects, which must not matter. */
  | { kind: "collect"; key: number; retentionMs: number }
  | { kind: "time"; byMs: number }
  | { kind: "limits"; key: number; rateLimit: number; maxConcurrent: number; dailyLimit: number }
  | { kind: "end key"; key: number; how: "revoked" | "expires" };

export interface Scenario {
  onePartition: boolean;
  commands: Command[];
}

const key = fc.nat(3);
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
  retentionMs: fc.constantFrom(0, 70_000, 7 * 24 * 3_600_000),
  idempotency: fc.option(fc.record({ key: fc.nat(2), body: fc.nat(1) }), { nil: undefined, freq: 3 }),
};
const kind = <K extends string>(name: K) => fc.constant(name);
export const SECOND = 1000;
export const HOUR = 3_600 * SECOND;

const submit = fc.record({ kind: kind("submit"), ...asked });
const admit = fc.record({ kind: kind("admit"), request });
const bind = fc.record({
  kind: kind("bind"),
  request,
  task: fc.constantFrom("own" as const, "own" as const, "own" as const, "another's" as const),
});
const voiding = fc.record({
  kind: kind("void"),
  request,
  reason: fc.constantFrom("refused" as const, "due" as const, "unsent" as const),
});
const unclear = fc.record({
  kind: kind("unclear"),
  request,
  outcome: fc.constantFrom("unclear" as const, "timed_out" as const),
});
const said: Said[] = [
  "pending",
  "processing",
  "completed",
  "failed",
  "failed",
  "gone",
  "gone",
  "gone",
  "expired",
];
const observe = fc.record({
  kind: kind("observe"),
  request,
  tasks,
  status: fc.constantFrom(...said),
  refundFailed: fc.boolean(),
  poller: fc.option(key, { nil: undefined }),
});
const inspect = fc.record({
  kind: kind("inspect"),
  key,
  request: fc.option(request, { nil: undefined, freq: 5 }),
  tasks,
  cacheMs: fc.constantFrom(0, 5 * SECOND),
});
const severalOf = (one: fc.Arbitrary<Asking>) => fc.array(one, { minLength: 2, maxLength: 6, size: "max" });

const command: fc.Arbitrary<Command> = fc.oneof(
  { weight: 24, arbitrary: submit },
  { weight: 4, arbitrary: fc.record({ kind: kind("plan"), ...asked }) },
  { weight: 6, arbitrary: admit },
  { weight: 14, arbitrary: bind },
  { weight: 12, arbitrary: voiding },
  { weight: 3, arbitrary: unclear },
  { weight: 16, arbitrary: observe },
  { weight: 5, arbitrary: inspect },
  {
    weight: 20,
    arbitrary: fc.record({
      kind: kind("together"),
      commands: fc.oneof(
        severalOf(fc.oneof({ weight: 4, arbitrary: submit }, { weight: 1, arbitrary: admit })),
        ...[bind, voiding, observe, inspect].map((one) => severalOf(one)),
      ),
      spoilt: fc.option(fc.nat(6), { nil: undefined, freq: 2 }),
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
  { weight: 3, arbitrary: fc.record({ kind: kind("credits"), key }) },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: kind("lease"),
      key,
      list: fc.constantFrom("holds" as const, "polls" as const),
      most: fc.integer({ min: 1, max: 4 }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: kind("collect"), key, retentionMs: fc.constantFrom(0, 7 * 24 * HOUR) }),
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
