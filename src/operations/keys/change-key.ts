import { byLimit, LIMITS, type LimitChanges } from "../../domain/limits.ts";
import type { Actor } from "../../records/actor.ts";
import { OperatorError } from "../../records/operator-error.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { storeNowMs } from "../../redis/server-clock.ts";
import { change } from "../../scripts/change.ts";
import { revoke } from "../../scripts/revoke.ts";
import {
  requireExpiry,
  requireFutureExpiry,
  requireLabel,
  requireLimits,
} from "../access/operator-values.ts";
import type { KeyRecord } from "./keys.ts";

/** Null resets a limit to the tier's, or removes a cap, label or expiry. */
interface KeyChanges {
  tier?: string | undefined;
  label?: string | null | undefined;
  limits?: LimitChanges | undefined;
  expiresAtMs?: number | null | undefined;
}

/**
 * Unchanged values leave no audit record. @throws OperatorError `invalid`, also for a new expiry in the past;
 * `conflict` for a revoked key; `stale` for another revision
 */
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
  const wanted = {
    tier,
    label,
    ...byLimit(LIMITS, ({ name }) => limits[name]),
    expires_at: expiresAtMs,
  };
  const given = Object.entries(wanted).filter((entry): entry is [string, string | number | null] => {
    return entry[1] !== undefined;
  });
  nodes.requireWritable?.([redis]);
  const { outcome } = await scriptsOf(redis).run(change, {
    ...key,
    unless: "revoked_at",
    ifRevisions,
    fields: Object.fromEntries(given),
    actor,
  });
  switch (outcome) {
    case "changed":
    case "unchanged":
      return outcome;
    case "stale":
      throw new OperatorError(
        `key ${key.keyId} was changed meanwhile; read it again, then change it`,
        "stale",
      );
    case "kept":
      throw alreadyRevoked(key);
    case "missing":
      throw new OperatorError(`there is no key ${key.keyId}`, "not_found");
  }
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

export function requireUnrevoked(key: KeyRecord): void {
  if (key.revokedAtMs !== undefined) throw alreadyRevoked(key);
}

const alreadyRevoked = (key: KeyRecord): OperatorError =>
  new OperatorError(
    `key ${key.keyId} is revoked for good; create a new one`,
    "key_revoked",
    undefined,
    "`tollgate keys create` does",
  );
