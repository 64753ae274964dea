import { shown } from "../../domain/problems.ts";
import { badCursor, cursorOf, type PageQuery, positionOf, requirePageSize } from "../../records/cursors.ts";
import { accountNames, partitionNames, partitionOf } from "../../records/names.ts";
import { OperatorError } from "../../records/operator-error.ts";
import { accountOf } from "../../records/packed-fields.ts";
import type { AccountFields, AccountStatus } from "../../records/records.ts";
import { lowerCase, metadataDigest, metadataText } from "../../records/words.ts";
import { type PartitionReads, readsOfAll, readsOfMost, type Unread } from "../../redis/partition-reads.ts";
import { partitionsOf, type RedisNodes } from "../../redis/store-facts.ts";
import type { RankedPlace } from "../../scripts/ledger.ts";
import { requireAccountId } from "../access/operator-values.ts";
import { type KeyRecord, readKeys } from "../keys/keys.ts";
import {
  type AccountSort,
  comparePlaces,
  daysLeftScore,
  firstRanked,
  isDescending,
  placeText,
  rankingOf,
  readPlace,
  type Spending,
  spendingOf,
} from "./account-ranks.ts";
import { requireAccount } from "./accounts.ts";
import { type AccountObject, accountObject } from "./operator-accounts.ts";
import { compareBytes, firstMembers, type Listed } from "./sorted-lists.ts";

const LOOKED_AT_MAX = 1000;
const BATCH = 100;
/** Of a list by balance or spending. */
const RANKED_MAX = 300;

export interface AccountQuery extends PageQuery {
  prefix?: string | undefined;
  /** A prefix; case of A to Z is ignored. */
  label?: string | undefined;
  status?: AccountStatus | undefined;
  metadata?: MetadataFilter | undefined;
  sort?: AccountSort | undefined;
  /** Only accounts whose balance in the ledger, holds included, is below this. */
  balanceBelow?: number | undefined;
}

export interface ListedAccount extends AccountObject {
  spent: Spending;
}

interface AccountPage {
  accounts: ListedAccount[];
  next: string | undefined;
  unread: Unread | undefined;
}

/** As `pageAccounts`, with what each account has spent. */
export async function listAccounts(
  nodes: RedisNodes,
  query: AccountQuery,
  own?: readonly string[],
): Promise<AccountPage> {
  const { accounts, ...page } = await pageAccounts(nodes, query, own);
  const partitions = await partitionsOf(nodes);
  const placed = accounts.map(({ accountId }) => ({
    accountId,
    partition: partitionOf(accountId, partitions),
  }));
  const spending = await spendingOf(nodes, readsOfMost(nodes), placed);
  return {
    ...page,
    accounts: accounts.map((account) => ({ ...account, spent: spending.get(account.accountId)! })),
  };
}

type UnspentPage = Omit<AccountPage, "accounts"> & { accounts: AccountObject[] };

/**
 * By id, or with `label` by label. A bounded number is read: pages may be short.
 * @param own the only visible accounts, all read @throws OperatorError for an invalid parameter or a cursor of another list
 */
async function pageAccounts(
  nodes: RedisNodes,
  query: AccountQuery,
  own?: readonly string[],
): Promise<UnspentPage> {
  const { prefix = "", label, status, metadata, cursor, limit } = query;
  requirePageSize(limit);
  if (query.sort !== undefined || query.balanceBelow !== undefined) return rankedAccounts(nodes, query, own);
  if (prefix !== "") requireAccountId(prefix, "prefix");
  if (label === "") throw new OperatorError("label must not be empty", "invalid", "label");
  const list = ["accounts", prefix, label, status, metadata];
  let after = positionOf(list, cursor) ?? "";
  if (own) return ownAccounts(nodes, own, query, list, after);
  const source = sourceOf(query);
  const partitions = await partitionsOf(nodes);
  const reads = readsOfMost(nodes);
  const accounts: AccountObject[] = [];
  for (let lookedAt = 0; lookedAt < LOOKED_AT_MAX && accounts.length < limit; ) {
    const size = lookedAt === 0 ? limit : BATCH;
    const found = await firstMembers(reads, { partitions, after, ...source }, size);
    const candidates = await readAccounts(reads, found);
    let used = 0;
    for (; used < found.length && accounts.length < limit; used++) {
      const account = candidates[used];
      if (account && isAsked(account, query)) accounts.push(account);
    }
    if (used === found.length && found.length < size)
      return { accounts, next: undefined, unread: reads.unread() };
    after = found[used - 1]?.member ?? after;
    lookedAt += size;
  }
  return { accounts, next: cursorOf(list, after), unread: reads.unread() };
}

