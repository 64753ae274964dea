import type { Config } from "../../config/config.ts";
import { keysUse, missingTiers } from "../../config/tiers-in-use.ts";
import { readTierCounts } from "../../operations/keys/tier-counts.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { gapsInWords } from "../tiers-in-use.ts";
import { type Check, failed, good, warning } from "./doctor-check.ts";

const NAME = "tiers";
const NAMED_MAX = 5;

/** Whether the configuration names every tier that keys use. */
export async function tiersCheck(nodes: RedisNodes, { tiers }: Pick<Config, "tiers">): Promise<Check> {
  const counts = await readTierCounts(nodes);
  const missing = missingTiers(counts.keys, tiers);
  if (missing.length > 0) {
    const named = missing.slice(0, NAMED_MAX).map(({ tier, keys }) => `${keysUse(keys)} tier ${tier}`);
    if (missing.length > NAMED_MAX) named.push(`${missing.length - NAMED_MAX} more tiers`);
    return failed(
      NAME,
      `${named.join(", ")}, which the config does not name: they have the limits of standard`,
      "add the tier to the config, with deprecated: true if no new key should get it; or move its keys with `tollgate keys set`",
    );
  }
  const gaps = gapsInWords(counts);
  if (gaps !== undefined) return warning(NAME, gaps, "run this again once a gateway has run for a minute");
  return good(NAME, "the config names every tier that keys use");
}
