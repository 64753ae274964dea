import type { Limits, Tiers } from "../../src/domain/limits.ts";
import { monthOf } from "../../src/domain/moments.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import type { Reply } from "../../src/scripts/script-definition.ts";

export const WINDOW_MS = 60_000;
export const DAY_MS = 86_400_000;

/** One entry of an account's ledger, named as the store names it. */
export interface Entry {
  type: string;
  amount: number;
  balance_after: number;
  endpoint: string;
  reason: string;
  task_id: string;
  at: number;
  reference?: string;
  by?: string;
  note?: string;
  kind?: string;
  details?: string;
  /** Of a charge whose request was admitted in another month than an hour before it. */
  admitted_at?: number;
  request_id?: string;
  key_id?: string;
}

export interface ModelAccount {
  id: string;
  balance: number;
  totalUsed: number;
  totalRequests: number;
  /** Active without it. */
  status?: "suspended" | "closed";
  /** Over all its keys; none without it. */
  limits?: Partial<Limits>;
  /** How often it got limits when it had none. */
  limitsTurn: number;
  /** Admissions while it had limits. */
  admissions: SharedMark[];
  ledger: Entry[];
  /** The grant that each stands for. */
  references: Map<string, string>;
  /** Ids of requests that operators refunded. */
  refunds: Set<string>;
  /** By the reference of the grant: credits that were taken back. */
  reversed: Map<string, number>;
  /** It had too many unknown outcomes when that was last counted. */
  blocked?: { untilMs: number; limit: number };
  /** The latest due time of its requests that are collected and may have been charged; 0: none is. */
  collectedUntilMs: number;
}

/** One admission: the key's clock then, whether its window entry stands, whether the day counts it. */
interface AdmissionMark {
  clockMs: number;
  inWindow: boolean;
  counted: boolean;
}

/** A request's part of its key's credits of a month: held or consumed. */
interface Spending {
  atMs: number;
  credits: number;
}

/** One admission to an account with limits, by the account's clock. */
export interface SharedMark extends AdmissionMark {
  limitsTurn: number;
}

export interface ModelKey {
  keyId: string;
  account: ModelAccount;
  partition: number;
  tier: string;
  own: Partial<Limits>;
  revoked: boolean;
  expiresAtMs?: number;
  /** Admissions of requests that are collected. */
  forgotten: AdmissionMark[];
  /** Of all requests that were admitted, or charged without an admission. */
  spendings: Spending[];
  /** When a request that was charged without an admission was the first of its month; 0: none was. */
  monthBeganMs: number;
  /** The cap of a month. */
  monthly_credits?: number;
}

export interface ModelRequest {
  generation: Generation;
  key: ModelKey;
  state: "unborn" | "held" | "bound" | "ended" | "void";
  /** When it was admitted by the store's clock; of one that never was, when its gateway takes it to have been. */
  admittedAtMs: number;
  admission?: AdmissionMark;
  spending?: Spending;
  shared?: SharedMark;
  /** Taken back before it arrived. */
  tombstone?: boolean;
  dueAtMs?: number;
  sweepAtMs?: number;
  boundAtMs?: number;
  /** Of the Idempotency-Key that is or was its own. */
  digest?: string;
  /** The entry that it left of its Idempotency-Key when its hold was void and its outcome unknown. */
  leftKey?: ModelIdempotency;
  /** The upstream had surely made no task when its hold was void, so no BIND of it is ever sent. */
  refused?: boolean;
  /** Nothing of it went upstream, as somebody said, perhaps after its hold was void. */
  unsent?: boolean;
  /** Its answer while it was held. */
  unknown?: string;
  /** The order in which it was admitted and charged among all that was. */
  admittedTurn?: number;
  chargedTurn?: number;
  endedAtMs?: number;
  taskId?: string;
  charged?: boolean;
  refunded?: boolean;
  /** Its refund was taken back, since it completed late. */
  chargedAgain?: boolean;
  /** The store had lost its charge when an operator refunded it. */
  lost?: boolean;
  /** The gateway ended it: it was too old. */
  tooOld?: boolean;
  /** Of one that was too old: a collector has put it back to when it may be forgotten. */
  postponed?: boolean;
  /** The upstream gave its task id to another request, too. */
  disputed?: boolean;
  gone?: { count: number; sinceMs: number };
  seen?: { status: string; data: string; atMs: number };
}

/** An Idempotency-Key. Once it has expired it is another one that is made under the same digest. */
export interface ModelIdempotency {
  /** The request that it stands for; none while it is free again. */
  first?: {
    request: ModelRequest;
    fingerprint: string;
    dueAtMs: number;
    taskId?: string;
    data?: string;
    unknown?: string;
  };
  /** Until when an earlier request, whose outcome was unknown, may be bound. */
  voidUntilMs?: number;
  /** The first of those requests. */
  firstVoid?: ModelRequest;
  /** None while its request is held. */
  expiresAtMs?: number;
}