/** @param after position of the last account of the previous page */
async function ownAccounts(
  nodes: RedisNodes,
  own: readonly string[],
  query: AccountQuery,
  list: readonly unknown[],
  after: string,
): Promise<UnspentPage> {
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

const placeOf = ({ accountId, label }: AccountObject, query: AccountQuery): string =>
  query.label === undefined ? accountId : `${lowerCase(label ?? "")} ${accountId}`;

function sourceOf({ prefix = "", label, status, metadata = {} }: AccountQuery) {
  if (label !== undefined)
    return { nameOf: (partition: number) => partitionNames(partition).labels, prefix: lowerCase(label) };
  const [value] = Object.entries(metadata);
  if (value)
    return {
      nameOf: (partition: number) => partitionNames(partition).metadata,
      prefix: `${metadataDigest(...value)} ${prefix}`,
    };
  if (status === "suspended" || status === "closed")
    return {
      nameOf: (partition: number) => partitionNames(partition).inactive,
      prefix: `${status} ${prefix}`,
    };
  return { nameOf: (partition: number) => partitionNames(partition).accounts, prefix };
}

async function readAccounts(
  reads: PartitionReads,
  listed: readonly Listed[],
): Promise<(AccountObject | undefined)[]> {
  const places = listed.map(({ member, partition }) => ({ accountId: member.split(" ").at(-1)!, partition }));
  const records = await reads.many<AccountFields, (typeof places)[number]>(
    places,
    (pipe, { accountId, partition }) => pipe.hgetall(accountNames(partition, accountId).account),
  );
  return records.map((record, at) =>
    record?.money === undefined ? undefined : accountObject(places[at]!.accountId, accountOf(record)),
  );
}

function isAsked(account: AccountObject, query: Omit<AccountQuery, "limit">): boolean {
  const { prefix = "", label, status, metadata = {} } = query;
  if (!account.accountId.startsWith(prefix) || !hasMetadata(account, metadata)) return false;
  if (label !== undefined && !lowerCase(account.label ?? "").startsWith(lowerCase(label))) return false;
  return status === undefined || account.status === status;
}

/** By balance or spending, over all pages. A bounded number is read. By spending and days left only accounts that have spent anything. */
async function rankedAccounts(
  nodes: RedisNodes,
  query: AccountQuery,
  own?: readonly string[],
): Promise<UnspentPage> {
  const { sort = "balance", balanceBelow, prefix = "", label, status, metadata, cursor, limit } = query;
  if (prefix !== "") requireAccountId(prefix, "prefix");
  const list = ["accounts", sort, balanceBelow, prefix, label, status, metadata];
  let after = cursor === undefined ? undefined : readPlace(positionOf(list, cursor));
  if (own) return ownRanked(nodes, own, query, list, after);
  if (after === undefined && sort === "-balance" && balanceBelow !== undefined)
    after = { score: balanceBelow, member: "" };
  const reads = readsOfMost(nodes);
  const accounts: AccountObject[] = [];
  const page = (next?: RankedPlace): UnspentPage => ({
    accounts,
    next: next && cursorOf(list, placeText(next)),
    unread: reads.unread(),
  });
  for (let lookedAt = 0; lookedAt < RANKED_MAX; ) {
    const size = lookedAt === 0 ? limit : BATCH;
    const found = await firstRanked(reads, await rankingOf(nodes, sort, after), size);
    const candidates = await readAccounts(reads, found);
    for (const [at, place] of found.entries()) {
      const isPast = sort === "balance" && balanceBelow !== undefined && place.score >= balanceBelow;
      if (isPast || (isSpending(sort) && place.score <= 0)) return page();
      after = place;
      const account = candidates[at];
      const isBelow = isByBalance(sort) || isBelowBalance(account, balanceBelow);
      if (account && isBelow && isAsked(account, query)) accounts.push(account);
      if (accounts.length === limit) return page(place);
    }
    if (found.length < size) return page();
    lookedAt += size;
  }
  return page(after);
}

/** By what the store has now, since there are few. @param own the accounts that may be listed */
async function ownRanked(
  nodes: RedisNodes,
  own: readonly string[],
  { sort = "balance", balanceBelow, limit, ...query }: AccountQuery,
  list: readonly unknown[],
  after: RankedPlace | undefined,
): Promise<UnspentPage> {
  const partitions = await partitionsOf(nodes);
  const reads = readsOfMost(nodes);
  const listed = own.map((member) => ({ member, partition: partitionOf(member, partitions) }));
  const found = (await readAccounts(reads, listed)).filter((account) => account !== undefined);
  const spending = await spendingOf(
    nodes,
    reads,
    listed.map(({ member, partition }) => ({ accountId: member, partition })),
  );
  const descending = isDescending(sort);
  const placed = found
    .filter((account) => isAsked(account, query) && isBelowBalance(account, balanceBelow))
    .flatMap((account) => {
      const score = scoreOf(account, spending.get(account.accountId)!, sort);
      return score === undefined ? [] : [{ account, place: { score, member: account.accountId } }];
    })
    .filter(({ place }) => after === undefined || comparePlaces(place, after, descending) > 0)
    .sort((one, other) => comparePlaces(one.place, other.place, descending));
  const shown = placed.slice(0, limit);
  const next = placed.length > shown.length ? cursorOf(list, placeText(shown.at(-1)!.place)) : undefined;
  return { accounts: shown.map(({ account }) => account), next, unread: reads.unread() };
}

/** The sort value of an account in a list, a whole number; undefined if it is not in the list. */
function scoreOf(account: AccountObject, spent: Spending, sort: AccountSort): number | undefined {
  const balance = account.balance + account.held;
  if (sort === "days_left") return daysLeftScore(balance, spent);
  if (!isSpending(sort)) return balance;
  const amount = sort === "-spent_today" ? spent.today : spent.week;
  return amount > 0 ? amount : undefined;
}

const isByBalance = (sort: AccountSort): boolean => sort === "balance" || sort === "-balance";
const isSpending = (sort: AccountSort): boolean => sort === "-spent_today" || sort === "-spent_7d";

const isBelowBalance = (account: AccountObject | undefined, below: number | undefined): boolean =>
  below === undefined || (account !== undefined && account.balance + account.held < below);

/** In the order of creation, ended keys included. @throws OperatorError for an unknown account, or a cursor of another list */
export async function listKeys(
  nodes: RedisNodes,
  accountId: string,
  { cursor, limit }: PageQuery,
): Promise<{ keys: KeyRecord[]; next: string | undefined }> {
  requirePageSize(limit);
  const list = ["keys", accountId];
  const { partition, redis } = await requireAccount(nodes, accountId);
  const { keys: name } = accountNames(partition, accountId);
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

type MetadataFilter = Readonly<Record<string, string>>;

/** @param indexed names that may be asked for @throws OperatorError for another name */
export function requireIndexed(filter: MetadataFilter, indexed: readonly string[]): void {
  const other = Object.keys(filter).find((name) => !indexed.includes(name));
  if (other === undefined) return;
  const path = `metadata.${shown(other)}`;
  const known = indexed.length === 0 ? "none is" : `these are: ${indexed.join(", ")}`;
  throw new OperatorError(
    `${path} is not indexed, ${known}; add the name to accounts.indexed_metadata in the configuration, which takes at most 4`,
    "not_indexed",
    path,
  );
}

const hasMetadata = ({ metadata }: AccountObject, filter: MetadataFilter): boolean =>
  Object.entries(filter).every(
    ([name, text]) =>
      metadata !== null && Object.hasOwn(metadata, name) && metadataText(metadata[name]) === text,
  );
