import type { KeyRecord } from "../store/keys.ts";
import { iso, paint } from "./terminal.ts";

export const KEY_STATUSES = ["active", "expired", "revoked"] as const;
export type KeyStatus = (typeof KEY_STATUSES)[number];

/** What has become of a key, by this machine's clock. */
export function statusOf({ revokedAtMs, expiresAtMs }: KeyRecord): KeyStatus {
  if (revokedAtMs !== undefined) return "revoked";
  return expiresAtMs !== undefined && expiresAtMs <= Date.now() ? "expired" : "active";
}

const COLOURS = { active: "green", expired: "yellow", revoked: "red" } as const;

/** The same for a table. */
export const statusText = (key: KeyRecord): string => paint(COLOURS[statusOf(key)], statusOf(key));

/** A key as it is printed: never its digest. Absent limits are the tier's. */
export function shown(key: KeyRecord): Record<string, unknown> {
  const { keyId, accountId, tier, limits, createdAtMs, expiresAtMs, revokedAtMs, rotatedTo } = key;
  return {
    key_id: keyId,
    account_id: accountId,
    tier,
    status: statusOf(key),
    rate_limit: limits.rateLimit,
    max_concurrent: limits.maxConcurrent,
    daily_limit: limits.dailyLimit,
    created_at: iso(createdAtMs),
    expires_at: iso(expiresAtMs),
    revoked_at: iso(revokedAtMs),
    rotated_to: rotatedTo,
  };
}
