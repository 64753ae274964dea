import type { ShadowLimit, Tiers } from "../domain/limits.ts";
import type { KeyRef } from "../records/names.ts";
import type { BarredStatus } from "../records/records.ts";
import { clockOf, type KeyState, keyStateOf, shadowLimitsOf } from "./include/limits.ts";
import type { Script } from "./script-definition.ts";
import type { UnknownOutcome } from "./unclear.ts";

/** One generation from admission to its end. */
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
