import type { TaskStatus } from "../../src/domain/answers.ts";
import type { ShadowLimit } from "../../src/domain/limits.ts";
import { monthOf } from "../../src/domain/moments.ts";
import { cliActor } from "../../src/records/actor.ts";
import type { GrantKind } from "../../src/records/ledger-entries.ts";
import type { Reply } from "../../src/scripts/script-definition.ts";
import { MAX_AGE_MS, UPSTREAM } from "../support/store.ts";
import {
  activeOf,
  block,
  clockOf,
  DAY_MS,
  forgottenAtMs,
  limitsOf,
  listedAtMs,
  type ModelAccount,
  type ModelIdempotency,
  type ModelKey,
  type ModelRequest,
  numbersOf,
  post,
  sharedOf,
  slotsOf,
  spendableOf,
  spentOf,
  storedSpent,
  unknownDuesOf,
  usable,
  usedToday,
  WINDOW_MS,
  type World,
  windowOf,
} from "./model-state.ts";

/** Three 404s over a minute; decision 0030. */
const GONE_COUNT = 3;
const GONE_MS = 60_000;
const HOUR_MS = 3_600_000;
const CREDITS_MAX = 2 ** 53 - 1;

/** May this generation run? In this order: a repeat, authentication, status, idempotency, window, day, slots, cap, credits; all or nothing. */
export function admit(world: World, request: ModelRequest, notAfterMs: number): Reply {
  const { key, generation } = request;
  const { nowMs } = world;
  const answer = (outcome: string, ...more: Reply): Reply => [outcome, ...numbersOf(world, key), ...more];
  if (request.state !== "unborn") return answer(request.state === "void" ? "void" : "admitted");
  if (!usable(world, key)) return ["unknown_key", ...numbersOf(world)];
  if (key.account.status) return answer("account_suspended", key.account.status);
  if (nowMs > notAfterMs) return answer("stale");

  const { idempotency, price, holdMs } = generation;
  const repeated = idempotency && repeat(world, idempotency);
  if (repeated) return answer(...repeated);

  const { blocked } = key.account;
  if (blocked && nowMs < blocked.untilMs) return answer("outcomes_unknown", blocked.untilMs - nowMs);

  const limits = limitsOf(world, key);
  const { shadow = [] } = world.tiers[key.tier] ?? world.tiers.standard ?? {};
  const noted: string[] = [];
  const refuses = (limit: ShadowLimit, letter: string): boolean => {
    if (shadow.includes(limit)) noted.push(letter);
    return !shadow.includes(limit);
  };
  const stamps = windowOf(world, key);
  if (stamps.length >= limits.rate_limit && refuses("rate_limit", "r")) {
    return answer("rate_limited", waitFor(stamps, limits.rate_limit, nowMs), "key");
  }
  const shared = sharedOf(world, key.account);
  if (shared && shared.stamps.length >= shared.rate_limit)
    return answer("rate_limited", waitFor(shared.stamps, shared.rate_limit, nowMs), "account");
  const day = Math.floor(clockOf(world, key) / DAY_MS);
  if (usedToday(world, key) >= limits.daily_limit && refuses("daily_limit", "d")) {
    const [limit, used] = [limits.daily_limit, usedToday(world, key)].map(String);
    return answer("daily_limited", (day + 1) * DAY_MS - nowMs, "key", limit!, used!);
  }
  if (shared && shared.dayCount >= shared.daily_limit) {
    const [limit, used] = [shared.daily_limit, shared.dayCount].map(String);
    return answer("daily_limited", (shared.day + 1) * DAY_MS - nowMs, "account", limit!, used!);
  }
  if (activeOf(world, key) >= limits.max_concurrent && refuses("max_concurrent", "c")) {
    return answer("concurrency_limited", "key", clearedInMs(world, key.account, slotsOf(world, key)));
  }
  if (shared && shared.slots.length >= shared.max_concurrent)
    return answer("concurrency_limited", "account", clearedInMs(world, key.account, shared.slots));
  const spent = spentOf(world, key).credits;
  if (key.monthly_credits !== undefined && spent + price > key.monthly_credits)
    return answer("spend_capped", String(key.monthly_credits), String(spent));
  const spendable = spendableOf(world, key.account);
  if (spendable < price) return answer("insufficient_credits", String(spendable));

  request.state = "held";
  request.admittedAtMs = nowMs;
  request.dueAtMs = nowMs + holdMs;
  request.sweepAtMs = request.dueAtMs;
  request.admission = { clockMs: clockOf(world, key), inWindow: true, counted: true };
  if (shared) {
    const { limitsTurn } = key.account;
    request.shared = { clockMs: shared.clockMs, inWindow: true, counted: true, limitsTurn };
    key.account.admissions.push(request.shared);
  }
  request.admittedTurn = ++world.turns;
  spend(world, request, clockOf(world, key), price);
  key.account.totalRequests++;
  if (idempotency) {
    const { digest, fingerprint } = idempotency;
    request.digest = digest;
    const known = keyOf(world, digest);
    known.first = { request, fingerprint, dueAtMs: request.dueAtMs };
    delete known.expiresAtMs;
  }
  return noted.length > 0 ? answer("admitted", noted.join("")) : answer("admitted");
}