/** Everything that the store should know, said as plainly as possible: nothing is counted that can be derived. */
export interface World {
  /** On a Redis Cluster. */
  isClustered?: boolean;
  nowMs: number;
  tiers: Tiers;
  keys: ModelKey[];
  requests: ModelRequest[];
  /** Task id to the request that owns it. */
  tasks: Map<string, ModelRequest>;
  /** By digest. */
  idempotency: Map<string, ModelIdempotency>;
  /** How many were admitted or charged. */
  turns: number;
}

/** A key's own limits over those of its tier, an unknown tier being the standard one. */
export function limitsOf(world: World, key: ModelKey): Limits {
  return { ...(world.tiers[key.tier] ?? world.tiers.standard), ...key.own } as Limits;
}

const requestsOf = (world: World, key: ModelKey): ModelRequest[] =>
  world.requests.filter((request) => request.key === key);

const admissionsOf = (world: World, key: ModelKey): AdmissionMark[] => [
  ...key.forgotten,
  ...requestsOf(world, key).flatMap(({ admission }) => admission ?? []),
];

/** A key's clock never runs backwards: it is at least what it was at the last admission, or moved the month on. */
export function clockOf(world: World, key: ModelKey): number {
  const admissions = admissionsOf(world, key).map(({ clockMs }) => clockMs);
  return Math.max(world.nowMs, key.monthBeganMs, ...admissions);
}

export function usable(world: World, key: ModelKey): boolean {
  return !key.revoked && (key.expiresAtMs === undefined || clockOf(world, key) < key.expiresAtMs);
}

/** When the requests of the last 60 s were admitted, oldest first. */
export function windowOf(world: World, key: ModelKey): number[] {
  const since = clockOf(world, key) - WINDOW_MS;
  const counted = admissionsOf(world, key).filter(({ inWindow, clockMs }) => inWindow && clockMs > since);
  return counted.map(({ clockMs }) => clockMs).sort((a, b) => a - b);
}

export function usedToday(world: World, key: ModelKey): number {
  const today = Math.floor(clockOf(world, key) / DAY_MS);
  return admissionsOf(world, key).filter(
    ({ counted, clockMs }) => counted && Math.floor(clockMs / DAY_MS) === today,
  ).length;
}

/** The month by the key's clock, and what requests of that month have spent. */
export const spentOf = (world: World, key: ModelKey): { month: number; credits: number } =>
  spentIn(key, monthOf(clockOf(world, key)));

const spentIn = (key: ModelKey, month: number) => ({
  month,
  credits: key.spendings
    .filter(({ atMs }) => monthOf(atMs) === month)
    .reduce((sum, { credits }) => sum + credits, 0),
});

/** As the record has it: undefined before the first request. */
export const storedSpent = (key: ModelKey): { month: number; credits: number } | undefined =>
  key.spendings.length === 0
    ? undefined
    : spentIn(key, Math.max(...key.spendings.map(({ atMs }) => monthOf(atMs))));

/** A key's slots: its holds and its unfinished tasks. */
export const slotsOf = (world: World, key: ModelKey): string[] =>
  requestsOf(world, key)
    .filter(({ state }) => state === "held" || state === "bound")
    .map(({ generation }) => generation.requestId);

/** The rest of the limits over all keys of an account; undefined where it has none. */
export function sharedOf(world: World, account: ModelAccount) {
  const { limits, limitsTurn } = account;
  if (!limits) return undefined;
  const marks = account.admissions.filter((mark) => mark.limitsTurn === limitsTurn);
  const clockMs = Math.max(world.nowMs, ...marks.map((mark) => mark.clockMs));
  const inWindow = marks.filter((mark) => mark.inWindow && mark.clockMs > clockMs - WINDOW_MS);
  const day = Math.floor(clockMs / DAY_MS);
  const countedOn = (wanted: number): number =>
    marks.filter((mark) => mark.counted && Math.floor(mark.clockMs / DAY_MS) === wanted).length;
  const storedDay = Math.max(...marks.map((mark) => Math.floor(mark.clockMs / DAY_MS)));
  return {
    rate_limit: limits.rate_limit ?? Number.POSITIVE_INFINITY,
    max_concurrent: limits.max_concurrent ?? Number.POSITIVE_INFINITY,
    daily_limit: limits.daily_limit ?? Number.POSITIVE_INFINITY,
    clockMs,
    stamps: inWindow.map((mark) => mark.clockMs).sort((a, b) => a - b),
    day,
    dayCount: countedOn(day),
    /** As the record has it. */
    stored: marks.length === 0 ? undefined : `${storedDay} ${countedOn(storedDay)}`,
    slots: world.keys.filter((key) => key.account === account).flatMap((key) => slotsOf(world, key)),
  };
}

