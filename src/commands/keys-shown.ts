import type { AccountRefusals } from "../operations/accounts/refusals.ts";
import type { KeyRecord } from "../operations/keys/keys.ts";
import { iso, type PaintedCell, table } from "./terminal.ts";

export const KEY_STATUSES = ["active", "expired", "revoked"] as const;
export type KeyStatus = (typeof KEY_STATUSES)[number];

/** What has become of a key, by this machine's clock. */
export function statusOf({ revokedAtMs, expiresAtMs }: KeyRecord): KeyStatus {
  if (revokedAtMs !== undefined) return "revoked";
  return expiresAtMs !== undefined && expiresAtMs <= Date.now() ? "expired" : "active";
}

const COLOURS = { active: "green", expired: "yellow", revoked: "red" } as const;

/** The same for a table. */
export const statusText = (key: KeyRecord): PaintedCell => ({
  style: COLOURS[statusOf(key)],
  text: statusOf(key),
});

/** Rows of refusals that are printed. */
const REFUSALS_SHOWN_MAX = 20;

/** Refusals by hour as `--json` prints them, latest first. */
export const refusalsJson = ({ hours, uncounted }: AccountRefusals) => ({
  refusals: hours.map(({ atMs, keyId, outcome, count }) => ({
    hour: iso(atMs),
    key_id: keyId,
    outcome,
    count,
  })),
  uncounted_refusals: uncounted || undefined,
});

/** The same as a table; nothing without any. */
export function refusalsText({ hours, uncounted }: AccountRefusals): string[] {
  if (hours.length === 0) return [];
  const rows = hours
    .slice(0, REFUSALS_SHOWN_MAX)
    .map(({ atMs, keyId, outcome, count }) => [iso(atMs), keyId, outcome, count]);
  const more = hours.length - rows.length;
  return [
    table(["REFUSED IN THE HOUR OF", "KEY ID", "OUTCOME", "TIMES"], rows),
    ...(more > 0 ? [`${more} earlier rows of the last eight days: --json has them.`] : []),
    ...(uncounted > 0 ? [`${uncounted} refusals of this and other accounts had no room in the counts.`] : []),
  ];
}

/** A key as it is printed: never its digest. Absent limits are the tier's. */
export function shown(key: KeyRecord): Record<string, unknown> {
  const { keyId, accountId, tier, limits, createdAtMs, expiresAtMs, revokedAtMs, rotatedTo } = key;
  return {
    key_id: keyId,
    account_id: accountId,
    label: key.label,
    tier,
    status: statusOf(key),
    ...limits,
    spent_this_month: key.spentThisMonth,
    created_at: iso(createdAtMs),
    expires_at: iso(expiresAtMs),
    revoked_at: iso(revokedAtMs),
    rotated_to: rotatedTo,
  };
}
