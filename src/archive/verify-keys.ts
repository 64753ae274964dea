import type { Redis } from "ioredis";
import { LIMITS } from "../domain/limits.ts";
import type { Report } from "../ledger/fold.ts";
import { accountNames, archiveNames, keyNames, partitionNames } from "../records/names.ts";
import type { KeyFields } from "../records/records.ts";
import { many } from "../redis/pipelines.ts";
import { listPages } from "../redis/sorted-set-pages.ts";
import { archivableMs, archivableText, type KeyRow } from "./rows.ts";
import type { ArchiveQuery } from "./tables.ts";

const PAGE = 500;

type ComparedRow = Omit<KeyRow, "created_at">;

const KEYS = `
  SELECT key_id, account_id, sha256, tier, limits, expires_at, revoked_at, rotated_to, settings
  FROM tollgate.api_keys WHERE key_id = ANY($1)`;

const KEYS_AFTER = `
  SELECT key_id, account_id, gone FROM (
    SELECT DISTINCT ON (key_id) key_id, account_id, gone FROM tollgate.api_key_versions
    WHERE partition = $1 AND key_id > $2 ORDER BY key_id, version DESC
  ) latest ORDER BY key_id LIMIT ${PAGE}`;

/** Compares keys; one with an uncopied change is left out. @returns how many were compared */
export async function verifyArchivedKeys(
  redis: Redis,
  partition: number,
  { query, report, step }: { query: ArchiveQuery; report: Report; step(): Promise<void> },
): Promise<number> {
  let compared = 0;
  for await (const accountIds of listPages(redis, partitionNames(partition).accounts)) {
    const owned = await many<string[], string>(redis, accountIds, (pipe, accountId) =>
      pipe.zrange(accountNames(partition, accountId).keys, "0", "-1"),
    );
    const keyIds = owned.flat();
    const archived = new Map((await query<ComparedRow>(KEYS, [keyIds])).map((row) => [row.key_id, row]));
    const stored = await many<KeyFields, string>(redis, keyIds, (pipe, keyId) =>
      pipe.hgetall(keyNames(partition, keyId).key),
    );
    const differing = keyIds.filter(
      (keyId, at) => differenceOf(stored[at]!, archived.get(keyId)) !== undefined,
    );
    // After the reads: earlier changes are noted there, or copied by now.
    const again = new Map((await query<ComparedRow>(KEYS, [differing])).map((row) => [row.key_id, row]));
    for (const keyId of differing) {
      const noted = await redis.hexists(archiveNames(partition).changed, `key ${keyId}`);
      const fields: KeyFields = await redis.hgetall(keyNames(partition, keyId).key);
      const difference = differenceOf(fields, again.get(keyId));
      if (noted === 0 && difference !== undefined)
        report("archive", fields.account_id ?? "", `key ${keyId}: ${difference}`);
    }
    compared += keyIds.length;
    await step();
  }
  await findLostKeys(redis, partition, { query, report, step });
  return compared;
}

/** Reports archived keys that the store has lost. */
async function findLostKeys(
  redis: Redis,
  partition: number,
  { query, report, step }: { query: ArchiveQuery; report: Report; step(): Promise<void> },
): Promise<void> {
  let last: string | undefined = "";
  while (last !== undefined) {
    const page: { key_id: string; account_id: string; gone: boolean }[] = await query(KEYS_AFTER, [
      partition,
      last,
    ]);
    const current = page.filter(({ gone }) => !gone);
    const stored = await many<number, { key_id: string }>(redis, current, (pipe, { key_id }) =>
      pipe.exists(keyNames(partition, key_id).key),
    );
    for (const { key_id, account_id } of current.filter((_, at) => stored[at] === 0)) {
      const noted = await redis.hexists(archiveNames(partition).changed, `key ${key_id}`);
      if (noted === 0) report("archive", account_id, `key ${key_id}: is in the archive, and not in Redis`);
    }
    await step();
    last = page.length < PAGE ? undefined : page.at(-1)?.key_id;
  }
}

function differenceOf(fields: KeyFields, row: ComparedRow | undefined): string | undefined {
  if (fields.account_id === undefined) return undefined;
  if (!row) return "is not in the archive";
  const pairs: [name: string, stored: string | undefined, archived: string | null | undefined][] = [
    ["account", fields.account_id, row.account_id],
    ["sha256", fields.sha256, row.sha256],
    ["tier", archivableText(fields.tier ?? ""), row.tier],
    ...LIMITS.map(
      ({ name }) =>
        [name, fields[name], row.limits[name]] as [string, string | undefined, string | undefined],
    ),
    ["expires_at", momentText(fields.expires_at), row.expires_at && String(row.expires_at.getTime())],
    ["revoked_at", momentText(fields.revoked_at), row.revoked_at && String(row.revoked_at.getTime())],
    ["restrictions", fields.restrictions, row.settings.restrictions],
    ["rotated_to", fields.rotated_to, row.rotated_to],
  ];
  const differs = pairs.filter(([, stored = "", archived]) => stored !== (archived ?? ""));
  if (differs.length === 0) return undefined;
  return differs
    .map(([name, stored, archived]) => `${name} ${archived} in the archive, ${stored} in Redis`)
    .join(", ");
}

function momentText(ms: string | undefined): string | undefined {
  const atMs = archivableMs(ms);
  return atMs === undefined ? undefined : String(atMs);
}
