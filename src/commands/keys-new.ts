import { type Command, Option } from "commander";
import type { Config } from "../config/config.ts";
import { byLimit, CAPS, LIMITS, TIER_LIMITS } from "../domain/limits.ts";
import { CREDITS_MAX } from "../domain/money.ts";
import type { Written } from "../operations/access/operator-session.ts";
import { checkedRestrictions } from "../operations/access/operator-values.ts";
import type { KeyOptions } from "../operations/keys/issue-key.ts";
import { GRANT_KINDS, type GrantKind } from "../records/ledger-entries.ts";
import { type RedisNodes, readFacts } from "../redis/store-facts.ts";
import { limitOptions } from "./operation-command.ts";
import { type ActorFlags, changing, futureMs, whole } from "./options.ts";
import { withRedisToWrite } from "./redis.ts";

const credits = whole(1, CREDITS_MAX);

export interface NewKeyFlags extends ActorFlags {
  account?: string;
  tier: string;
  credits?: number;
  kind: GrantKind;
  expires?: number;
  label?: string;
  allowedEndpoints?: string[];
  allowedAddresses?: string[];
  json?: boolean;
}

export function newKey(name: string, description: string): Command {
  const made = changing(name, description)
    .option("--account <id>", "its account; made when missing, generated when left out")
    .option("--tier <name>", "a tier of the config", "standard")
    .option("--credits <n>", "credits to grant to the account along with it", credits)
    .addOption(
      new Option("--kind <kind>", "what that grant is to an accountant")
        .choices(GRANT_KINDS)
        .default("trial"),
    );
  const limits = {
    ...limitOptions(TIER_LIMITS, { after: ", instead of the tier's" }),
    ...limitOptions(CAPS),
  };
  for (const [form, { about, parse }] of Object.entries(limits)) made.option(form, about, parse);
  return made
    .option("--allowed-endpoints <list>", "the only endpoints that it may use, with commas between", listOf)
    .option(
      "--allowed-addresses <list>",
      "the only client addresses that it may be used from, as CIDR ranges",
      listOf,
    )
    .option("--label <text>", "a name for it")
    .option("--expires <iso>", "when it ends, such as 2030-01-31T00:00:00Z", futureMs);
}

export function keyOptions({ account, tier, credits, kind, expires, ...flags }: NewKeyFlags): KeyOptions {
  const given = flags as Record<string, unknown>;
  const limits = byLimit(LIMITS, ({ name }) => given[attributeOf(name)] as number | undefined);
  return {
    accountId: account,
    tier,
    credits,
    creditsKind: kind,
    limits,
    expiresAtMs: expires,
    label: flags.label,
    restrictions: checkedRestrictions(flags),
  };
}

const listOf = (text: string): string[] => text.split(",");

const attributeOf = (name: string): string =>
  name.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase());

/** Work against a store that may keep keys: one that cannot evict money. */
export function withKeyStore<T>(
  config: Config,
  work: (nodes: RedisNodes) => Promise<T>,
): Promise<Written<T>> {
  return withRedisToWrite(async (nodes) => {
    // Gateways and doctor check that it keeps them on disk.
    await readFacts(nodes, { ...config.store, allowNoPersistence: true });
    return work(nodes);
  });
}
