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
const SECOND = 1000;
const HOUR = 3_600 * SECOND;

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

const submit = (key: number, price = 10): Command => ({ kind: "submit", key, price });
const voided = (reason: "refused" | "due" | "unsent"): Command => ({ kind: "void", request: 0, reason });
const wait = (byMs: number): Command => ({ kind: "time", byMs });
const bound: Command = { kind: "bind", request: 0, task: "own" };
const said = (status: Said): Command => ({
  kind: "observe",
  request: 0,
  tasks: true,
  status,
  refundFailed: true,
  poller: 0,
});
const settled = (key: number): Command[] => [submit(key), voided("refused")];
const admitted = (idempotency: number): Command => ({
  kind: "submit",
  key: 0,
  price: 10,
  idempotency: { key: idempotency, body: 0 },
});

/** Rare turns that chance alone may miss in a short run. */
const RARE_TURNS: Command[][] = [
  // The day is used up, minutes apart; the next day it is open.
  [
    ...[1, 2, 3, 4, 5, 6].flatMap(() => [submit(0), bound, said("completed"), wait(61 * SECOND)]),
    wait(12 * HOUR),
  ],
  // Given back, a request does not count towards the day; on another day it cannot be given back to that one.
  [...settled(0), wait(61 * SECOND), ...settled(0), submit(0), wait(13 * HOUR), voided("refused"), submit(0)],
  // Gone three times, but not over a minute; then over a minute; a good answer in between begins anew.
  [
    submit(0),
    bound,
    said("gone"),
    said("gone"),
    said("gone"),
    wait(60 * SECOND),
    said("pending"),
    said("gone"),
  ],
  [
    submit(0),
    bound,
    said("gone"),
    wait(30 * SECOND),
    said("gone"),
    wait(30 * SECOND),
    said("gone"),
    said("failed"),
  ],
  [submit(0), bound, said("gone"), wait(60 * SECOND), said("gone"), said("gone"), said("completed")],
  // A hold that ended is bound late: without money uncollected, and then never refunded.
  [submit(0, 40), voided("refused"), submit(0, 40), submit(1, 40), { kind: "bind", request: 2, task: "own" }],
  [
    submit(2, 40),
    voided("refused"),
    submit(2, 40),
    { kind: "bind", request: 1, task: "own" },
    said("failed"),
  ],
  // The sweeper was there before the unsent VOID; the ADMIT comes last.
  [
    submit(0),
    wait(60 * SECOND),
    voided("due"),
    voided("unsent"),
    voided("unsent"),
    { kind: "admit", request: 0 },
  ],
  [{ kind: "plan", key: 0, price: 10 }, voided("unsent"), { kind: "admit", request: 0 }, submit(0), bound],
  // A customer's retries: in progress, another body, replayed; after a refusal the key is free.
  [
    admitted(0),
    admitted(0),
    bound,
    admitted(0),
    said("failed"),
    admitted(0),
    admitted(1),
    voided("refused"),
    admitted(1),
  ],
  // The clock steps back over all of the window, and over midnight.
  [
    ...[1, 2, 3, 4].flatMap(() => settled(0)),
    wait(-HOUR),
    submit(0),
    wait(HOUR),
    submit(0),
    wait(61 * SECOND),
    submit(0),
  ],
  [
    ...[1, 2, 3, 4, 5].flatMap(() => [wait(20 * SECOND), submit(1)]),
    wait(12 * HOUR),
    submit(1),
    wait(-HOUR),
    submit(1),
  ],
];

/** Played in every run. */
export const givenScenarios: Scenario[] = RARE_TURNS.map((commands, at) => ({
  onePartition: at % 2 === 0,
  commands,
}));