/** The answer to a request with this Idempotency-Key that is not admitted. */
function repeat(
  world: World,
  { digest, fingerprint }: { digest: string; fingerprint: string },
): [string, ...Reply] | undefined {
  const first = world.idempotency.get(digest)?.first;
  if (!first) return undefined;
  if (first.fingerprint !== fingerprint) return ["idempotency_mismatch"];
  if (first.taskId !== undefined) return ["replayed", first.taskId, first.data ?? ""];
  return ["idempotency_in_progress", first.dueAtMs, first.unknown ?? ""];
}

/** How long until a hold of these slots is due, if all of them have an unknown outcome; else 0. */
function clearedInMs(world: World, account: ModelAccount, slots: readonly string[]): number {
  const dues = unknownDuesOf(world, account, slots);
  return slots.length > 0 && dues.length === slots.length ? Math.max(0, dues[0]! - world.nowMs) : 0;
}

/** How long until one more fits: at once once enough of what is there have left. @param stamps oldest first */
function waitFor(stamps: readonly number[], limit: number, nowMs: number): number {
  const leaver = stamps[stamps.length - limit];
  return leaver === undefined ? WINDOW_MS : leaver + WINDOW_MS - nowMs;
}

/** The upstream gave a task id: charge, and let the slot follow the task. */
export function bind(
  world: World,
  request: ModelRequest,
  taskId: string,
  data: string,
  pollMs: number,
): Reply {
  const { key, generation } = request;
  const { nowMs } = world;
  const owner = world.tasks.get(taskId);
  const otherTask = request.taskId !== undefined && request.taskId !== taskId;
  const answer = (outcome: string): Reply => [outcome, nowMs];
  const isKnown = request.state !== "unborn" && world.requests.includes(request);
  const isForgotten = !isKnown && request.admittedAtMs <= key.account.collectedUntilMs;
  const isOwned = owner !== undefined && owner !== request;
  // There the gateway takes the task id before the script runs.
  const claimsFirst = isOwned && world.isClustered === true;
  if (isForgotten && !claimsFirst) return answer("forgotten");
  if (otherTask && !claimsFirst) return answer("conflict");
  if (isOwned) {
    if (owner.key.account !== key.account || owner.state === "ended") owner.disputed = true;
    return answer("conflict");
  }
  if (request.state === "bound" || request.state === "ended")
    return answer(request.charged ? "bound" : "uncollected");

  const wasHeld = request.state === "held";
  const { idempotency } = generation;
  const known = idempotency && world.idempotency.get(idempotency.digest);
  const isOthers = known?.first !== undefined && known.first.request !== request;
  // The entry that it left of its Idempotency-Key has expired, so nobody knows if a repeat was charged.
  const isLost = request.leftKey !== undefined && request.leftKey !== known;
  const mayCharge = !isOthers && !isLost && spendableOf(world, key.account) >= generation.price;
  const charged = wasHeld || mayCharge;
  request.state = "bound";
  request.taskId = taskId;
  request.charged = charged;
  request.sweepAtMs = nowMs + pollMs;
  request.boundAtMs = nowMs;
  delete request.endedAtMs;
  delete request.tombstone;
  request.dueAtMs ??= request.admittedAtMs;
  world.tasks.set(taskId, request);
  if (wasHeld) unblock(world, request);
  const admittedMs = request.admission?.clockMs ?? request.admittedAtMs;
  const isOfOtherMonth = monthOf(admittedMs) !== monthOf(nowMs - HOUR_MS);
  if (charged) post(world, request, -generation.price, isOfOtherMonth ? { admitted_at: admittedMs } : {});
  // The task runs: it counts towards the day of its admission again.
  if (request.admission) request.admission.counted = true;
  if (request.shared) request.shared.counted = true;
  if (charged && !wasHeld) spend(world, request, admittedMs, generation.price);

  if (idempotency && (charged || (isLost && !isOthers))) {
    const { digest, fingerprint } = idempotency;
    request.digest = digest;
    const kept = keyOf(world, digest);
    kept.first = { request, fingerprint, taskId, data, dueAtMs: request.sweepAtMs };
    kept.expiresAtMs = Math.max(nowMs + DAY_MS, kept.voidUntilMs ?? 0);
  }
  return answer(wasHeld ? "bound" : charged ? "late" : "uncollected");
}

