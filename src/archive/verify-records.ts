import type { Redis } from "ioredis";
import { LIMITS } from "../domain/limits.ts";
import type { Report } from "../ledger/fold.ts";
import { accountNames, archiveNames, keyNames, partitionNames } from "../records/names.ts";
import type { AccountFields, KeyFields } from "../records/records.ts";
import { listPages, many } from "../redis/pipelines.ts";
import { ACCOUNT_SETTINGS, archivableMs, archivableText, type KeyRow } from "./rows.ts";
import type { ArchiveQuery } from "./tables.ts";

const PAGE = 500;

interface Verifying {
  query: ArchiveQuery;
  report: Report;
  step(): Promise<void>;
}

/** How records of one kind are found and compared. */
interface Kind<Fields, Row> {
  what: "account" | "key";
  nameOf(partition: number, id: string): string;
  /** By ids. */
  rows: string;
  idOf(row: Row): string;
  /** Undefined for none, or for a record that is gone. */
  difference(fields: Fields, row: Row | undefined): string | undefined;
}

interface AccountRow {
  account_id: string;
  settings: Record<string, string>;
}
type ComparedRow = Omit<KeyRow, "created_at">;

const ACCOUNT: Kind<AccountFields, AccountRow> = {
  what: "account",
  nameOf: (partition, id) => accountNames(partition, id).account,
  rows: "SELECT account_id, settings FROM tollgate.accounts WHERE account_id = ANY($1)",
  idOf: ({ account_id }) => account_id,
  difference: accountDifference,
};

const KEY: Kind<KeyFields, ComparedRow> = {
  what: "key",
  nameOf: (partition, id) => keyNames(partition, id).key,
  rows: `
    SELECT key_id, account_id, sha256, tier, limits, expires_at, revoked_at, rotated_to, settings
    FROM tollgate.api_keys WHERE key_id = ANY($1)`,
  idOf: ({ key_id }) => key_id,
  difference: keyDifference,
};

const KEYS_AFTER = `
  SELECT key_id, account_id, gone FROM (
    SELECT DISTINCT ON (key_id) key_id, account_id, gone FROM tollgate.api_key_versions
    WHERE partition = $1 AND key_id > $2 ORDER BY key_id, version DESC
  ) latest ORDER BY key_id LIMIT ${PAGE}`;

const LATEST = "SELECT gone FROM tollgate.api_key_versions WHERE key_id = $1 ORDER BY version DESC LIMIT 1";

/** Compares accounts and keys; one with an uncopied change is left out. @returns how many keys were compared */
export async function verifyRecords(redis: Redis, partition: number, to: Verifying): Promise<number> {
  let compared = 0;
  for await (const accountIds of listPages(redis, partitionNames(partition).accounts)) {
    const own = accountIds.map((accountId) => ({ id: accountId, accountId }));
    await compareRecords(redis, partition, ACCOUNT, own, to);
    const owned = await many<string[], string>(redis, accountIds, (pipe, accountId) =>
      pipe.zrange(accountNames(partition, accountId).keys, "0", "-1"),
    );
    const keys = owned.flatMap((ids, at) => ids.map((id) => ({ id, accountId: accountIds[at]! })));
    await compareRecords(redis, partition, KEY, keys, to);
    compared += keys.length;
    await to.step();
  }
  await findLostKeys(redis, partition, to);
  return compared;
}

async function compareRecords<Fields, Row>(
  redis: Redis,
  partition: number,
  kind: Kind<Fields, Row>,
  owned: readonly { id: string; accountId: string }[],
  { query, report }: Verifying,
): Promise<void> {
  const { what, nameOf, rows, idOf, difference } = kind;
  const found = await query<Row & object>(rows, [owned.map(({ id }) => id)]);
  const archived = new Map(found.map((row) => [idOf(row), row]));
  const stored = await many<Fields, { id: string }>(redis, owned, (pipe, { id }) =>
    pipe.hgetall(nameOf(partition, id)),
  );
  for (const [at, { id, accountId }] of owned.entries()) {
    if (difference(stored[at]!, archived.get(id)) === undefined) continue;
    const differs = await differenceThatStays(redis, partition, kind, id, query);
    if (differs !== undefined) report("archive", accountId, `${what} ${id}: ${differs}`);
  }
}

/**
 * Record, note, archive, record again: without a note the archive has all that the first reading saw, and what differs in
 * the same way from both readings did not change between them.
 */
async function differenceThatStays<Fields, Row>(
  redis: Redis,
  partition: number,
  { what, nameOf, rows, difference }: Kind<Fields, Row>,
  id: string,
  query: ArchiveQuery,
): Promise<string | undefined> {
  const read = async (): Promise<Fields> =>
    (await many<Fields, string>(redis, [id], (pipe) => pipe.hgetall(nameOf(partition, id))))[0]!;
  const before = await read();
  const isNoted = await isNotedAsChanged(redis, partition, `${what} ${id}`);
  const [row] = await query<Row & object>(rows, [[id]]);
  const differs = difference(await read(), row);
  return !isNoted && difference(before, row) === differs ? differs : undefined;
}

const isNotedAsChanged = async (redis: Redis, partition: number, what: string): Promise<boolean> =>
  (await redis.hexists(archiveNames(partition).changed, what)) === 1;

async function findLostKeys(
  redis: Redis,
  partition: number,
  { query, report, step }: Verifying,
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
      if (await isNotedAsChanged(redis, partition, `key ${key_id}`)) continue;
      // After the note: a key that was taken away meanwhile is gone there by now.
      const [again] = await query<{ gone: boolean }>(LATEST, [key_id]);
      if (again?.gone === false)
        report("archive", account_id, `key ${key_id}: is in the archive, and not in Redis`);
    }
    await step();
    last = page.length < PAGE ? undefined : page.at(-1)?.key_id;
  }
}

type Pair = readonly [name: string, stored: string | undefined, archived: string | null | undefined];

function accountDifference(fields: AccountFields, row: AccountRow | undefined): string | undefined {
  if (fields.money === undefined) return undefined;
  const stored: Readonly<Record<string, string | undefined>> = fields;
  return differenceOf(
    row && ACCOUNT_SETTINGS.map((name) => [name, archivableText(stored[name] ?? ""), row.settings[name]]),
  );
}

function keyDifference(fields: KeyFields, row: ComparedRow | undefined): string | undefined {
  if (fields.account_id === undefined) return undefined;
  if (!row) return differenceOf(undefined);
  return differenceOf([
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
    ["label", archivableText(fields.label ?? ""), row.settings.label],
  ]);
}

/** @param pairs undefined: there is no row */
function differenceOf(pairs: readonly Pair[] | undefined): string | undefined {
  if (!pairs) return "is not in the archive";
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
