import { monthOf } from "../domain/moments.ts";
import { partitionOf } from "../records/names.ts";
import { countersText } from "../records/packed-fields.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import { type RestoredKey, restoreKeys } from "./restoring.ts";
import type { KeyRow } from "./rows.ts";
import type { ArchiveQuery } from "./tables.ts";

const PAGE = 2000;

/** Requires restored accounts and running tasks. */
export async function copyKeys(query: ArchiveQuery, nodes: RedisNodes, partitions: number): Promise<number> {
  const spent = await spentThisMonth(query);
  let copied = 0;
  await query("DECLARE keys NO SCROLL CURSOR FOR SELECT * FROM tollgate.api_keys");
  for (;;) {
    const rows = await query<KeyRow>(`FETCH ${PAGE} FROM keys`);
    if (rows.length === 0) break;
    await restoreKeys(
      nodes,
      rows.map((row) => keyOf(row, partitions, spent)),
    );
    copied += rows.length;
  }
  await query("CLOSE keys");
  return copied;
}

function keyOf(row: KeyRow, partitions: number, { month, byKey, firstOf }: Spent): RestoredKey {
  const { account_id, sha256, tier, limits, rotated_to } = row;
  const first = firstOf(row.key_id);
  const moment = (at: Date | null): string | null => at && String(at.getTime());
  const fields = {
    ...row.settings,
    ...limits,
    ...{ account_id, sha256, tier, rotated_to },
    created_at: moment(row.created_at),
    expires_at: moment(row.expires_at),
    revoked_at: moment(row.revoked_at),
    ...(first === row.key_id
      ? { month: String(month), counters: countersText({ spent: String(byKey.get(first) ?? 0) }) }
      : { spends_in: first }),
  };
  const record = Object.fromEntries(
    Object.entries(fields).flatMap(([name, value]) => (value === null ? [] : [[name, value]])),
  );
  return { partition: partitionOf(account_id, partitions), keyId: row.key_id, record };
}

interface Spent {
  month: number;
  /** Key: the first of the keys that replaced each other, because they share a cap. */
  byKey: ReadonlyMap<string, number>;
  firstOf(keyId: string): string;
}

const SPENT = `
  SELECT key_id, (-sum(amount))::bigint AS credits FROM tollgate.ledger_entries charge
  WHERE kind = 'charge' AND key_id IS NOT NULL AND at >= $1 AND coalesce((
    SELECT sum(refund.amount) FROM tollgate.ledger_entries refund
    WHERE refund.request_id = charge.request_id AND refund.kind = 'refund'), 0) <= 0
  GROUP BY key_id`;

async function spentThisMonth(query: ArchiveQuery): Promise<Spent> {
  const now = new Date();
  const began = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth()));
  const rows = await query<{ key_id: string; credits: string }>(SPENT, [began]);
  const replaced = await query<{ key_id: string; rotated_to: string }>(
    "SELECT key_id, rotated_to FROM tollgate.api_keys WHERE rotated_to IS NOT NULL",
  );
  const earlier = new Map(replaced.map(({ key_id, rotated_to }) => [rotated_to, key_id]));
  const firstOf = (keyId: string): string => {
    let first = keyId;
    for (let before = earlier.get(first); before !== undefined; before = earlier.get(first)) first = before;
    return first;
  };
  const byKey = new Map<string, number>();
  for (const { key_id, credits } of rows) {
    const first = firstOf(key_id);
    byKey.set(first, (byKey.get(first) ?? 0) + Number(credits));
  }
  return { month: monthOf(now.getTime()), byKey, firstOf };
}