/** A task that had ended as too old has completed: charges again what was refunded. */
export function reclaim(world: World, request: ModelRequest, data: string): Reply {
  const { key, generation } = request;
  const { nowMs } = world;
  const isTooOld = request.tooOld === true && request.state === "ended" && request.seen?.status === "failed";
  const isKnown = world.requests.includes(request) && !request.disputed;
  const isByOperator = key.account.refunds.has(generation.requestId);
  if (!isTooOld || !isKnown || !request.charged || isByOperator) return ["finished", nowMs];
  const { price } = generation;
  if (request.refunded && spendableOf(world, key.account) < price) return ["uncovered", nowMs];
  request.seen = { status: "completed", data, atMs: nowMs };
  request.endedAtMs = nowMs;
  delete request.postponed;
  if (!request.refunded) return ["charged_again", nowMs, "0"];
  const { chargedTurn = 0 } = request;
  post(world, request, -price, { type: "reclaim", reason: "completed_late" });
  request.chargedTurn = chargedTurn;
  request.chargedAgain = true;
  spend(world, request, request.admission?.clockMs ?? request.admittedAtMs, price);
  return ["charged_again", nowMs, String(price)];
}

/** Counts what a request holds or was charged in the month of its admission, unless that is a month which is to come. */
function spend(world: World, request: ModelRequest, atMs: number, credits: number): void {
  if (!request.spending) {
    const { month = -1 } = storedSpent(request.key) ?? {};
    if (!request.admission && monthOf(atMs) > month) {
      if (monthOf(atMs) > monthOf(clockOf(world, request.key))) return;
      request.key.monthBeganMs = atMs;
    }
    request.spending = { atMs, credits };
    request.key.spendings.push(request.spending);
  }
  request.spending.credits = credits;
}

export type VoidReason = "refused" | "due" | "unsent" | "released";

/** The hold vanishes; an unsent one without any trace, and its ADMIT may not come after it. */
export function voidHold(world: World, request: ModelRequest, reason: VoidReason): Reply {
  const answer = (outcome: string): Reply => [outcome, ...numbersOf(world, request.key)];
  const wasVoid = request.state === "void";
  if (request.state === "unborn") {
    if (reason === "unsent") {
      request.state = "void";
      request.tombstone = true;
    }
    return answer("missing");
  }
  if (request.state === "bound" || request.state === "ended") return answer("bound");
  if (request.state === "held") {
    if (reason === "due" && world.nowMs < (request.dueAtMs ?? 0)) return answer("not_due");
    request.state = "void";
    request.endedAtMs = world.nowMs;
    if (request.admission) request.admission.counted = false;
    if (request.shared) request.shared.counted = false;
    if (request.spending) request.spending.credits = 0;
    // Only after a definite answer is it certain that no BIND of it comes any more.
    request.refused = reason !== "due" && reason !== "released";
    unblock(world, request);
    freeKey(world, request);
  }
  request.unsent ||= reason === "unsent";
  if (reason === "unsent" && request.admission?.inWindow) {
    request.admission.inWindow = false;
    if (request.shared) request.shared.inWindow = false;
    request.key.account.totalRequests--;
  }
  return wasVoid ? [...answer("void"), "before"] : answer("void");
}

/** An Idempotency-Key, made if there is none. */
function keyOf({ idempotency }: World, digest: string): ModelIdempotency {
  const known = idempotency.get(digest) ?? {};
  idempotency.set(digest, known);
  return known;
}

/** Its Idempotency-Key may be used again, but is kept while a BIND of a request that had it may come. */
function freeKey({ idempotency, nowMs }: World, request: ModelRequest): void {
  const digest = request.generation.idempotency?.digest ?? "";
  const known = idempotency.get(digest);
  if (known?.first?.request !== request) return;
  delete known.first;
  const untilMs = Math.max(known.voidUntilMs ?? 0, request.refused ? 0 : forgottenAtMs(request));
  if (untilMs <= nowMs) {
    idempotency.delete(digest);
    return;
  }
  known.voidUntilMs = untilMs;
  known.expiresAtMs = untilMs;
  if (request.refused) return;
  known.firstVoid ??= request;
  request.leftKey = known;
}

