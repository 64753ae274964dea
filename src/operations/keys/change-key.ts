import { byLimit, LIMITS, type LimitChanges } from "../../domain/limits.ts";
import type { Actor } from "../../records/actor.ts";
import { OperatorError } from "../../records/operator-error.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { storeNowMs } from "../../redis/server-clock.ts";
import { change } from "../../scripts/change.ts";
import {
  requireExpiry,
  requireFutureExpiry,
  requireLabel,
  requireLimits,
} from "../access/operator-values.ts";
import type { KeyRecord } from "./keys.ts";
import { alreadyRevoked, requireUnrevoked } from "./revoke-key.ts";

/** What `changeKey` may change; null resets a limit to the tier's, or removes a cap, label or expiry. */
export interface KeyChanges {
  tier?: string | undefined;
  label?: string | null | undefined;
  limits?: LimitChanges | undefined;
  expiresAtMs?: number | null | undefined;
}

/**
 * Changes a key, from its next request on. What is like that already changes nothing, and leaves no audit record.
 * @param ifRevisions the revisions that the caller has seen
 * @throws OperatorError `invalid` for a value that makes no sense or another expiry that has passed, `conflict` for a revoked key,
 * `stale` when the key has another revision
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
  // Whoever writes back what was read, or repeats a change, may send an expiry that has passed meanwhile.
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
