import type { Actor } from "../../records/actor.ts";
import { keyNames } from "../../records/names.ts";
import { OperatorError } from "../../records/operator-error.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { storeNowMs } from "../../redis/server-clock.ts";
import { change } from "../../scripts/change.ts";
import { requireUnrevoked, revokeKey } from "./change-key.ts";
import { type IssuedKey, issueKey } from "./issue-key.ts";
import type { KeyRecord } from "./keys.ts";

/**
 * Replaces a key by one with the same account, tier, own limits, cap and expiry, with a window, slots and day of its
 * own; the cap of the month counts both. A key is rotated once, so that a repeat leaves no second one. @param
 * overlapMs 0 revokes the old key at once @throws OperatorError for a key that is revoked, expired or rotated
 */
export async function rotateKey(
  nodes: RedisNodes,
  old: KeyRecord,
  overlapMs: number,
  actor: Actor,
  keysMax?: number,
): Promise<IssuedKey & { oldEndsAtMs: number }> {
  // A rotation without overlap has revoked it.
  if (old.rotatedTo !== undefined) throw await rotatedError(nodes, old, old.rotatedTo);
  requireUnrevoked(old);
  const redis = nodes.of(old.partition);
  const nowMs = await storeNowMs(redis);
  const { accountId, tier, limits, expiresAtMs, label } = old;
  if (expiresAtMs !== undefined && expiresAtMs <= nowMs) {
    throw new OperatorError(
      `key ${old.keyId} has expired; \`tollgate keys create\` makes a new one`,
      "key_expired",
    );
  }
  // After a crash in between there are two valid keys, not none.
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

/** A repeat after an unconfirmed rotation must be confirmed, too. */
async function rotatedError(nodes: RedisNodes, old: KeyRecord, newKeyId: string): Promise<OperatorError> {
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
    "key_rotated",
    undefined,
    end,
  );
}
