import { type LimitState, SHADOW_LIMITS, type ShadowLimit, type Tiers } from "../../domain/limits.ts";
import type { Reply } from "../script-definition.ts";

// The arguments and replies of several scripts about a key's limits; see lua/include/key.lua and reply.lua.

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
        `${line}${name} ${limits.rateLimit} ${limits.maxConcurrent} ${limits.dailyLimit}${letters(limits.shadow)};`,
      ";",
    );
    packed.set(tiers, text);
  }
  return text;
}

/** For callers that do not read the numbers that a script answers. */
export const NO_TIERS: Tiers = { standard: { rateLimit: 0, maxConcurrent: 0, dailyLimit: 0 } };

/** Limits as the scripts name them. */
const LETTERS: Readonly<Record<ShadowLimit, string>> = {
  rate_limit: "r",
  max_concurrent: "c",
  daily_limit: "d",
};

const letters = (limits: readonly ShadowLimit[] = []): string =>
  limits.map((limit) => LETTERS[limit]).join("");

export const shadowLimitsOf = (letters: string): ShadowLimit[] =>
  SHADOW_LIMITS.filter((limit) => letters.includes(LETTERS[limit]));

/** Of a key that ends or has a cap of credits a month. */
export interface KeyTerms {
  /** Unix ms; `Infinity` for a key that does not end. */
  expiresAtMs: number;
  /** `Infinity` for a key without a cap. */
  monthlyCredits: number;
  /** What it has spent of them in the month of the reply. */
  spent: number;
}

/** A key's numbers for the headers, zeros where the key is unknown, and its tier. */
export interface KeyState {
  state: LimitState;
  tier: string;
  /** Undefined for a key that neither ends nor has a cap. */
  terms: KeyTerms | undefined;
  /** When the script ran, Unix ms by the store's clock. */
  atMs: number;
}

/** How many values `reply` in lua/include/reply.lua writes; those of the script itself come after them. */
export const KEY_STATE_LENGTH = 8;

export function keyStateOf(reply: Reply): KeyState {
  const state = {
    rateLimit: Number(reply[2]),
    remaining: Number(reply[3]),
    resetAtMs: Number(reply[4]),
    maxConcurrent: Number(reply[5]),
    active: Number(reply[6]),
  };
  const tier = String(reply[7]);
  const atMs = Number(reply[1]);
  if (!tier.includes(" ")) return { state, tier, terms: undefined, atMs };
  const [name = "", expiresAtMs, monthlyCredits, spent] = tier.split(" ");
  const terms = {
    expiresAtMs: numberOr(Number.POSITIVE_INFINITY, expiresAtMs),
    monthlyCredits: numberOr(Number.POSITIVE_INFINITY, monthlyCredits),
    spent: numberOr(0, spent),
  };
  return { state, tier: name, terms, atMs };
}

const numberOr = (otherwise: number, text: string | undefined): number =>
  text === "-" ? otherwise : Number(text);
