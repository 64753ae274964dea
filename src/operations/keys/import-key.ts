import type { Actor } from "../../records/actor.ts";
import { partitionOf } from "../../records/names.ts";
import { OperatorError } from "../../records/operator-error.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { storeNowMs } from "../../redis/server-clock.ts";
import { partitionsOf } from "../../redis/store-facts.ts";
import { requireFutureExpiry } from "../access/operator-values.ts";
import { requireAccount } from "../accounts/accounts.ts";
import { issueKey, type KeyOptions, KnownKeyError } from "./issue-key.ts";

/**
 * Takes over a key that customers have already. A repeat makes no second one, and changes nothing. @param requireNew
 * checks a new key, not a repeat @throws OperatorError `not_found` for an unknown account, `conflict` for a key of
 * another one
 */
export async function importKey(
  nodes: RedisNodes,
  options: Omit<KeyOptions, "credits"> & { accountId: string; token: string },
  actor: Actor,
  requireNew: () => void,
): Promise<{ keyId: string; isNew: boolean }> {
  const { accountId, expiresAtMs } = options;
  await requireAccount(nodes, accountId);
  try {
    requireNew();
    if (expiresAtMs !== undefined) {
      const redis = nodes.of(partitionOf(accountId, await partitionsOf(nodes)));
      requireFutureExpiry(expiresAtMs, await storeNowMs(redis));
    }
    const { keyId } = await issueKey(nodes, options, actor);
    return { keyId, isNew: true };
  } catch (error) {
    if (!(error instanceof KnownKeyError)) throw error;
    if (error.accountId === accountId) return { keyId: error.keyId, isNew: false };
    // Whose it is concerns only those who may see that account.
    throw new OperatorError("this key is another account's", "key_exists", "key");
  }
}
