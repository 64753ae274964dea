import { restrictionsText } from "../../domain/key-restrictions.ts";
import { byLimit, LIMITS, type LimitChanges } from "../../domain/limits.ts";
import type { Actor } from "../../records/actor.ts";
import { changedMeanwhile, OperatorError } from "../../records/operator-error.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { storeNowMs } from "../../redis/server-info.ts";
import type { RedisNodes } from "../../redis/store-facts.ts";
import { change, revoke } from "../../scripts/keys.ts";
import {
  checkedRestrictions,
  given,
  requireExpiry,
  requireFutureExpiry,
  requireLabel,
  requireLimits,
} from "../access/operator-values.ts";
import { type IssuedKey, issueKey } from "./issue-key.ts";
import { type KeyRecord, readKey } from "./keys.ts";

/** Null resets a limit to the tier's, or removes a cap, label or expiry. */
export interface KeyChanges {
  tier?: string | undefined;
  label?: string | null | undefined;
  limits?: LimitChanges | undefined;
  expiresAtMs?: number | null | undefined;
  /** Null allows all, undefined keeps what there is. In any spelling. */
  allowedEndpoints?: readonly string[] | null | undefined;
  allowedAddresses?: readonly string[] | null | undefined;
}

/** @throws OperatorError `invalid`, also for a new expiry in the past; `conflict` for a revoked key; `stale` */
export async function changeKey(
  nodes: RedisNodes,
  key: KeyRecord,
  changes: KeyChanges,
  actor: Actor,
  ifRevisions?: readonly number[],
): Promise<"changed" | "unchanged"> {
  requireUnrevoked(key);
  const { tier, label, limits = {}, expiresAtMs } = changes;
  requireLabel(label ?? undefined);
  requireLimits(limits);
  requireExpiry(expiresAtMs ?? undefined);
  const redis = nodes.of(key.partition);
  // A value that is written back may have passed meanwhile.
  if (typeof expiresAtMs === "number" && expiresAtMs !== key.expiresAtMs) {
    requireFutureExpiry(expiresAtMs, await storeNowMs(redis));
  }
  const fields = given<string | number | null>({
    tier,
    label,
    ...byLimit(LIMITS, ({ name }) => limits[name]),
    expires_at: expiresAtMs,
    ...changedRestrictions(key, changes),
  });
  nodes.requireWritable?.([redis]);
  const { outcome } = await scriptsOf(redis).run(change, {
    ...key,
    // The two kinds of restrictions are one field, so that the kind that stays is that of the record which is changed.
    ifRevisions: ifRevisions ?? (fields.restrictions === undefined ? undefined : [key.revision]),
    fields,
    actor,
  });
  switch (outcome) {
    case "changed":
    case "unchanged":
      return outcome;
    case "stale": {
      const latest = ifRevisions ? undefined : await readKey(nodes, key.keyId, key.accountId);
      if (latest && latest.revision !== key.revision) return changeKey(nodes, latest, changes, actor);
      throw changedMeanwhile(`key ${key.keyId}`);
    }
    case "revoked":
      throw alreadyRevoked(key);
    case "missing":
      throw new OperatorError(`there is no key ${key.keyId}`, "not_found");
  }
}

function changedRestrictions(
  { restrictions }: KeyRecord,
  { allowedEndpoints, allowedAddresses }: KeyChanges,
): { restrictions?: string | null } {
  if (allowedEndpoints === undefined && allowedAddresses === undefined) return {};
  const { endpoints, addresses } = checkedRestrictions({ allowedEndpoints, allowedAddresses });
  const changed = {
    endpoints: allowedEndpoints === undefined ? restrictions.endpoints : endpoints,
    addresses: allowedAddresses === undefined ? restrictions.addresses : addresses,
  };
  return { restrictions: restrictionsText(changed) ?? null };
}

export async function revokeKey(
  nodes: RedisNodes,
  key: KeyRecord,
  actor: Actor,
): Promise<"revoked" | "already_revoked"> {
  const redis = nodes.of(key.partition);
  nodes.requireWritable?.([redis]);
  const outcome = await scriptsOf(redis).run(revoke, { ...key, actor });
  if (outcome === "missing") throw new OperatorError(`there is no key ${key.keyId}`, "not_found");
  return outcome;
}

function requireUnrevoked(key: KeyRecord): void {
  if (key.revokedAtMs !== undefined) throw alreadyRevoked(key);
}

const alreadyRevoked = (key: KeyRecord): OperatorError =>
  new OperatorError(
    `key ${key.keyId} is revoked for good; create a new one`,
    "key_revoked",
    undefined,
    "`tollgate keys create` does",
  );

/**
 * The new key has window, slots and day of its own; the monthly cap counts both. Once per key: a repeat leaves no second one.
 * @param overlapMs 0 revokes the old key at once @throws OperatorError for a key that is revoked, expired or rotated
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
  const { accountId, tier, limits, expiresAtMs, label, restrictions } = old;
  if (expiresAtMs !== undefined && expiresAtMs <= nowMs) {
    throw new OperatorError(
      `key ${old.keyId} has expired; \`tollgate keys create\` makes a new one`,
      "key_expired",
    );
  }
  const spendsIn = old.spendsIn ?? old.keyId;
  const oldEndsAtMs = Math.min(nowMs + overlapMs, expiresAtMs ?? Number.MAX_SAFE_INTEGER);
  const end = { field: overlapMs === 0 ? "revoked_at" : "expires_at", atMs: oldEndsAtMs } as const;
  // The new key has what the old one had when it was read.
  const replaces = { keyId: old.keyId, revision: old.revision, end };
  const options = { accountId, tier, limits, expiresAtMs, label, restrictions, spendsIn, keysMax, replaces };
  try {
    return { ...(await issueKey(nodes, options, actor)), oldEndsAtMs };
  } catch (error) {
    if (!(error instanceof OperatorError && error.code === "stale")) throw error;
    const latest = await readKey(nodes, old.keyId, accountId);
    if (!latest) throw new OperatorError(`there is no key ${old.keyId}`, "not_found");
    return rotateKey(nodes, latest, overlapMs, actor, keysMax);
  }
}

/** A repeat after an unconfirmed rotation must be confirmed, too. */
async function rotatedError(
  nodes: RedisNodes,
  { keyId, revokedAtMs }: KeyRecord,
  newKeyId: string,
): Promise<OperatorError> {
  if ((await nodes.confirmed?.()) === false)
    return new OperatorError(
      `key ${keyId} was rotated into ${newKeyId}, but too few replicas have that, and a failover may lose it; repeat this when they are back`,
      "unavailable",
      undefined,
      "see `tollgate doctor`",
    );
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