/** Who corrects and refunds, and why. */
export const BY_HAND = { actor: { by: "cli ann", requestId: "" }, reason: "sorry, for that" };

export type ReportedStatus = TaskStatus | "gone" | "expired";

/** Unknown outcomes that an account may have. */
export const UNKNOWN_MAX = 2;

/** The upstream gave no clear answer to a held request: it counts as unknown, and repeats are told so. */
export function noteUnknown(world: World, request: ModelRequest, unknown: string): Reply {
  if (request.state !== "held") return ["missing", world.nowMs];
  request.unknown = unknown;
  const { digest = "" } = request.generation.idempotency ?? {};
  const first = world.idempotency.get(digest)?.first;
  if (first?.request === request) first.unknown = unknown;
  const { account } = request.key;
  const untilMs = block(world, account, UNKNOWN_MAX);
  return ["noted", world.nowMs, unknownDuesOf(world, account).length, untilMs];
}

/** The hold of a request has ended. */
function unblock(world: World, { unknown, key: { account } }: ModelRequest): void {
  if (unknown !== undefined && account.blocked) block(world, account, account.blocked.limit);
}

/** Applies the upstream's report on a task. It ends once; a failed task is refunded if it was charged. */
export function observe(
  world: World,
  request: ModelRequest,
  observation: { status: ReportedStatus; data: string },
  options: { refundFailed: boolean; pollMs: number; poller?: ModelKey },
): Reply {
  const { nowMs } = world;
  const answer = (outcome: string, refunded = 0): Reply => {
    const numbers = numbersOf(world, options.poller);
    return [outcome, ...numbers, request.seen?.status ?? "", request.seen?.data ?? "", String(refunded)];
  };
  if (!world.requests.includes(request)) return ["missing", ...numbersOf(world, options.poller), "", "", "0"];
  if (request.state === "ended") {
    if (observation.status === request.seen?.status && !request.disputed)
      request.seen = { ...observation, atMs: nowMs };
    return answer("already_finished");
  }
  if (request.state !== "bound") return answer("missing");
  const isOurs = observation.status === "expired";
  if (request.disputed && !isOurs) {
    request.sweepAtMs = nowMs + options.pollMs;
    return [...answer("disputed"), request.boundAtMs!, String(MAX_AGE_MS)];
  }

  if (observation.status === "gone") {
    request.gone ??= { count: 0, sinceMs: nowMs };
    request.gone.count++;
    if (request.gone.count < GONE_COUNT || nowMs - request.gone.sinceMs < GONE_MS) {
      request.sweepAtMs = nowMs + options.pollMs;
      return answer("observed");
    }
  } else {
    delete request.gone;
  }
  const status = observation.status === "gone" || isOurs ? "failed" : (observation.status as TaskStatus);
  request.seen = { status, data: observation.data, atMs: nowMs };
  if (status !== "completed" && status !== "failed") {
    request.sweepAtMs = nowMs + options.pollMs;
    return answer("observed");
  }
  request.state = "ended";
  request.endedAtMs = nowMs;
  if (isOurs) request.tooOld = true;
  if (status !== "failed" || !options.refundFailed || !request.charged) return answer("finished");
  if (request.lost) return answer("finished");
  post(world, request, request.generation.price);
  request.refunded = true;
  if (request.spending) request.spending.credits = 0;
  return answer("finished", request.generation.price);
}

/** Credits sold or given, once per reference. */
export function recharge(
  world: World,
  key: ModelKey,
  amount: number,
  reference: string,
  kind: GrantKind = "purchase",
): Reply {
  const { account } = key;
  const earlier = account.references.get(reference);
  const spendable = String(spendableOf(world, account));
  const standsFor = kind === "purchase" ? String(amount) : `${kind} ${amount}`;
  if (earlier !== undefined) return [earlier === standsFor ? "duplicate" : "mismatch", spendable];
  if (account.status === "closed") return ["closed", spendable];
  if (amount > CREDITS_MAX - account.balance - account.totalUsed) return ["too_large", spendable];
  account.references.set(reference, standsFor);
  account.balance += amount;
  const entry = { type: "recharge", amount, balance_after: account.balance, endpoint: "", reason: "" };
  const by = { task_id: "", at: world.nowMs, reference, by: cliActor().by };
  account.ledger.push({ ...entry, ...by, ...(kind === "purchase" ? {} : { kind }) });
  return ["recharged", String(spendableOf(world, account))];
}

