import type { Command } from "commander";
import type { Config } from "../config/config.ts";
import { CREDITS_MAX } from "../domain/credit-packages.ts";
import type { OwnLimits } from "../domain/limits.ts";
import type { Written } from "../operations/access/confirmed-writes.ts";
import type { KeyOptions } from "../operations/keys/issue-key.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import { readFacts } from "../redis/store-facts.ts";
import { LIMITS } from "./limit-options.ts";
import { type ActorFlags, changing, futureMs, whole } from "./options.ts";
import { withRedisToWrite } from "./redis.ts";

const credits = whole(1, CREDITS_MAX);

export interface NewKeyFlags extends OwnLimits, ActorFlags {
  account?: string;
  tier: string;
  credits?: number;
  expires?: number;
  label?: string;
  monthlyCredits?: number;
  json?: boolean;
}

/** A command that makes keys. */
export function newKey(name: string, description: string): Command {
  const command = changing(name, description)
    .option("--account <id>", "its account; made when missing, generated when left out")
    .option("--tier <name>", "a tier of the config", "standard")
    .option("--credits <n>", "credits to grant to the account along with it", credits);
  for (const [limit, { parse, counts }] of Object.entries(LIMITS))
    command.option(`--${limit} <n>`, `${counts.join(" ")}, instead of the tier's`, parse);
  return command
    .option("--monthly-credits <n>", "credits that it may use in a UTC month", credits)
    .option("--label <text>", "a name for it")
    .option("--expires <iso>", "when it ends, such as 2030-01-31T00:00:00Z", futureMs);
}

/** What the flags say of a new key. */
export function keyOptions({ account, tier, credits, expires, ...flags }: NewKeyFlags): KeyOptions {
  const { rateLimit, maxConcurrent, dailyLimit, label, monthlyCredits } = flags;
  const limits = { rateLimit, maxConcurrent, dailyLimit };
  return { accountId: account, tier, credits, limits, expiresAtMs: expires, label, monthlyCredits };
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
