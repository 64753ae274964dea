import fc from "fast-check";
import { GRANT_KINDS, type GrantKind } from "../../src/records/ledger-entries.ts";
import type { ReportedStatus, VoidReason } from "./model.ts";

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
export type RequestCommand =
  | ({ kind: "submit" } & Asked)
  | { kind: "admit"; request: number }
  /** `sent`: only of requests that the upstream may have made a task for. */
  | { kind: "bind"; request: number; task: "own" | "another's"; sent?: true }
  | { kind: "unclear"; request: number; outcome: "unclear" | "timed_out" }
  | { kind: "void"; request: number; reason: VoidReason }
  | {
      kind: "observe";
      request: number;
      tasks: boolean;
      status: ReportedStatus;
      refundFailed: boolean;
      poller?: number | undefined;
    }
  | { kind: "inspect"; key: number; request?: number | undefined; tasks: boolean; cacheMs: number };

/** One step of a sequence. */
export type Command =
  | RequestCommand
  /** Items of one script in one call; at `spoilt` stands one more, whose names are of another type. */
  | { kind: "together"; commands: RequestCommand[]; spoilt?: number | undefined }
  | ({ kind: "plan" } & Asked)
  | { kind: "recharge"; key: number; amount: number; reference: number; as?: GrantKind }
  /** Of a reference that may stand for a grant. */
  | { kind: "reverse"; key: number; of: number; amount: number | undefined; reference: number }
  | { kind: "adjust"; key: number; amount: number; reference: number }
  /** By an operator. `lost`: if the store does not know the request, it has lost its charge, which the archive has. */
  | { kind: "refund"; request: number; tasks: boolean; reference: number; lost: boolean }
  /** A callback comes about a task that has ended, and it has completed. */
  | { kind: "reclaim"; request: number; tasks: boolean }
  | { kind: "credits"; key: number }
  | { kind: "lease"; key: number; list: "holds" | "polls"; most: number }
  /** `retentionMs` is that of the gateway that collects, which must not matter. */
  | { kind: "collect"; key: number; retentionMs: number }
  | { kind: "time"; byMs: number }
  | { kind: "limits"; key: number; rate_limit: number; max_concurrent: number; daily_limit: number }
  | { kind: "status"; key: number; status: "active" | "suspended" | "closed" }
  | { kind: "cap"; key: number; monthly_credits: number | undefined }
  /** Over all keys of the key's account; none of them removes all. */
  | {
      kind: "account limits";
      key: number;
      rate_limit?: number | undefined;
      max_concurrent?: number | undefined;
      daily_limit?: number | undefined;
    }
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
const kind = <K extends string>(name: K) => fc.constant(name);
export const SECOND = 1000;
export const HOUR = 3_600 * SECOND;
export const DAY = 24 * HOUR;

const submitted = { key, price: fc.constantFrom(10, 20, 40) };
const idempotency = fc.record({ key: fc.nat(2), body: fc.nat(1) });
/** A retention of an hour is the shortest that a gateway takes; without an Idempotency-Key an extreme one tells more. */
function requestCommand<K extends "submit" | "plan">(name: K) {
  const once = { ...submitted, retentionMs: fc.constantFrom(0, 70 * SECOND, 7 * DAY) };
  const keyed = { ...submitted, retentionMs: fc.constantFrom(2 * HOUR, 7 * DAY), idempotency };
  return fc.oneof(
    { weight: 1, arbitrary: fc.record({ kind: kind(name), ...once }) },
    { weight: 2, arbitrary: fc.record({ kind: kind(name), ...keyed }) },
  );
}

