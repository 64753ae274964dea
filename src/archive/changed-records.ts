import type { Redis } from "ioredis";
import { accountNames, keyNames, partitionNames, requestName } from "../records/names.ts";
import { type AccountFields, type KeyFields, type RequestRecord, requestOf } from "../records/records.ts";
import { many, membersOf, pages } from "../redis/pipelines.ts";
import type { Primary } from "../redis/primary.ts";
import { note } from "../scripts/archive.ts";
import { ENDPOINTS_SETTING, endpointsToArchive } from "./archived-endpoints.ts";

/** An account or key; a lost one has no fields. `changes`: number of changes noted before the read. */
export type ChangedRecord = { what: string; changes: string; id: string } & (
  | { kind: "account"; record: AccountFields }
  | { kind: "key"; record: KeyFields }
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
  for (const changed of pages(all))
    await primary.command(() => primary.scripts.run(note, { partition, changed }));
}

export async function readChangedRecords(
  redis: Redis,
  partition: number,
  noted: readonly [what: string, changes: string][],
): Promise<ChangedRecord[]> {
  const places = noted.map(([what, changes]) => {
    const [kind = "", id = ""] = what.split(" ");
    return { what, changes, isAccount: kind === "account", id };
  });
  const records = await many<Readonly<Record<string, string>>, (typeof places)[number]>(
    redis,
    places,
    (pipe, { isAccount, id }) =>
      pipe.hgetall(isAccount ? accountNames(partition, id).account : keyNames(partition, id).key),
  );
  const accountIds = places.filter(({ isAccount }) => isAccount).map(({ id }) => id);
  const endpoints = await endpointsToArchive(redis, partition, accountIds);
  const endpointsOf = new Map(accountIds.map((id, at) => [id, endpoints[at]]));
  return places.map(({ what, changes, isAccount, id }, at) => {
    const [record, own] = [records[at]!, isAccount && endpointsOf.get(id)];
    if (!isAccount) return { what, changes, id, kind: "key", record };
    const withEndpoints = { ...record, ...(own && { [ENDPOINTS_SETTING]: own }) };
    return { what, changes, id, kind: "account", record: withEndpoints as AccountFields };
  });
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
