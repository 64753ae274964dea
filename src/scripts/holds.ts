import {
  byLimit,
  type LimitState,
  type Limits,
  type ShadowLimit,
  TIER_LIMITS,
  type Tiers,
} from "../domain/limits.ts";
import type { KeyRef } from "../records/names.ts";
import type { BarredStatus } from "../records/records.ts";
import type { Argument, Reply, Script } from "./script-definition.ts";

// The arguments and replies of several scripts about a key's limits; see lua/include/limits.lua and reply.lua.

const packed = new WeakMap<Tiers, string>();

/** Tiers as `tier_limits` reads them, `standard` first; packed once per config snapshot. */
export function packTiers(tiers: Tiers): string {
  let text = packed.get(tiers);
  if (text === undefined) {
    const entries = Object.entries(tiers).sort(
      ([a], [b]) => Number(b === "standard") - Number(a === "standard"),
    );
    text = entries.reduce(
      (line, [name, limits]) =>
        `${line}${name} ${TIER_LIMITS.map((limit) => limits[limit.name]).join(" ")}${letters(limits.shadow)};`,
      ";",
    );
    packed.set(tiers, text);
  }
  return text;
}

/** For callers that do not read the numbers that a script answers. */
export const NO_TIERS: Tiers = { standard: byLimit(TIER_LIMITS, () => 0) };

const letters = (limits: readonly ShadowLimit[] = []): string =>
  TIER_LIMITS.map(({ name, shadow }) => (limits.includes(name) ? shadow : "")).join("");

const shadowLimitsOf = (letters: string): ShadowLimit[] =>
  TIER_LIMITS.flatMap(({ name, shadow }) => (letters.includes(shadow) ? [name] : []));

/** As CREDITS answers: window and slots with the key's numbers, then those of a UTC period. @returns `rest`: what comes after them */
export function limitsInForce(state: LimitState, values: Reply): { limits: Limits; rest: Reply } {
  const rest = [...values];
  const limits = byLimit(TIER_LIMITS, ({ counted }) => {
    if (counted === "window") return state.limit;
    return counted === "slots" ? state.concurrentLimit : Number(rest.shift());
  });
  return { limits, rest };
}

export interface KeyTerms {
  /** Unix ms; `Infinity` for a key that does not end. */
  expiresAtMs: number;
  /** Credits that it may spend in a month; `Infinity` for a key without a cap. */
  cap: number;
  /** Credits of them spent in the month of the reply. */
  spent: number;
}

/** A key's numbers for the headers, zeros where the key is unknown, and its tier. */
export interface KeyState {
  state: LimitState;
  tier: string;
  /** Undefined for a key that neither ends nor has a cap nor restrictions. */
  terms: KeyTerms | undefined;
  /** As domain/key-restrictions.ts writes them; undefined for a key that has none. */
  restrictions: string | undefined;
  /** When the script ran, Unix ms by the store's clock. */
  atMs: number;
}

/** The store's clock as a script that serves requests answers it, Unix ms. */
export const clockOf = (reply: Reply): number => Number(reply[1]);

/** How many values `reply` in lua/include/reply.lua writes; those of the script itself come after them. */
export const KEY_STATE_LENGTH = 8;

export function keyStateOf(reply: Reply): KeyState {
  const state = {
    limit: Number(reply[2]),
    remaining: Number(reply[3]),
    resetAtMs: Number(reply[4]),
    concurrentLimit: Number(reply[5]),
    active: Number(reply[6]),
  };
  const tier = String(reply[7]);
  const atMs = Number(reply[1]);
  if (!tier.includes(" ")) return { state, tier, terms: undefined, restrictions: undefined, atMs };
  const [name = "", expiresAtMs, cap, spent, restrictions] = tier.split(" ");
  const terms = {
    expiresAtMs: numberOr(Number.POSITIVE_INFINITY, expiresAtMs),
    cap: numberOr(Number.POSITIVE_INFINITY, cap),
    spent: numberOr(0, spent),
  };
  return { state, tier: name, terms, restrictions: restrictions === "-" ? undefined : restrictions, atMs };
}

const numberOr = (otherwise: number, text: string | undefined): number =>
  text === "-" ? otherwise : Number(text);

// A generation's hold: made, and bound to its task.

