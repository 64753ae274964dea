import type { Tiers } from "../domain/limits.ts";
import { nearest } from "../domain/problems.ts";
import type { ConfigProblem } from "./problems.ts";

const NAMED_MAX = 10;

interface MissingTier {
  tier: string;
  keys: number;
}

export function missingTiers(keysByTier: Readonly<Record<string, number>>, tiers: Tiers): MissingTier[] {
  return Object.entries(keysByTier)
    .filter(([tier, keys]) => keys > 0 && !Object.hasOwn(tiers, tier))
    .map(([tier, keys]) => ({ tier, keys }))
    .sort((a, b) => b.keys - a.keys || a.tier.localeCompare(b.tier));
}

export const droppedTiers = (missing: readonly MissingTier[], before: Readonly<Record<string, unknown>>) =>
  missing.filter(({ tier }) => Object.hasOwn(before, tier));

export function tierProblems(
  missing: readonly MissingTier[],
  options: { keysByTier: Readonly<Record<string, number>>; tiers: Tiers; file: string },
): ConfigProblem[] {
  const { keysByTier, tiers, file } = options;
  return missing.slice(0, NAMED_MAX).map(({ tier, keys }) => {
    const unused = Object.keys(tiers).filter((name) => !(keysByTier[name] ?? 0));
    const meant = nearest(tier, unused);
    const slip = meant === undefined ? "" : ` (is ${meant} a slip of it?)`;
    return {
      file,
      path: `tiers.${tier}`,
      message:
        `${keysUse(keys)} tier ${tier}, which is missing${slip}; they would get the limits of standard. Keep the tier, ` +
        "with deprecated: true if no new key should get it, until no key uses it",
    };
  });
}

export const keysUse = (keys: number): string => (keys === 1 ? "1 key uses" : `${keys} keys use`);
