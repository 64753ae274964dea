import { type Command, DAY, HOUR, type RequestCommand, type Scenario, SECOND } from "./commands.ts";
import type { ReportedStatus, VoidReason } from "./model.ts";

const submit = (key: number, price = 10): RequestCommand => ({ kind: "submit", key, price });
const voidedAt = (request: number, reason: VoidReason): Command => ({ kind: "void", request, reason });
const voided = (reason: VoidReason): Command => voidedAt(0, reason);
const wait = (byMs: number): Command => ({ kind: "time", byMs });
const unknown = (request: number): Command => ({ kind: "unclear", request, outcome: "unclear" });
const bound: Command = { kind: "bind", request: 0, task: "own" };
const observed = (request: number, status: ReportedStatus): RequestCommand => ({
  kind: "observe",
  request,
  tasks: true,
  status,
  refundFailed: true,
  poller: 0,
});
const reported = (status: ReportedStatus): Command => observed(0, status);
const planned: Command = { kind: "plan", key: 0, price: 10 };
const collect: Command = { kind: "collect", key: 0, retentionMs: 0 };
const together = (commands: RequestCommand[], spoilt?: number): Command => ({
  kind: "together",
  commands,
  spoilt,
});
const refundOf = (request: number, reference: number, lost = false): Command => ({
  kind: "refund",
  request,
  tasks: false,
  reference,
  lost,
});
const reclaim: Command = { kind: "reclaim", request: 0, tasks: true };
const refund = (reference: number): Command => refundOf(0, reference);
const lostRefund = (reference: number): Command => refundOf(0, reference, true);
const settled = (key: number): Command[] => [submit(key), voided("refused")];
const completed = (key: number): Command[] => [submit(key), bound, reported("completed"), wait(61 * SECOND)];
const admitted = (idempotency: number): RequestCommand => ({
  kind: "submit",
  key: 0,
  price: 10,
  idempotency: { key: idempotency, body: 0 },
});

/** As `submit`, but its record is kept for longer than an Idempotency-Key is. */
const keptLong = (one: RequestCommand): RequestCommand =>
  ({ ...one, retentionMs: 7 * 24 * HOUR }) as RequestCommand;

/** Nobody learns how it ended, and its hold is void. */
const lost = (one: RequestCommand): Command[] => [keptLong(one), wait(60 * SECOND), voided("due")];
const bindOf = (request: number): Command => ({ kind: "bind", request, task: "own" });
/** The clock is ahead until every Idempotency-Key that can expire has. */
const keysExpire: Command[] = [wait(8 * DAY), { kind: "credits", key: 0 }, wait(-8 * DAY)];

/** Limits that refuse nothing. */
const ROOMY: Command = { kind: "limits", key: 0, rate_limit: 99, max_concurrent: 99, daily_limit: 99 };

/** Two keys of one account with room for everything, so that only limits of the account refuse. */
const SPACIOUS: Command[] = [
  { kind: "limits", key: 0, rate_limit: 99, max_concurrent: 99, daily_limit: 99 },
  { kind: "limits", key: 1, rate_limit: 99, max_concurrent: 99, daily_limit: 99 },
  { kind: "recharge", key: 0, amount: 1000, reference: 9 },
];