export interface Generation {
  requestId: string;
  key: KeyRef;
  /** Whole credits: the list price, from ADMIT on that of the account. */
  price: number;
  /** Prices for ADMIT to choose from, if price lists begin at a time; see lua/include/price.lua. */
  prices?: string | undefined;
  /** As charged and listed: the full path. */
  endpoint: string;
  /** How long the hold may stay unanswered, ms. */
  holdMs: number;
  /** How long its record is kept after its end, ms; fixed here, so that gateways need not agree on it. */
  retentionMs: number;
  /** The store that was asked to admit it, set there: nothing of it is settled in another. */
  storeId?: string | undefined;
  /** When it was admitted, Unix ms by the store's clock, set there. */
  admittedAtMs?: number | undefined;
  idempotency?: { digest: string; fingerprint: string };
  /** Of the key, which the request was checked against; undefined for none. */
  restrictions?: string | undefined;
  /** The customer's `callBackUrl`, if the gateway relays it: the `href` of a URL, which has no spaces. */
  callback?: string;
}

interface AdmitCall {
  generation: Generation;
  tiers: Tiers;
  /** After this moment of the store's clock it is refused as stale, Unix ms. */
  notAfterMs: number;
}

/** How the upstream left open whether it made a task. */
export type UnknownOutcome = "unclear" | "timed_out";

/** Whose limit refused a request: its key's, or one over all keys of its account. */
export type LimitOwner = "key" | "account";

/** Admission as the handlers see it. Milliseconds are Redis time. */
export type Admission = KeyState &
  /** `shadow`: limits that would have refused it. `price`: where it is not the price asked for. */
  (
    | { outcome: "admitted"; admittedAtMs: number; shadow?: readonly ShadowLimit[]; price?: number }
    | { outcome: "rate_limited"; retryAfterMs: number; limitOf: LimitOwner }
    | {
        outcome: "daily_limited";
        retryAfterMs: number;
        limitOf: LimitOwner;
        limit: number;
        used: number;
      }
    /** `clearedInMs`: the requests that take all slots have an unknown outcome, and the first hold of them ends then; else 0. */
    | { outcome: "concurrency_limited"; limitOf: LimitOwner; clearedInMs: number }
    /** Too many requests of the account have an unknown outcome. */
    | { outcome: "outcomes_unknown"; retryAfterMs: number }
    /** Credits that the key may spend in a month, and has spent in this one. */
    | { outcome: "spend_capped"; cap: number; spent: number; price?: number }
    | { outcome: "insufficient_credits"; balance: number; price?: number }
    | { outcome: "account_suspended"; status: BarredStatus }
    | { outcome: "replayed"; taskId: string; data: string }
    | { outcome: "idempotency_mismatch" }
    /** `dueAtMs`: when its outcome is known at the latest. `unknown`: the upstream's answer to the first was none. */
    | { outcome: "idempotency_in_progress"; retryAfterMs: number; dueAtMs: number; unknown?: UnknownOutcome }
    /** The key has other restrictions than the request was checked against. */
    | { outcome: "restricted" }
    | { outcome: "stale" | "void" }
    | { outcome: "unknown_key" }
  );

const priceIn = (value: unknown): { price?: number } =>
  value === undefined || value === null ? {} : { price: Number(value) };

