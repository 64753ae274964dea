import type { Actor } from "../../records/actor.ts";
import { keyNames } from "../../records/names.ts";
import { OperatorError } from "../../records/operator-error.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { storeNowMs } from "../../redis/server-clock.ts";
import { change } from "../../scripts/change.ts";
import { type IssuedKey, issueKey } from "./issue-key.ts";
import type { KeyRecord } from "./keys.ts";
import { requireUnrevoked, revokeKey } from "./revoke-key.ts";

/**
 * Replaces a key by a new one with the same account, tier, own limits, cap and expiry. The old key expires after the overlap. The
 * new one has a window, slots and day of its own. What both spend counts together toward the cap of the month. A key is rotated once: a repeated command must not leave two new keys.
 * @param overlapMs how long the old key remains valid; 0 revokes it at once
 * @param keysMax how many keys the account may have; no bound when left out
 * @returns the new key, and when the old one ends, Unix ms
 * @throws OperatorError for a key that is revoked, expired or rotated
 */
export async function rotateKey(
  nodes: RedisNodes,
  old: KeyRecord,
  overlapMs: number,
  actor: Actor,
  keysMax?: number,
): Promise<IssuedKey & { oldEndsAtMs: number }> {
  // Before anything else: without an overlap the rotation has revoked it.
  if (old.rotatedTo !== undefined) throw await whyRotated(nodes, old, old.rotatedTo);
  requireUnrevoked(old);
  const redis = nodes.of(old.partition);
  const nowMs = await storeNowMs(redis);
  const { accountId, tier, limits, expiresAtMs, label } = old;
  if (expiresAtMs !== undefined && expiresAtMs <= nowMs) {
    throw new OperatorError(
      `key ${old.keyId} has expired; \`tollgate keys create\` makes a new one`,
      "conflict",
    );
  }
  // The new key first: after a crash in between there are two valid keys, not none.
  const spendsIn = old.spendsIn ?? old.keyId;
  const options = { accountId, tier, limits, expiresAtMs, label, spendsIn, keysMax };
  const issued = await issueKey(nodes, options, actor);
  const oldEndsAtMs = Math.min(nowMs + overlapMs, expiresAtMs ?? Number.MAX_SAFE_INTEGER);
  const end = overlapMs === 0 ? { revoked_at: nowMs } : { expires_at: oldEndsAtMs };
  const { outcome } = await scriptsOf(redis).run(change, {
    ...old,
    unless: "rotated_to",
    fields: { rotated_to: issued.keyId, ...end },
    action: "key.rotate",
    actor,
  });
  if (outcome === "kept") {
    await revokeKey(nodes, { ...old, keyId: issued.keyId }, actor);
    const { key } = keyNames(old.partition, old.keyId);
    throw rotatedBefore(old, (await redis.hget(key, "rotated_to")) ?? "another");
  }
  return { ...issued, oldEndsAtMs };
}

/** Who repeats a rotation that was not confirmed goes by the answer: a failover must not lose the new key after it. */
async function whyRotated(nodes: RedisNodes, old: KeyRecord, newKeyId: string): Promise<OperatorError> {
  if ((await nodes.confirmed?.()) !== false) return rotatedBefore(old, newKeyId);
  return new OperatorError(
    `key ${old.keyId} was rotated into ${newKeyId}, but too few replicas have that, and a failover may lose it; repeat this when they are back`,
    "unavailable",
    undefined,
    "see `tollgate doctor`",
  );
}

function rotatedBefore({ keyId, revokedAtMs }: KeyRecord, newKeyId: string): OperatorError {
  const end =
    revokedAtMs === undefined
      ? `\`tollgate keys set ${keyId} --expires\` moves the end of the old one`
      : undefined;
  return new OperatorError(
    `key ${keyId} was rotated before, into ${newKeyId}; nothing is changed. If the new key was lost, rotate ${newKeyId}`,
    "conflict",
    undefined,
    end,
  );
}