/** A record of a request that was surely not made is kept no longer. */
const REFUSED_KEPT_MS = 600_000;

const keptMs = ({ generation, refused }: ModelRequest): number =>
  Math.min(generation.retentionMs, refused ? REFUSED_KEPT_MS : Number.POSITIVE_INFINITY);

/** When an ended request may be forgotten. */
export const forgottenAtMs = (request: ModelRequest): number =>
  (request.endedAtMs ?? 0) + (request.tooOld ? 2 : 1) * keptMs(request);

/** Where it is listed among those that have ended: by its end, as all others, until a collector comes to it. */
export const listedAtMs = (request: ModelRequest): number =>
  request.postponed ? forgottenAtMs(request) : (request.endedAtMs ?? 0) + keptMs(request);

/** When the holds with an unknown outcome are due, of an account or only of those of some slots; the earliest first. */
export const unknownDuesOf = (world: World, account: ModelAccount, slots?: readonly string[]): number[] =>
  world.requests
    .filter(({ key, state, unknown }) => key.account === account && state === "held" && unknown !== undefined)
    .filter(({ generation }) => slots === undefined || slots.includes(generation.requestId))
    .map(({ dueAtMs = 0 }) => dueAtMs)
    .sort((a, b) => a - b);

/** Refuses further requests of an account with so many unknown outcomes until enough of their holds are due. */
export function block(world: World, account: ModelAccount, limit: number): number {
  const dues = unknownDuesOf(world, account);
  if (dues.length < limit) delete account.blocked;
  else account.blocked = { untilMs: dues[dues.length - limit]!, limit };
  return account.blocked?.untilMs ?? 0;
}

export const activeOf = (world: World, key: ModelKey): number => slotsOf(world, key).length;

export const heldOf = (world: World, account: ModelAccount): number =>
  world.requests
    .filter(({ key, state }) => key.account === account && state === "held")
    .reduce((sum, { generation }) => sum + generation.price, 0);

/** The balance as it is shown. */
export const spendableOf = (world: World, account: ModelAccount): number =>
  account.balance - heldOf(world, account);

/** The store's clock, the five numbers of the headers and the tier; zeros without a key. */
export function numbersOf(world: World, key?: ModelKey): Reply {
  const { nowMs } = world;
  if (!key) return [nowMs, 0, 0, nowMs, 0, 0, ""];
  const own = limitsOf(world, key);
  let window = { limit: own.rate_limit, stamps: windowOf(world, key) };
  let slots = { limit: own.max_concurrent, active: activeOf(world, key) };
  const shared = sharedOf(world, key.account);
  // Whichever leaves less.
  if (shared && shared.rate_limit - shared.stamps.length < window.limit - window.stamps.length)
    window = { limit: shared.rate_limit, stamps: shared.stamps };
  if (shared && shared.max_concurrent - shared.slots.length < slots.limit - slots.active)
    slots = { limit: shared.max_concurrent, active: shared.slots.length };
  const [oldest] = window.stamps;
  return [
    nowMs,
    window.limit,
    Math.max(0, window.limit - window.stamps.length),
    oldest === undefined ? nowMs : oldest + WINDOW_MS,
    slots.limit,
    slots.active,
    tierOf(world, key),
  ];
}

/** Of a key that ends or has a cap, these follow its tier. */
function tierOf(world: World, key: ModelKey): string {
  const { tier, expiresAtMs, monthly_credits: cap } = key;
  if (expiresAtMs === undefined && cap === undefined) return tier;
  return [
    tier,
    expiresAtMs ?? "-",
    cap ?? "-",
    cap === undefined ? "-" : spentOf(world, key).credits,
    "-",
  ].join(" ");
}

/** Charges a request's price, or refunds it. */
export function post(world: World, request: ModelRequest, amount: number, more: Partial<Entry> = {}): void {
  if (amount < 0) request.chargedTurn = ++world.turns;
  const { account, keyId } = request.key;
  const { endpoint, requestId } = request.generation;
  account.balance += amount;
  account.totalUsed -= amount;
  account.ledger.push({
    type: amount < 0 ? "consume" : "recharge",
    amount,
    balance_after: account.balance,
    endpoint,
    reason: amount < 0 ? "" : "refund",
    task_id: request.taskId ?? "",
    at: world.nowMs,
    request_id: requestId,
    key_id: keyId,
    ...more,
  });
}