export const admit: Script<AdmitCall, Admission> = {
  name: "admit",
  isBatched: true,
  keys: ({ generation }) => [generation.key.names.key],
  tiers: ({ tiers }) => tiers,
  args({ generation, notAfterMs }) {
    const { requestId, key, endpoint, price, prices = price, retentionMs, holdMs } = generation;
    const { idempotency, callback = "", restrictions = "" } = generation;
    const { fingerprint = "", digest = "" } = idempotency ?? {};
    const subject = [requestId, key.accountId, key.keyId, endpoint, prices, Math.round(retentionMs)];
    return [...subject, notAfterMs, holdMs, fingerprint, digest, callback, restrictions];
  },
  read(reply) {
    const outcome = reply[0] as Admission["outcome"];
    const common = keyStateOf(reply);
    switch (outcome) {
      case "admitted": {
        const admitted = { outcome, ...common, admittedAtMs: clockOf(reply), ...priceIn(reply[9]) };
        return reply[8] ? { ...admitted, shadow: shadowLimitsOf(String(reply[8])) } : admitted;
      }
      case "rate_limited":
        return { outcome, ...common, retryAfterMs: Number(reply[8]), limitOf: reply[9] as LimitOwner };
      case "concurrency_limited":
        return { outcome, ...common, limitOf: reply[8] as LimitOwner, clearedInMs: Number(reply[9]) };
      case "outcomes_unknown":
        return { outcome, ...common, retryAfterMs: Number(reply[8]) };
      case "daily_limited": {
        const [retryAfterMs, limitOf, limit, used] = reply.slice(8);
        return {
          outcome,
          ...common,
          retryAfterMs: Number(retryAfterMs),
          limitOf: limitOf as LimitOwner,
          limit: Number(limit),
          used: Number(used),
        };
      }
      case "spend_capped":
        return { outcome, ...common, cap: Number(reply[8]), spent: Number(reply[9]), ...priceIn(reply[10]) };
      case "insufficient_credits":
        return { outcome, ...common, balance: Number(reply[8]), ...priceIn(reply[9]) };
      case "account_suspended":
        return { outcome, ...common, status: reply[8] as BarredStatus };
      case "replayed":
        return { outcome, ...common, taskId: String(reply[8]), data: String(reply[9]) };
      case "idempotency_in_progress": {
        const dueAtMs = Number(reply[8]);
        const progress = { outcome, ...common, dueAtMs, retryAfterMs: dueAtMs - clockOf(reply) };
        return reply[9] === "" ? progress : { ...progress, unknown: reply[9] as UnknownOutcome };
      }
      default:
        return { outcome, ...common };
    }
  },
};

/** How long an Idempotency-Key is remembered from its BIND on; until then its request is held. */
const IDEMPOTENCY_MS = 24 * 3_600_000;

export interface NewTask {
  taskId: string;
  /** The answer's data, JSON, for repeats with the same Idempotency-Key; empty without one. */
  data: string;
  /** When the sweeper may poll it, ms from now. */
  pollMs: number;
  /** Fixed here for the task's life, as is the upstream. */
  maxAgeMs: number;
  /** Which upstream made it: it is polled there, whatever is configured later. */
  upstream: string;
}

/** At the maximum age at the latest, beyond it as often as before. */
export const nextPollMs = (everyMs: number, ageMs: number, maxAgeMs: number): number =>
  ageMs < maxAgeMs ? Math.min(everyMs, maxAgeMs - ageMs) : everyMs;

export interface BindCall
  extends Pick<Generation, "requestId" | "key" | "price" | "endpoint" | "retentionMs" | "admittedAtMs"> {
  idempotency?: Generation["idempotency"] | undefined;
  task: NewTask;
}

/** Nothing is charged for `conflict` (another task, or another request's, which may be disputed now) and `forgotten` (the record is deleted). */
export type Binding = "bound" | "late" | "uncollected" | "conflict" | "forgotten";

/** Charges a held generation for the task that it got, and claims the task id; the slot follows the task. */
export const bind: Script<BindCall, Binding> = {
  name: "bind",
  isBatched: true,
  keys: ({ key }) => [key.names.key],
  args: (call) => argsOf(call, ""),
  read: ([outcome]) => outcome as Binding,
};

/** On a Redis Cluster, where the claim is out of the script's reach and taken before. */
export const bindClaimed: typeof bind = { ...bind, args: (call) => argsOf(call, "1") };

function argsOf(call: BindCall, claimed: string): Argument[] {
  const { requestId, key, endpoint, price, retentionMs, task, idempotency, admittedAtMs } = call;
  const { fingerprint = "", digest = "" } = idempotency ?? {};
  const fixed = [requestId, key.accountId, key.keyId, endpoint, price, Math.round(retentionMs)];
  const made = [task.taskId, claimed, fixedText(task), task.pollMs, task.data];
  return [...fixed, ...made, fingerprint, IDEMPOTENCY_MS, digest, admittedAtMs ?? ""];
}

/** In the form of records/records.ts: the part of a request's text that is known before BIND. */
export const fixedText = ({ maxAgeMs, upstream }: { maxAgeMs: number; upstream: string }): string =>
  `max_age_ms=${Math.round(maxAgeMs)} upstream=${upstream}`;
