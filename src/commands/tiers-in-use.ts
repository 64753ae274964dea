import type { Config } from "../config/config.ts";
import type { ConfigProblem } from "../config/problems.ts";
import { missingTiers, tierProblems } from "../config/tiers-in-use.ts";
import { hostsIn } from "../domain/redis-address.ts";
import { gapsInWords, readTierCounts } from "../operations/keys/tier-counts.ts";
import { onOwnNodes } from "../redis/open-nodes.ts";
import { storeReason } from "../redis/reasons.ts";

const COMMAND_TIMEOUT_MS = 2000;

interface TiersInUse {
  problems: ConfigProblem[];
  notChecked?: string;
}

/** Reads only, and gives up within seconds. @param file as an operator would type it */
export async function tiersInUse({ tiers, store }: Config, file: string): Promise<TiersInUse> {
  const place = hostsIn(store.redisUrl);
  try {
    const counts = await onOwnNodes(store, COMMAND_TIMEOUT_MS, readTierCounts);
    const { keys: keysByTier } = counts;
    const problems = tierProblems(missingTiers(keysByTier, tiers), { keysByTier, tiers, file });
    const gaps = gapsInWords(counts);
    return gaps === undefined ? { problems } : { problems, notChecked: gaps };
  } catch (error) {
    const notChecked = `whether keys use other tiers is not known: Redis at ${place} cannot be asked (${storeReason(error).why})`;
    return { problems: [], notChecked };
  }
}