const submit = requestCommand("submit");
const admit = fc.record({ kind: kind("admit"), request });
const bind = fc.record({
  kind: kind("bind"),
  request,
  task: fc.constantFrom("own" as const, "own" as const, "own" as const, "another's" as const),
});
const voiding = fc.record({
  kind: kind("void"),
  request,
  reason: fc.constantFrom<VoidReason[]>("refused", "due", "unsent", "released"),
});
const unclear = fc.record({
  kind: kind("unclear"),
  request,
  outcome: fc.constantFrom("unclear" as const, "timed_out" as const),
});
const statuses: ReportedStatus[] = [
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
  status: fc.constantFrom(...statuses),
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
const collect = fc.record({ kind: kind("collect"), key, retentionMs: fc.constantFrom(0, 7 * DAY) });
const severalOf = (one: fc.Arbitrary<RequestCommand>) =>
  fc.array(one, { minLength: 2, maxLength: 6, size: "max" });

const time = (byMs: number): Command => ({ kind: "time", byMs });

/** The clock is ahead for a while. What has expired by then is gone, also when the clock is put back. */
const aheadWith = (meanwhile: fc.Arbitrary<Command>): fc.Arbitrary<Command[]> =>
  fc
    .tuple(
      fc.constantFrom(HOUR, 25 * HOUR, 8 * DAY, 27 * DAY),
      fc.array(meanwhile, { minLength: 1, maxLength: 3, size: "max" }),
    )
    .map(([byMs, commands]) => [time(byMs), ...commands, time(-byMs)]);

const command: fc.Arbitrary<Command> = fc.oneof(
  { weight: 24, arbitrary: submit },
  { weight: 4, arbitrary: requestCommand("plan") },
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
      reference: fc.nat(4),
      as: fc.constantFrom(...GRANT_KINDS),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: kind("reverse"),
      key,
      of: fc.nat(4),
      amount: fc.constantFrom(undefined, undefined, 1, 15),
      reference: fc.nat(9),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: kind("adjust"),
      key,
      amount: fc.constantFrom(10, -10, -30, Number.MAX_SAFE_INTEGER),
      reference: fc.nat(9),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: kind("refund"),
      request,
      tasks,
      reference: fc.nat(9),
      lost: fc.boolean(),
    }),
  },
  { weight: 5, arbitrary: fc.record({ kind: kind("reclaim"), request, tasks: fc.constant(true) }) },
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
  { weight: 1, arbitrary: collect },
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
      rate_limit: fc.nat(5),
      max_concurrent: fc.nat(4),
      daily_limit: fc.nat(9),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: kind("status"),
      key,
      status: fc.constantFrom("active" as const, "active" as const, "suspended" as const, "closed" as const),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: kind("cap"),
      key,
      monthly_credits: fc.constantFrom(undefined, 0, 20, 40, 60),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: kind("account limits"),
      key,
      rate_limit: fc.option(fc.nat(6), { nil: undefined }),
      max_concurrent: fc.option(fc.nat(5), { nil: undefined }),
      daily_limit: fc.option(fc.nat(9), { nil: undefined }),
    }),
  },
  { weight: 1, arbitrary: key.map((key): Command => ({ kind: "account limits", key })) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: kind("end key"),
      key,
      how: fc.constantFrom("revoked" as const, "expires" as const),
    }),
  },
);

/** Everything, with the clock ahead for a while now and then. */
const anything: fc.Arbitrary<Command[]> = fc
  .array(
    fc.oneof(
      { weight: 40, arbitrary: command.map((one) => [one]) },
      { weight: 1, arbitrary: aheadWith(command) },
    ),
    { minLength: 40, maxLength: 60, size: "max" },
  )
  .map((parts) => parts.flat());

/** Limits and credits that refuse nothing. */
const PLENTY: Command[] = [
  { kind: "limits", key: 0, rate_limit: 1000, max_concurrent: 1000, daily_limit: 1000 },
  { kind: "recharge", key: 0, amount: 1000, reference: 0 },
];

const some = fc.nat(5);
const repeat = fc.constantFrom(2 * HOUR, 7 * DAY).map(
  (retentionMs): Command => ({
    kind: "submit",
    key: 0,
    price: 10,
    retentionMs,
    idempotency: { key: 0, body: 0 },
  }),
);
const bindSent = some.map((request): Command => ({ kind: "bind", request, task: "own", sent: true }));
const release = some.map((request): Command => ({ kind: "void", request, reason: "released" }));
const collectFirst = collect.map((one): Command => ({ ...one, key: 0 }));
const dueVoid = some.map((request): Command => ({ kind: "void", request, reason: "due" }));
const endSome = fc.record({
  kind: kind("observe"),
  request: some,
  tasks: fc.constant(true),
  status: fc.constantFrom<ReportedStatus[]>("completed", "failed"),
  refundFailed: fc.constant(true),
});

/**
 * Many requests with one Idempotency-Key, whose outcomes are mostly unknown at first, and whose BINDs come when the clock
 * has stepped by days, ahead and back.
 */
const oneKey: fc.Arbitrary<Command[]> = fc
  .array(
    fc.oneof(
      { weight: 6, arbitrary: repeat.map((one) => [one]) },
      { weight: 4, arbitrary: dueVoid.map((one) => [time(60 * SECOND), one]) },
      { weight: 2, arbitrary: release.map((one) => [one]) },
      { weight: 1, arbitrary: fc.constant<Command[]>([{ kind: "void", request: 0, reason: "refused" }]) },
      { weight: 5, arbitrary: bindSent.map((one) => [one]) },
      { weight: 2, arbitrary: endSome.map((one) => [one]) },
      {
        weight: 2,
        arbitrary: fc.constantFrom(HOUR, 25 * HOUR, -25 * HOUR, 8 * DAY).map((byMs) => [time(byMs)]),
      },
      { weight: 1, arbitrary: collectFirst.map((one) => [one]) },
      {
        weight: 4,
        arbitrary: aheadWith(fc.oneof(repeat, dueVoid, release, bindSent, endSome, collectFirst)),
      },
    ),
    { minLength: 12, maxLength: 30, size: "max" },
  )
  .map((parts) => [...PLENTY, ...parts.flat()]);

export const scenario: fc.Arbitrary<Scenario> = fc.record({
  onePartition: fc.boolean(),
  commands: fc.oneof({ weight: 3, arbitrary: anything }, { weight: 1, arbitrary: oneKey }),
});