/** Takes back what is left of a grant, once per reference; what is held stays covered. @param amount undefined: all */
export function reverse(
  world: World,
  key: ModelKey,
  { of, amount, reference }: { of: string; amount: number | undefined; reference: string },
): Reply {
  const { account } = key;
  const standsFor = `reversal ${amount ?? "all"} ${of}`;
  const earlier = account.references.get(reference);
  const spendable = spendableOf(world, account);
  if (earlier !== undefined) return [earlier === standsFor ? "duplicate" : "mismatch", String(spendable)];
  const granted = /^(?:trial |goodwill )?(\d+)$/.exec(account.references.get(of) ?? "")?.[1];
  if (granted === undefined) return ["no_grant", String(spendable)];
  const before = account.reversed.get(of) ?? 0;
  const requested = amount ?? Number(granted) - before;
  const taken = Math.min(requested, Number(granted) - before, spendable);
  if (taken <= 0) return ["nothing_left", String(spendable), String(Number(granted) - before)];
  account.references.set(reference, standsFor);
  account.reversed.set(of, before + taken);
  account.balance -= taken;
  const entry = {
    type: "consume",
    amount: -taken,
    balance_after: account.balance,
    endpoint: "",
    task_id: "",
  };
  const by = { at: world.nowMs, reason: BY_HAND.reason, reference, by: BY_HAND.actor.by };
  const details = JSON.stringify({ of, requested, ...(amount === undefined && { all: true }) });
  account.ledger.push({ ...entry, ...by, kind: "reversal", details });
  return ["reversed", String(spendable - taken), String(taken)];
}

/** Corrected by hand, once per reference; what is held stays covered. */
export function adjust(world: World, key: ModelKey, amount: number, reference: string): Reply {
  const { account } = key;
  const standsFor = `adjustment ${amount}`;
  const earlier = account.references.get(reference);
  const spendable = spendableOf(world, account);
  if (earlier !== undefined) return [earlier === standsFor ? "duplicate" : "mismatch", String(spendable)];
  if (amount < -spendable) return ["too_low", String(spendable)];
  if (amount > CREDITS_MAX - account.balance - account.totalUsed) return ["too_large", String(spendable)];
  account.references.set(reference, standsFor);
  account.balance += amount;
  const type = amount < 0 ? "consume" : "recharge";
  const entry = { type, amount, balance_after: account.balance, endpoint: "", reason: BY_HAND.reason };
  account.ledger.push({ ...entry, task_id: "", at: world.nowMs, reference, by: BY_HAND.actor.by });
  return ["adjusted", String(spendable + amount)];
}

/**
 * By an operator, of a task that is completed; what its record does not say must be looked for.
 * @param lostTaskId of a charge that the archive has and the store has lost
 */
export function refund(world: World, request: ModelRequest, reference: string, lostTaskId?: string): Reply {
  const { account } = request.key;
  const { requestId, price } = request.generation;
  const earlier = account.references.get(reference);
  const answer = (outcome: string): Reply => [outcome, String(spendableOf(world, account))];
  if (earlier !== undefined) return answer(earlier === `refund ${requestId}` ? "duplicate" : "mismatch");
  const isKnown = world.requests.includes(request);
  if (account.refunds.has(requestId) || (isKnown && request.refunded))
    return answer(isKnown && request.chargedAgain ? "charged_again" : "refunded_before");
  const by = { reference, by: BY_HAND.actor.by, note: BY_HAND.reason };
  if (lostTaskId !== undefined) {
    account.references.set(reference, `refund ${requestId}`);
    account.refunds.add(requestId);
    request.lost = true;
    post(world, request, price, { ...by, task_id: lostTaskId });
    return [...answer("refunded"), String(price)];
  }
  if (!isKnown || request.state === "unborn") return answer("search");
  if (request.state === "held" || request.state === "bound") return answer("unfinished");
  if (request.state === "void" || !request.charged) return answer("uncharged");
  if (request.seen?.status !== "completed") return answer("search");
  account.references.set(reference, `refund ${requestId}`);
  account.refunds.add(requestId);
  request.refunded = true;
  post(world, request, price, by);
  if (request.spending) request.spending.credits = 0;
  return [...answer("refunded"), String(price)];
}

