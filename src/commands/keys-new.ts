import type { Command } from "commander";
import type { Config } from "../config/config.ts";
import { CREDITS_MAX } from "../domain/credit-packages.ts";
import { byLimit, CAPS, LIMITS, TIER_LIMITS } from "../domain/limits.ts";
import { nearest } from "../domain/suggest.ts";
import type { Written } from "../operations/access/confirmed-writes.ts";
import type { KeyOptions } from "../operations/keys/issue-key.ts";
import { OperatorError } from "../records/operator-error.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import { readFacts } from "../redis/store-facts.ts";
import { limitIn, limitOptions } from "./limit-options.ts";
import { requireConfig } from "./local-config.ts";
import { type ActorFlags, changing, futureMs, whole } from "./options.ts";
import { withRedisToWrite } from "./redis.ts";

const credits = whole(1, CREDITS_MAX);

export interface NewKeyFlags extends ActorFlags {
  account?: string;
  tier: string;
  credits?: number;
  expires?: number;
  label?: string;
  json?: boolean;
}

/** A command that makes keys. */
export const newKey = (name: string, description: string): Command =>
  limitOptions(
    limitOptions(
      changing(name, description)
        .option("--account <id>", "its account; made when missing, generated when left out")
        .option("--tier <name>", "a tier of the config", "standard")
        .option("--credits <n>", "credits to grant to the account along with it", credits),
      TIER_LIMITS,
      { after: ", instead of the tier's" },
    ),
    CAPS,
  )
    .option("--label <text>", "a name for it")
    .option("--expires <iso>", "when it ends, such as 2030-01-31T00:00:00Z", futureMs);

/** What the flags say of a new key. */
export function keyOptions({ account, tier, credits, expires, ...flags }: NewKeyFlags): KeyOptions {
  const limits = byLimit(LIMITS, ({ name }) => limitIn(flags, name) ?? undefined);
  return { accountId: account, tier, credits, limits, expiresAtMs: expires, label: flags.label };
}

/** Work against a store that may keep keys: one that cannot evict money. */
export function withKeyStore<T>(
  config: Config,
  work: (nodes: RedisNodes) => Promise<T>,
): Promise<Written<T>> {
  return withRedisToWrite(async (nodes) => {
    // Whether it keeps them on disk, gateways and doctor say.
    await readFacts(nodes, { ...config.store, allowNoPersistence: true });
    return work(nodes);
  });
}

/** @throws OperatorError for a tier that the config does not have, or that no new key gets */
export function requireTier(tier: string, config: Config = requireConfig()): void {
  const tiers = Object.keys(config.tiers).filter((name) => !config.tiers[name]?.deprecated);
  if (tiers.includes(tier)) return;
  if (Object.hasOwn(config.tiers, tier)) {
    throw new OperatorError(
      `the tier ${tier} is deprecated: no new key gets it; there is ${tiers.join(", ")}`,
    );
  }
  const meant = nearest(tier, tiers);
  const hint = meant === undefined ? `it has ${tiers.join(", ")}` : `did you mean ${meant}?`;
  throw new OperatorError(`the config has no tier ${tier}; ${hint}`);
}
