import type { Redis } from "ioredis";
import { accountNames, keyNames, partitionNames, requestName } from "../records/names.ts";
import type { AccountFields, KeyFields, RequestRecord } from "../records/records.ts";
import { requestOf } from "../records/requests.ts";
import { many, membersOf } from "../redis/pipelines.ts";
import type { Primary } from "../redis/primary.ts";
import { note } from "../scripts/archive.ts";
import { ENDPOINTS_SETTING, endpointsToArchive } from "./archived-endpoints.ts";

/** An account or key; a lost one has no fields. `changes`: number of changes noted before the read. */
export type ChangedRecord = { what: string; changes: string } & (
  | { kind: "account"; accountId: string; record: AccountFields }
  | { kind: "key"; keyId: string; record: KeyFields }
);

export type NamedPages = AsyncIterable<readonly string[]>;

const LISTED_AT_ONCE = 500;

/** Notes all accounts and keys as changed, then the generation as listed. @param archived those in the archive, which the store may have lost */
export async function noteAllChanged(
  primary: Primary,
  partition: number,
  { generation, archived }: { generation: string; archived: NamedPages },
): Promise<void> {
  const { accounts } = partitionNames(partition);
  let cursor = "0";
  do {
    const [next, flat] = await primary.command((redis) =>
      redis.zscan(accounts, cursor, "COUNT", LISTED_AT_ONCE),
    );
    const accountIds = membersOf(flat);
    const keys = await primary.command((redis) =>
      many<string[], string>(redis, accountIds, (pipe, accountId) =>
        pipe.zrange(accountNames(partition, accountId).keys, "0", "-1"),
      ),
    );
    await noteChanged(primary, partition, [
      ...accountIds.map((id) => `account ${id}`),
      ...keys.flat().map((id) => `key ${id}`),
    ]);
    cursor = next;
  } while (cursor !== "0");
  for await (const page of archived) await noteChanged(primary, partition, page);
  const listed = { partition, generation, record: { listed: generation } };
  await primary.command(() => primary.scripts.run(note, listed));
}

async function noteChanged(primary: Primary, partition: number, all: readonly string[]): Promise<void> {
  for (let at = 0; at < all.length; at += LISTED_AT_ONCE) {
    const changed = all.slice(at, at + LISTED_AT_ONCE);
    await primary.command(() => primary.scripts.run(note, { partition, changed }));
  }
}

export async function readChangedRecords(
  redis: Redis,
  partition: number,
  noted: readonly [what: string, changes: string][],
): Promise<ChangedRecord[]> {
  const places = noted.map(([what, changes]) => {
    const [kind = "", id = ""] = what.split(" ");
    const isAccount = kind === "account";
    const name = isAccount ? accountNames(partition, id).account : keyNames(partition, id).key;
    return { what, changes, isAccount, id, name };
  });
  const records = await many<Readonly<Record<string, string>>, { name: string }>(
    redis,
    places,
    (pipe, { name }) => pipe.hgetall(name),
  );
  const accountIds = places.filter(({ isAccount }) => isAccount).map(({ id }) => id);
  const endpoints = await endpointsToArchive(redis, partition, accountIds);
  const endpointsOf = new Map(accountIds.map((id, at) => [id, endpoints[at]]));
  const accountRecord = (id: string, record: Readonly<Record<string, string>>): AccountFields => {
    const own = endpointsOf.get(id);
    const withEndpoints: Readonly<Record<string, string>> = {
      ...record,
      ...(own && { [ENDPOINTS_SETTING]: own }),
    };
    return withEndpoints;
  };
  return places.map(({ what, changes, isAccount, id }, at) =>
    isAccount
      ? { what, changes, kind: "account", accountId: id, record: accountRecord(id, records[at]!) }
      : { what, changes, kind: "key", keyId: id, record: records[at]! },
  );
}

export interface EndedRequest {
  requestId: string;
  record: RequestRecord;
}

/** Their BIND may still come; they are copied once they may be collected. */
const UNKNOWN_OUTCOMES: ReadonlySet<string | undefined> = new Set(["due", "released"]);

export async function readEndedRequests(
  redis: Redis,
  { partition, generation }: { partition: number; generation: string },
  ids: readonly string[],
  isDue: boolean,
): Promise<EndedRequest[]> {
  const records = await many<string | null, string>(redis, ids, (pipe, id) =>
    pipe.get(requestName(partition, id)),
  );
  return records.flatMap((stored, at) => {
    const record = requestOf(stored);
    const { state, reason } = record;
    if (state !== "finished" && state !== "void") return [];
    if (record.archived === `${generation}/${state}`) return [];
    if (state === "void" && !isDue && UNKNOWN_OUTCOMES.has(reason)) return [];
    return [{ requestId: ids[at]!, record }];
  });
}