export function inspect(world: World, key: ModelKey, taskId?: string, cacheMs = 0): Reply {
  if (!usable(world, key)) return ["unknown_key", ...numbersOf(world)];
  const { status = "" } = key.account;
  const numbers = [...numbersOf(world, key), status];
  if (status === "closed") return ["account_suspended", ...numbers];
  if (taskId === undefined) return ["known", ...numbers];
  const request = world.tasks.get(taskId);
  if (!request || request.key.account !== key.account) return ["not_found", ...numbers];
  const { seen, boundAtMs = 0 } = request;
  const ageMs = world.nowMs - (seen?.atMs ?? 0);
  const fresh = seen && ageMs >= 0 && ageMs < cacheMs ? 1 : 0;
  const { requestId, key: creator } = request.generation;
  return [
    "task",
    ...numbers,
    requestId,
    creator.keyId,
    fresh,
    seen?.status ?? "",
    seen?.data ?? "",
    boundAtMs,
    ...(fresh ? [] : [String(MAX_AGE_MS), UPSTREAM]),
  ];
}

/** CREDITS without the transactions, which are compared with the ledger. */
export function credits(world: World, key: ModelKey): Reply {
  if (!usable(world, key)) return ["unknown_key", ...numbersOf(world)];
  const { account } = key;
  const { status = "" } = account;
  if (status === "closed") return ["account_suspended", ...numbersOf(world, key), status];
  const money = [String(spendableOf(world, account)), String(account.totalUsed), account.totalRequests];
  const { daily_limit } = limitsOf(world, key);
  const shared = sharedOf(world, account);
  const isShared = shared && shared.daily_limit - shared.dayCount < daily_limit - usedToday(world, key);
  return ["known", ...numbersOf(world, key), status, isShared ? shared.daily_limit : daily_limit, ...money];
}

const byTimeThenId = (time: (request: ModelRequest) => number) => (a: ModelRequest, b: ModelRequest) =>
  time(a) - time(b) || (a.generation.requestId < b.generation.requestId ? -1 : 1);

/** Takes what is due out of sight for the lease, and says of each what its record says. */
export function lease(
  world: World,
  list: "holds" | "polls",
  partition: number,
  most: number,
  leaseMs: number,
): (number | string[])[] {
  const listed = list === "holds" ? "held" : "bound";
  const open = world.requests.filter(({ state }) => state === listed);
  const due = open.filter(
    ({ key, sweepAtMs = 0 }) => key.partition === partition && sweepAtMs <= world.nowMs,
  );
  const taken = due.sort(byTimeThenId(({ sweepAtMs = 0 }) => sweepAtMs)).slice(0, most);
  for (const request of taken) request.sweepAtMs = world.nowMs + leaseMs;
  const fixed = list === "polls" ? [String(MAX_AGE_MS), UPSTREAM] : ["", ""];
  const claimed = taken.map(({ generation, key, taskId = "", boundAtMs = "", digest = "" }) => [
    generation.requestId,
    listed,
    key.account.id,
    key.keyId,
    taskId,
    String(boundAtMs),
    digest,
    ...fixed,
  ]);
  return [world.nowMs, ...claimed];
}

/** Forgets what ended longer ago than the retention that it was admitted with. */
export function collect(
  world: World,
  partition: number,
  most: number,
): { looked: number; collected: number } {
  const old = world.requests.filter(
    (request) =>
      request.key.partition === partition &&
      request.endedAtMs !== undefined &&
      listedAtMs(request) <= world.nowMs,
  );
  const looked = old.sort(byTimeThenId(listedAtMs)).slice(0, most);
  const [kept, forgotten] = [true, false].map((isKept) =>
    looked.filter((request) => forgottenAtMs(request) > world.nowMs === isKept),
  ) as [ModelRequest[], ModelRequest[]];
  for (const request of kept) request.postponed = true;
  for (const request of forgotten) {
    const { account } = request.key;
    const mayBeCharged = request.state !== "void" || !(request.refused || request.unsent);
    if (mayBeCharged) account.collectedUntilMs = Math.max(account.collectedUntilMs, request.dueAtMs ?? 0);
    // Credits taken from the key stay taken; only the request itself is forgotten.
    if (request.admission) request.key.forgotten.push(request.admission);
    if (request.taskId !== undefined) world.tasks.delete(request.taskId);
  }
  world.requests = world.requests.filter((request) => !forgotten.includes(request));
  return { looked: looked.length, collected: forgotten.length };
}
