import type { Actor } from "../../records/actor.ts";
import { OperatorError } from "../../records/operator-error.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { revoke } from "../../scripts/revoke.ts";
import type { KeyRecord } from "./keys.ts";

/** Revokes a key permanently, from its next request on. */
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

export const alreadyRevoked = (key: KeyRecord): OperatorError =>
  new OperatorError(
    `key ${key.keyId} is revoked for good; create a new one`,
    "conflict",
    undefined,
    "`tollgate keys create` does",
  );
