import { badCursor, cursorOf, positionOf, requirePageSize } from "../../records/cursors.ts";
import { accountNames, partitionNames, partitionOf } from "../../records/names.ts";
import { noAccount, OperatorError } from "../../records/operator-error.ts";
import type { AccountRecord, AccountStatus } from "../../records/records.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { type PartitionReads, readsOfAll, readsOfMost, type Unread } from "../../redis/partition-reads.ts";
import { partitionsOf } from "../../redis/store-facts.ts";
import { requireAccountId } from "../access/operator-values.ts";
import { type KeyRecord, readKeys } from "../keys/keys.ts";
import { type AccountObject, accountObject } from "./operator-accounts.ts";
import { compareBytes, firstMembers, type Listed, lowerCase } from "./sorted-lists.ts";

const LOOKED_AT_MAX = 1000;
const BATCH = 100;

export interface AccountQuery {
  prefix?: string | undefined;
  /** The label begins with it; upper and lower case of A to Z are the same. */
  label?: string | undefined;
  status?: AccountStatus | undefined;
  cursor?: string | undefined;
  limit: number;
}

interface AccountPage {
  accounts: AccountObject[];
  next: string | undefined;
  /** Partitions whose accounts are missing, since their servers are away. */
  unread: Unread | undefined;
}

/**
 * A page of accounts, ordered by id; with `label` by label, then id. It may have fewer than `limit`, even none, and still a `next`:
 * a page looks at a bounded number of accounts.
 * @param own the only ones that whoever asks may see: few enough to read them all; undefined: all
 * @throws OperatorError for a bad prefix or limit, and for a cursor of another list
 */
export async function listAccounts(
  nodes: RedisNodes,
  { prefix = "", label, status, cursor, limit }: AccountQuery,
  own?: readonly string[],
): Promise<AccountPage> {
  requirePageSize(limit);
  if (prefix !== "") requireAccountId(prefix, "prefix");
  if (label === "") throw new OperatorError("label must not be empty", "invalid", "label");
  const list = ["accounts", prefix, label, status];
  let after = cursor === undefined ? "" : positionOf(list, cursor);
  if (own) return ownAccounts(nodes, own, { prefix, label, status, limit }, list, after);
  const source = sourceOf(prefix, label, status);
  const partitions = await partitionsOf(nodes);
  const reads = readsOfMost(nodes);
  const accounts: AccountObject[] = [];
  for (let lookedAt = 0; lookedAt < LOOKED_AT_MAX && accounts.length < limit; ) {
    // If the first ones are not all wanted, many may not be.
    const size = lookedAt === 0 ? limit : BATCH;
    const found = await firstMembers(reads, { partitions, after, ...source }, size);
    const candidates = await readAccounts(reads, found);
    let used = 0;
    for (; used < found.length && accounts.length < limit; used++) {
      const account = candidates[used];
      if (account && isAsked(account, { prefix, label, status })) accounts.push(account);
    }
    if (used === found.length && found.length < size)
      return { accounts, next: undefined, unread: reads.unread() };
    after = found[used - 1]?.member ?? after;
    lookedAt += size;
  }
  return { accounts, next: cursorOf(list, after), unread: reads.unread() };
}

/** The same of these accounts alone. @param after the place of the last one of the page before */
async function ownAccounts(
  nodes: RedisNodes,
  own: readonly string[],
  query: AccountQuery,
  list: readonly unknown[],
  after: string,
): Promise<AccountPage> {
  const partitions = await partitionsOf(nodes);
  const listed = own.map((member) => ({ member, partition: partitionOf(member, partitions) }));
  const reads = readsOfMost(nodes);
  const found = await readAccounts(reads, listed);
  const placed = found
    .filter((account) => account !== undefined)
    .filter((account) => isAsked(account, query))
    .map((account) => ({ account, place: placeOf(account, query) }))
    .filter(({ place }) => after === "" || compareBytes(place, after) > 0)
    .sort((one, other) => compareBytes(one.place, other.place));
  const shown = placed.slice(0, query.limit);
  const next = placed.length > shown.length ? cursorOf(list, shown.at(-1)!.place) : undefined;
  return { accounts: shown.map(({ account }) => account), next, unread: reads.unread() };
}

/** Where an account stands in the order of a list, as the store's own lists have it. */
const placeOf = ({ accountId, label }: AccountObject, query: AccountQuery): string =>
  query.label === undefined ? accountId : `${lowerCase(label ?? "")} ${accountId}`;

/** The list that has the fewest accounts besides those that are asked for. */
function sourceOf(prefix: string, label: string | undefined, status: AccountStatus | undefined) {
  if (label !== undefined)
    return { nameOf: (partition: number) => partitionNames(partition).labels, prefix: lowerCase(label) };
  if (status === "suspended" || status === "closed")
    return {
      nameOf: (partition: number) => partitionNames(partition).inactive,
      prefix: `${status} ${prefix}`,
    };
  return { nameOf: (partition: number) => partitionNames(partition).accounts, prefix };
}

/** Undefined for those that are not there any more, or could not be read. */
async function readAccounts(
  reads: PartitionReads,
  listed: readonly Listed[],
): Promise<(AccountObject | undefined)[]> {
  const places = listed.map(({ member, partition }) => ({ accountId: member.split(" ").at(-1)!, partition }));
  const records = await reads.many<AccountRecord, (typeof places)[number]>(
    places,
    (pipe, { accountId, partition }) => pipe.hgetall(accountNames(partition, accountId).account),
  );
  return records.map((record, at) =>
    record?.balance === undefined ? undefined : accountObject(places[at]!.accountId, record),
  );
}

function isAsked(account: AccountObject, { prefix, label, status }: Omit<AccountQuery, "limit">): boolean {
  if (!account.accountId.startsWith(prefix ?? "")) return false;
  if (label !== undefined && !lowerCase(account.label ?? "").startsWith(lowerCase(label))) return false;
  return status === undefined || account.status === status;
}

/**
 * A page of an account's keys in the order in which they were made, revoked and expired ones included.
 * @throws OperatorError for an unknown account, a bad limit, and a cursor of another list
 */
export async function listKeys(
  nodes: RedisNodes,
  accountId: string,
  { cursor, limit }: { cursor?: string | undefined; limit: number },
): Promise<{ keys: KeyRecord[]; next: string | undefined }> {
  requirePageSize(limit);
  const list = ["keys", accountId];
  const partition = partitionOf(accountId, await partitionsOf(nodes));
  const redis = nodes.of(partition);
  const { account, keys: name } = accountNames(partition, accountId);
  if ((await redis.exists(account)) === 0) throw noAccount(accountId);
  let first = 0;
  if (cursor !== undefined) {
    const rank = await redis.zrank(name, positionOf(list, cursor));
    if (rank === null) throw badCursor();
    first = rank + 1;
  }
  const found = await redis.zrange(name, String(first), String(first + limit));
  const shown = found.slice(0, limit);
  const places = shown.map((keyId) => ({ keyId, partition }));
  return {
    keys: await readKeys(readsOfAll(nodes), places),
    next: found.length > limit ? cursorOf(list, shown.at(-1)!) : undefined,
  };
}
