import {
  byLimit,
  type LimitState,
  type Limits,
  type ShadowLimit,
  TIER_LIMITS,
  type Tiers,
} from "../domain/limits.ts";
import type { Reply } from "./script-definition.ts";

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

export const shadowLimitsOf = (letters: string): ShadowLimit[] =>
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

/** Of a key that ends or has a cap of credits a month. */
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
