import { rmSync } from "node:fs";
import type { Redis } from "ioredis";
import type { Limits } from "../src/domain/limits.ts";
import type { IssuedKey } from "../src/operations/keys/issue-key.ts";
import type { Tree } from "./tree.ts";
import { journalOf, type World } from "./world.ts";

/** Keys made at a time. */
const BATCH = 100;

/** Room for anything that a run may send. */
export const GENEROUS: Limits = {
  rate_limit: 1_000_000,
  max_concurrent: 1_000_000,
  daily_limit: 1_000_000_000,
};

/**
 * Forgets everything but the scripts, and what gateways have kept of this store on disk. None may be running. The turn to check the ledger is taken, as if by another gateway: that check is a
 * process of its own, which would begin in the middle of whatever is measured.
 */
export async function emptyStore(world: World): Promise<void> {
  await world.redis.flushall();
  rmSync(journalOf(world), { recursive: true, force: true });
}

/** Issues keys, each of its own account with a billion credits, as the command line would. */
export async function issueKeys(
  tree: Tree,
  redis: Redis,
  count: number,
  limits: Limits = GENEROUS,
): Promise<IssuedKey[]> {
  const keys: IssuedKey[] = [];
  while (keys.length < count) {
    const batch = Array.from({ length: Math.min(BATCH, count - keys.length) }, () =>
      tree.issueKey(redis, { credits: 1_000_000_000, limits }),
    );
    keys.push(...(await Promise.all(batch)));
  }
  return keys;
}