/** Rare turns that chance alone may miss in a short run. */
const RARE_COMMANDS: Command[][] = [
  // The day is used up, minutes apart; the next day it is open.
  [
    ...[1, 2, 3, 4, 5, 6].flatMap(() => [submit(0), bound, reported("completed"), wait(61 * SECOND)]),
    wait(12 * HOUR),
    submit(0),
  ],
  // Given back, a request does not count towards the day; on another day it cannot be given back to that one.
  [...settled(0), wait(61 * SECOND), ...settled(0), submit(0), wait(13 * HOUR), voided("refused"), submit(0)],
  // Gone three times, but not over a minute; then over a minute; a good answer in between begins anew.
  [
    submit(0),
    bound,
    reported("gone"),
    reported("gone"),
    reported("gone"),
    wait(60 * SECOND),
    reported("pending"),
    reported("gone"),
  ],
  [
    submit(0),
    bound,
    reported("gone"),
    wait(30 * SECOND),
    reported("gone"),
    wait(30 * SECOND),
    reported("gone"),
    reported("failed"),
  ],
  [
    submit(0),
    bound,
    reported("gone"),
    wait(60 * SECOND),
    reported("gone"),
    reported("gone"),
    reported("completed"),
  ],
  // A hold that ended is bound late: without money uncollected, and then never refunded.
  [submit(0, 40), voided("refused"), submit(0, 40), submit(1, 40), { kind: "bind", request: 2, task: "own" }],
  [
    submit(2, 40),
    voided("refused"),
    submit(2, 40),
    { kind: "bind", request: 1, task: "own" },
    reported("failed"),
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
  [planned, voided("unsent"), { kind: "admit", request: 0 }, submit(0), bound],
  // A task that ended as too old has completed: charged again once, and not what the upstream or nobody had ended.
  [
    submit(0),
    bound,
    reported("expired"),
    reclaim,
    reclaim,
    refund(0),
    reported("completed"),
    wait(61 * SECOND),
    submit(0),
  ],
  [submit(0), bound, reported("failed"), reclaim],
  [submit(0), bound, reclaim, reported("completed"), reclaim],
  [submit(0), reclaim, voided("refused"), reclaim],
  // Without the credits it stays as it is, also if only a hold takes them; with them again it is charged.
  [
    submit(2, 40),
    bound,
    reported("expired"),
    submit(2, 40),
    submit(2, 20),
    { ...reclaim, request: 2 },
    voided("refused"),
    { ...reclaim, request: 1 },
    { ...reclaim, request: 2 },
  ],
  // A task that was not refunded costs nothing again, and one that was not charged stays so.
  [submit(0), bound, { ...observed(0, "expired"), refundFailed: false } as Command, reclaim, refund(0)],
  [
    submit(0, 40),
    voided("refused"),
    submit(0, 40),
    submit(1, 40),
    { kind: "bind", request: 2, task: "own" },
    { ...observed(2, "expired") } as Command,
    { ...reclaim, request: 2 },
  ],
  // Another request's BIND disputes the task.
  [
    submit(0),
    bound,
    reported("expired"),
    submit(1),
    { kind: "bind", request: 0, task: "another's" },
    { ...reclaim, request: 1 },
  ],
  // An operator refunded the charge that the store had lost.
  [planned, lostRefund(0), { kind: "admit", request: 0 }, bound, reported("expired"), reclaim],
  // Its record is kept for twice as long, from its last end on.
  [
    { ...submit(0), retentionMs: DAY } as RequestCommand,
    bound,
    reported("expired"),
    wait(30 * HOUR),
    collect,
    reclaim,
    wait(30 * HOUR),
    collect,
    wait(30 * HOUR),
    collect,
    reclaim,
  ],
  // A customer's retries: in progress, another body, replayed; after a refusal the key is free.
  [
    admitted(0),
    admitted(0),
    { kind: "bind", request: 1, task: "own" },
    admitted(0),
    { kind: "submit", key: 0, price: 10, idempotency: { key: 0, body: 1 } },
    reported("failed"),
    admitted(0),
    admitted(1),
    voided("refused"),
    admitted(1),
  ],
  // One Idempotency-Key: the first request's BIND comes when its retry is held, then charged, then after it was refused.
  [
    keptLong(admitted(0)),
    wait(60 * SECOND),
    voided("due"),
    admitted(0),
    { kind: "bind", request: 1, task: "own" },
    bound,
    admitted(0),
  ],
  [
    keptLong(admitted(0)),
    wait(60 * SECOND),
    voided("due"),
    admitted(0),
    bound,
    { kind: "bind", request: 1, task: "own" },
  ],
  [
    keptLong(admitted(0)),
    wait(60 * SECOND),
    voided("due"),
    admitted(0),
    voided("refused"),
    admitted(0),
    bound,
    { kind: "bind", request: 2, task: "own" },
  ],
  [keptLong(admitted(0)), voided("refused"), admitted(0), bound],
  // As before, and the Idempotency-Key has expired early when the first one's BIND comes; a later repeat has it, or had it.
  [...lost(admitted(0)), admitted(0), bound, ...keysExpire, bindOf(1), bindOf(1), admitted(0)],
  [...lost(admitted(0)), admitted(0), bound, ...keysExpire, ...lost(admitted(0)), bindOf(2), bindOf(0)],
  [keptLong(admitted(0)), voided("released"), admitted(0), bound, ...keysExpire, bindOf(1)],
  // No repeat was charged: a BIND is charged days later, and of two only one.
  [...lost(admitted(0)), wait(3 * DAY), bindOf(0)],
  [...lost(admitted(0)), ...lost(admitted(0)), wait(30 * HOUR), bindOf(1), wait(25 * HOUR), bindOf(0)],
  // An Idempotency-Key does not expire while its request is held.
  [...lost(admitted(0)), keptLong(admitted(0)), wait(8 * DAY), admitted(0), bindOf(1), admitted(0)],
  // Late on the day of its admission, it counts there; on another day it does not.
  [...settled(0), bound, reported("completed"), ...[1, 2, 3, 4].flatMap(() => completed(0)), submit(0)],
  [
    ...settled(0),
    wait(13 * HOUR),
    ...completed(0),
    { kind: "bind", request: 1, task: "own" },
    ...[1, 2, 3, 4].flatMap(() => completed(0)),
    submit(0),
  ],
  // Nobody knows how the first ended; then it is bound, or its hold ends.
  [
    keptLong(admitted(0)),
    { kind: "unclear", request: 0, outcome: "timed_out" },
    admitted(0),
    wait(60 * SECOND),
    { kind: "void", request: 1, reason: "due" },
    admitted(0),
    admitted(0),
  ],
  [
    admitted(0),
    { kind: "unclear", request: 0, outcome: "unclear" },
    bound,
    { kind: "unclear", request: 0, outcome: "unclear" },
    admitted(0),
  ],
  // A sweeper that is early, as it may be by its own clock.
  [submit(0), voided("due"), wait(HOUR), voided("due")],
  // Too many unknown outcomes: no further request until enough of them are due, are void earlier, or get their task.
  ...[
    [wait(41 * SECOND), submit(0), wait(10 * SECOND)],
    [voidedAt(2, "released"), voidedAt(1, "released")],
    [bindOf(2), bindOf(1)],
  ].map((end) => [
    ...SPACIOUS,
    submit(0),
    wait(10 * SECOND),
    submit(1),
    wait(10 * SECOND),
    submit(0),
    ...[2, 1, 0, 0].map(unknown),
    ...end,
    submit(0),
    unknown(0),
    submit(1),
  ]),
  // One, then all of the slots of a key or of an account have an unknown outcome; then the first hold is due and void.
  ...[
    [ROOMY, { ...ROOMY, max_concurrent: 2 } as Command],
    [...SPACIOUS, { kind: "account limits", key: 0, max_concurrent: 2 } as Command],
  ].map((limited) => [
    ...limited,
    submit(0),
    wait(10 * SECOND),
    submit(0),
    unknown(0),
    submit(0),
    unknown(2),
    voidedAt(1, "released"),
    submit(0),
    unknown(0),
    submit(0),
    wait(60 * SECOND),
    submit(0),
  ]),
  // The record of a refused request is deleted after minutes, though it was admitted for longer; that of an unknown outcome is not.
  ...(["refused", "unsent", "due", "released"] as const).map((reason) => [
    keptLong(submit(0)),
    wait(60 * SECOND),
    voided(reason),
    collect,
    wait(599 * SECOND),
    collect,
    wait(SECOND),
    collect,
  ]),
  // The upstream gives a task id twice: to another account while it runs and after its end, to the same account.
  [
    submit(0),
    bound,
    reported("processing"),
    submit(2),
    { kind: "bind", request: 0, task: "another's" },
    observed(0, "completed"),
    observed(0, "expired"),
    observed(0, "failed"),
    observed(0, "completed"),
    { kind: "bind", request: 1, task: "own" },
  ],
  [
    submit(0),
    bound,
    reported("completed"),
    submit(2),
    { kind: "bind", request: 0, task: "another's" },
    wait(SECOND),
    observed(0, "completed"),
    { kind: "inspect", key: 0, request: 0, tasks: true, cacheMs: 5000 },
  ],
  [
    submit(0),
    bound,
    submit(0),
    { kind: "bind", request: 0, task: "another's" },
    wait(SECOND),
    reported("completed"),
    reported("completed"),
  ],
  [
    submit(0),
    bound,
    reported("completed"),
    submit(0),
    { kind: "bind", request: 0, task: "another's" },
    wait(SECOND),
    observed(0, "completed"),
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
  // A task given back on the next day is not taken off that day.
  [
    submit(0),
    wait(13 * HOUR),
    submit(0),
    { kind: "void", request: 1, reason: "refused" },
    { kind: "limits", key: 0, rate_limit: 5, max_concurrent: 4, daily_limit: 1 },
    submit(0),
  ],
  // A lowered limit says when one more fits, not when the first of many leaves.
  [
    ...[1, 2, 3].flatMap(() => [submit(0), wait(SECOND)]),
    { kind: "limits", key: 0, rate_limit: 2, max_concurrent: 4, daily_limit: 9 },
    submit(0),
  ],
  // One entry has left a window, several have not: the oldest of those says when the next one leaves.
  [
    ...[20, 10, 10, 20].flatMap((seconds) => [...settled(0), wait(seconds * SECOND)]),
    { kind: "inspect", key: 0, tasks: false, cacheMs: 0 },
  ],
  // The youngest of three entries is exactly 60 s old, and has left too.
  [
    ...[1, 2, 3].flatMap(() => [...settled(0), wait(SECOND)]),
    wait(59 * SECOND),
    { kind: "inspect", key: 0, tasks: false, cacheMs: 0 },
  ],
  // Window and slots are both full: the window refuses.
  [...settled(0), submit(0), submit(0), submit(0), submit(0)],
  // The day is used up and the clock steps back: midnight is farther away than the key's clock says.
  [
    ...[1, 2, 3, 4, 5].flatMap(() => [submit(0), bound, reported("completed"), wait(61 * SECOND)]),
    wait(-62 * SECOND),
    submit(0),
  ],
  // The last ms of a key and of an ADMIT on its way.
  [{ kind: "end key", key: 0, how: "expires" }, wait(30 * SECOND - 1), submit(0), wait(1), submit(0)],
  [planned, wait(10 * SECOND), { kind: "admit", request: 0 }],
  [planned, wait(10 * SECOND + 1), { kind: "admit", request: 0 }],
  // More transactions than are listed, and credits that a refund could lift beyond the exact integers.
  [...[1, 2, 3, 4, 5, 6].flatMap(() => [submit(2), bound, reported("failed")]), { kind: "credits", key: 2 }],
  [submit(0, 40), bound, { kind: "recharge", key: 0, amount: Number.MAX_SAFE_INTEGER - 80, reference: 0 }],
  // A key that asks less often than once a minute keeps one entry, not all it ever had.
  [1, 2, 3, 4, 5, 6].flatMap(() => [...settled(0), wait(61 * SECOND)]),
  // An ADMIT comes again after its key was revoked.
  [
    submit(0),
    planned,
    { kind: "end key", key: 0, how: "revoked" },
    { kind: "admit", request: 0 },
    { kind: "admit", request: 1 },
  ],
  // An account is suspended, closed and active again: new requests are refused, what is in flight goes on.
  ...(["suspended", "closed"] as const).map((status): Command[] => [
    admitted(0),
    planned,
    submit(0),
    { kind: "status", key: 1, status },
    submit(0),
    admitted(0),
    { kind: "admit", request: 2 },
    { kind: "admit", request: 3 },
    { kind: "inspect", key: 0, tasks: false, cacheMs: 0 },
    { kind: "bind", request: 2, task: "own" },
    { kind: "inspect", key: 0, request: 0, tasks: true, cacheMs: 0 },
    { kind: "inspect", key: 0, request: 1, tasks: false, cacheMs: 0 },
    { kind: "credits", key: 0 },
    reported("failed"),
    { kind: "inspect", key: 2, tasks: false, cacheMs: 0 },
    { kind: "status", key: 0, status: "active" },
    submit(0),
    admitted(0),
  ]),
  // Limits of an account over its two keys: window, day and slots are those of both, and refuse in this order.
  [
    ...SPACIOUS,
    { kind: "account limits", key: 0, rate_limit: 3, max_concurrent: 2, daily_limit: 5 },
    submit(0),
    submit(1),
    submit(0),
    bound,
    reported("completed"),
    submit(1),
    submit(1),
    wait(61 * SECOND),
    ...[submit(0), bound, reported("completed"), submit(1), bound, reported("failed"), submit(0)],
    { kind: "credits", key: 1 },
    wait(61 * SECOND),
    submit(1),
    { kind: "credits", key: 1 },
    wait(12 * HOUR),
    { kind: "inspect", key: 1, tasks: false, cacheMs: 0 },
    submit(1),
    submit(0),
  ],
  // A refused request frees the account's slot and its day, but not its window; one that was not sent frees that too.
  ...(["refused", "unsent"] as const).map((reason): Command[] => [
    ...SPACIOUS,
    { kind: "account limits", key: 0, rate_limit: 2, max_concurrent: 1, daily_limit: 2 },
    ...[submit(1), voided(reason), submit(0), voided(reason), submit(1)],
    wait(61 * SECOND),
    ...[submit(1), submit(0)],
    wait(60 * SECOND),
    ...[voided("due"), submit(0), voided("unsent"), voided("unsent"), submit(1), submit(0)],
  ]),
  // It takes back its window entry although its hold had ended before.
  [
    ...SPACIOUS,
    { kind: "account limits", key: 0, rate_limit: 1 },
    { ...submit(1), retentionMs: DAY } as RequestCommand,
    wait(59 * SECOND),
    voided("released"),
    submit(0),
    voided("unsent"),
    { kind: "void", request: 1, reason: "unsent" },
    { kind: "void", request: 1, reason: "unsent" },
    submit(0),
    submit(0),
  ],
  // Limits are set while tasks are open, in both keys: they count. Removed, they count for nothing, and set again they begin anew:
  // what was admitted under the first ones gives nothing back to the second.
  [
    ...SPACIOUS,
    ...[submit(0), submit(1), submit(1), bound],
    { kind: "account limits", key: 1, max_concurrent: 4, daily_limit: 3, rate_limit: 9 },
    ...[submit(0), submit(1)],
    reported("completed"),
    { kind: "account limits", key: 1 },
    ...[submit(0), submit(1)],
    { kind: "account limits", key: 1, daily_limit: 2, rate_limit: 2 },
    ...[submit(0), { kind: "void", request: 4, reason: "unsent" } as Command, submit(0), submit(1)],
    { kind: "account limits", key: 1, daily_limit: 2, max_concurrent: 9 },
    submit(1),
    { kind: "account limits", key: 1, max_concurrent: 9 },
    submit(1),
  ],
  // A late one takes a slot of its account again, above its limit, and counts in its day, but not in another one.
  [
    ...SPACIOUS,
    { kind: "account limits", key: 0, max_concurrent: 1, daily_limit: 3 },
    ...lost(submit(0)),
    submit(1),
    bindOf(1),
    { kind: "inspect", key: 0, tasks: false, cacheMs: 0 },
    reported("completed"),
    bindOf(0),
    reported("completed"),
    submit(0),
    voided("refused"),
    submit(0),
    submit(1),
    { kind: "credits", key: 0 },
  ],
  [
    ...SPACIOUS,
    { kind: "account limits", key: 0, daily_limit: 3 },
    ...lost(submit(0)),
    wait(12 * HOUR),
    submit(1),
    bindOf(1),
    ...[submit(0), submit(1), submit(0)],
  ],
  // Two at the same moment, and one of them was not sent.
  [
    ...SPACIOUS,
    { kind: "account limits", key: 0, rate_limit: 2 },
    ...[submit(0), submit(1), voided("unsent"), submit(0), submit(1)],
  ],
  // A limit that is changed begins nothing anew.
  [
    ...SPACIOUS,
    { kind: "account limits", key: 0, rate_limit: 1 },
    submit(0),
    { kind: "account limits", key: 0, rate_limit: 1, daily_limit: 1 },
    submit(1),
    voided("unsent"),
    { kind: "void", request: 1, reason: "unsent" },
    ...[submit(1), submit(0)],
  ],
  // The lower limit of a day leaves more.
  [
    ...SPACIOUS,
    { kind: "limits", key: 0, rate_limit: 99, max_concurrent: 99, daily_limit: 3 },
    ...[submit(0), submit(0)],
    { kind: "account limits", key: 0, daily_limit: 2 },
    { kind: "credits", key: 0 },
    { kind: "credits", key: 1 },
  ],
  // A hold of the day before is given back to no day.
  [
    ...SPACIOUS,
    { kind: "account limits", key: 0, daily_limit: 2 },
    { ...submit(0), retentionMs: DAY } as RequestCommand,
    wait(13 * HOUR),
    submit(1),
    { kind: "void", request: 1, reason: "refused" },
    submit(1),
    submit(0),
  ],
  // The account's clock does not go back either; a request without a record takes a slot.
  [
    ...SPACIOUS,
    { kind: "account limits", key: 0, rate_limit: 1, daily_limit: 2, max_concurrent: 2 },
    wait(12 * HOUR),
    submit(0),
    wait(-HOUR),
    submit(1),
    wait(HOUR + 61 * SECOND),
    ...[submit(1), planned, bound, submit(1), submit(0)],
  ],
  // Over midnight and back: a key that never saw the next day finds the account's day used up all the same.
  [
    ...SPACIOUS,
    { kind: "account limits", key: 0, daily_limit: 1 },
    wait(12 * HOUR),
    submit(0),
    wait(-HOUR),
    submit(1),
  ],
  // After the account's limit was lowered, the wait is until one more fits. Several have left the window.
  [
    ...SPACIOUS,
    { kind: "account limits", key: 0, rate_limit: 9 },
    ...[20, 10, 10, 5].flatMap((seconds, at) => [...settled(at % 2), wait(seconds * SECOND)]),
    { kind: "account limits", key: 0, rate_limit: 2 },
    submit(0),
    wait(30 * SECOND),
    submit(0),
    { kind: "account limits", key: 0, rate_limit: 0 },
    submit(0),
  ],
  // A cap: what is held counts, a refusal, a refund and a hold that ended give room back, a late one takes it again.
  [
    ROOMY,
    { kind: "cap", key: 0, monthly_credits: 30 },
    submit(0, 20),
    submit(0, 20),
    submit(0),
    submit(0),
    voided("refused"),
    submit(0),
    bound,
    reported("failed"),
    submit(0, 20),
    submit(0),
    wait(61 * SECOND),
    voided("due"),
    submit(0, 20),
    submit(0),
    { kind: "bind", request: 1, task: "own" },
    voided("refused"),
    submit(0),
  ],
  // A late one without credits takes no room, nor does its end give any.
  [
    ...lost(submit(0, 40)),
    submit(1, 40),
    submit(0, 40),
    submit(0),
    { kind: "bind", request: 3, task: "own" },
    { kind: "observe", request: 3, tasks: false, status: "failed", refundFailed: true },
    { kind: "cap", key: 0, monthly_credits: 80 },
    submit(0),
  ],
  // The next month has a cap of its own. What was admitted in the month before gives it no room: a hold, a task; nor does a
  // late one take any.
  [
    ROOMY,
    { kind: "cap", key: 0, monthly_credits: 40 },
    { ...submit(0, 20), retentionMs: 40 * DAY } as RequestCommand,
    { ...submit(0, 20), retentionMs: 40 * DAY } as RequestCommand,
    bound,
    submit(0),
    wait(27 * DAY),
    submit(0, 20),
    reported("failed"),
    { kind: "void", request: 3, reason: "due" },
    submit(0, 20),
    submit(0),
    { kind: "bind", request: 5, task: "own" },
    submit(0),
    wait(-27 * DAY),
    submit(0),
  ],
  // A request without a record is charged in the month in which its gateway had it admitted, also where that is a later one.
  [
    ROOMY,
    { kind: "cap", key: 0, monthly_credits: 40 },
    submit(0, 20),
    planned,
    bound,
    submit(0),
    submit(0),
    wait(27 * DAY),
    planned,
    bound,
    wait(-27 * DAY),
    submit(0, 40),
    submit(0, 20),
    { kind: "observe", request: 2, tasks: true, status: "failed", refundFailed: true },
    submit(0),
    submit(0),
  ],
  // The last day of May, and the first one of June.
  [
    { kind: "cap", key: 0, monthly_credits: 10 },
    submit(0),
    wait(25 * DAY),
    submit(0),
    wait(DAY),
    submit(0),
    submit(0),
    wait(-DAY),
    submit(0),
  ],
  // A cap that is set in mid-month counts what was spent before; one that is removed refuses nothing.
  [
    submit(0, 20),
    bound,
    { kind: "cap", key: 0, monthly_credits: 20 },
    submit(0),
    { kind: "cap", key: 0, monthly_credits: undefined },
    submit(0),
  ],
  // Corrected by hand: never below what is held, once per reference, which stands for one thing.
  [
    submit(0, 40),
    ...[-70, -60, -60, 10].map((amount): Command => ({ kind: "adjust", key: 0, amount, reference: 1 })),
    { kind: "recharge", key: 0, amount: 10, reference: 1 },
    { kind: "adjust", key: 0, amount: 5, reference: 2 },
    { kind: "adjust", key: 0, amount: 1, reference: 3 },
    submit(0, 10),
    { kind: "credits", key: 0 },
  ],
  // Taken back: what is left of a grant, never what is held, once per reference; a closed account gets nothing, and gives.
  [
    { kind: "recharge", key: 0, amount: 30, reference: 1, as: "trial" },
    { kind: "recharge", key: 0, amount: 10, reference: 2, as: "goodwill" },
    submit(0, 40),
    ...[20, 20, 21].map((amount): Command => ({ kind: "reverse", key: 0, of: 1, amount, reference: 5 })),
    { kind: "reverse", key: 0, of: 1, amount: undefined, reference: 6 },
    { kind: "reverse", key: 0, of: 1, amount: undefined, reference: 7 },
    { kind: "reverse", key: 0, of: 5, amount: undefined, reference: 7 },
    bound,
    reported("failed"),
    { kind: "status", key: 0, status: "closed" },
    { kind: "recharge", key: 0, amount: 10, reference: 3 },
    { kind: "reverse", key: 0, of: 2, amount: 100, reference: 8 },
    { kind: "credits", key: 0 },
  ],
  // Refunded by hand, once: not while it runs, not if the end of its task refunded it; it has room under its cap again.
  [
    { kind: "cap", key: 0, monthly_credits: 20 },
    submit(0, 20),
    refund(1),
    bound,
    refund(1),
    reported("completed"),
    submit(0),
    refundOf(1, 1),
    refundOf(1, 1),
    refundOf(1, 2),
    submit(0),
    { kind: "credits", key: 0 },
  ],
  [submit(0), bound, reported("completed"), refund(1), collect, refund(2)],
  [submit(0), bound, reported("failed"), refund(1), submit(0), voided("refused"), refund(2)],
  // The store has lost a charge that the archive has: refunded by hand, sent again, and its task fails.
  [planned, lostRefund(1), lostRefund(2), bound, reported("failed"), refund(3), { kind: "credits", key: 0 }],
  [planned, lostRefund(1), { kind: "admit", request: 0 }, bound, reported("expired"), lostRefund(2)],
  // One reference credits once; a revoked key is unknown from then on.
  [
    ...[10, 10, 20].map((amount): Command => ({ kind: "recharge", key: 0, amount, reference: 0 })),
    { kind: "end key", key: 0, how: "revoked" },
    submit(0),
    { kind: "credits", key: 0 },
    { kind: "inspect", key: 0, tasks: false, cacheMs: 0 },
  ],
  // Nothing of a request went upstream, as its gateway says once its hold is void and before it is collected: no BIND of it comes.
  [...lost(submit(0)), voided("unsent"), wait(8 * DAY), collect, bound],
  // The clock is ahead beyond the retention, what has ended is collected, the clock is put back, and a BIND comes again.
  [keptLong(submit(0)), bound, reported("failed"), wait(8 * 24 * HOUR), collect, wait(-8 * 24 * HOUR), bound],
  // A request without a record is charged if its account has forgotten only earlier ones; collected in its turn, it is not
  // charged again. One of the very time of the latest that is forgotten may be that one.
  [
    submit(0),
    bound,
    reported("completed"),
    collect,
    wait(60 * SECOND),
    planned,
    bound,
    wait(1),
    planned,
    bound,
    reported("completed"),
    collect,
    bound,
  ],
  // Requests are collected in the order of their ends, not of their admissions.
  [
    submit(0),
    wait(SECOND),
    submit(0),
    together([
      { kind: "bind", request: 0, task: "own" },
      { kind: "bind", request: 1, task: "own" },
    ]),
    reported("completed"),
    collect,
    { kind: "bind", request: 1, task: "own" },
    observed(1, "completed"),
    collect,
    bound,
  ],
  // In one call: more than a limit allows, other keys beside it, and one item that fails; then all that settles them.
  [
    together([submit(0), submit(1), submit(0), submit(0, 20), submit(0), submit(0)], 1),
    together(
      [4, 3, 2, 1, 0].map((request): RequestCommand => ({ kind: "bind", request, task: "own" })),
      0,
    ),
    together(
      [
        { kind: "void", request: 5, reason: "refused" },
        { kind: "void", request: 0, reason: "refused" },
      ],
      2,
    ),
    together(
      ["processing", "failed", "completed"].map((status, request) =>
        observed(request, status as ReportedStatus),
      ),
      1,
    ),
    together(
      [0, 1, 2].map(
        (key): RequestCommand => ({ kind: "inspect", key, request: key, tasks: true, cacheMs: 5000 }),
      ),
      3,
    ),
  ],
  // One item takes the last slot, the last credits or an Idempotency-Key from the next.
  [together([submit(2, 40), submit(2, 40), admitted(0), admitted(0), submit(1, 40), submit(1, 40)])],
  // Limits in shadow mode: noted alone and together, while slots and credits still refuse.
  [
    ...[1, 2, 3, 4].flatMap(() => [submit(3), bound, reported("completed")]),
    wait(61 * SECOND),
    ...[1, 2, 3, 4].map(() => submit(3)),
    submit(3, 40),
  ],
  // A collected record is gone.
  [
    submit(0),
    bound,
    reported("completed"),
    collect,
    { kind: "inspect", key: 0, request: 0, tasks: true, cacheMs: 0 },
  ],
  // A BIND of a request without a record takes its Idempotency-Key only if it is charged; only then the record has a digest.
  [
    ...[40, 20].map((price): Command => ({ ...admitted(0), kind: "submit", key: 2, price }) as Command),
    bound,
    { ...admitted(1), kind: "plan", key: 0, price: 10 } as Command,
    bound,
    wait(HOUR),
    ...[0, 2].map((key): Command => ({ kind: "lease", key, list: "polls", most: 4 })),
  ],
  // A poll of a task that was collected meanwhile, and whose id is another account's by now.
  [
    submit(0),
    submit(0),
    { kind: "bind", request: 0, task: "another's" },
    reported("completed"),
    collect,
    submit(2),
    { kind: "bind", request: 0, task: "another's" },
    reported("completed"),
    observed(1, "completed"),
  ],
];

/** Played in every run, with the accounts in one partition and in two: some mistakes show in one of these alone. */
export const rareScenarios: Scenario[] = RARE_COMMANDS.flatMap((commands) => [
  { onePartition: true, commands },
  { onePartition: false, commands },
]);
