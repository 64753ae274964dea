import type { ChainableCommander } from "ioredis";
import { placeText, readPlace } from "../operations/credits/references.ts";
import { dueFrom } from "../records/due-times.ts";
import { detailsOf, kindOf, type LedgerEntry, packedEntry, standsFor } from "../records/ledger-entries.ts";
import { metadataDigests } from "../records/metadata-index.ts";
import {
  accountNames,
  claimName,
  claimText,
  indexName,
  keyNames,
  keyRef,
  META,
  partitionNames,
  REFERENCE_ACCOUNTS_MAX,
  referencePlace,
  requestName,
  taskName,
} from "../records/names.ts";
import { OperatorError } from "../records/operator-error.ts";
import { moneyOf } from "../records/packed-fields.ts";
import type { AccountFields, KeyFields } from "../records/records.ts";
import { requestText } from "../records/requests.ts";
import { lowerCase, placesOfAccount, placesOfKey, placesOfReference } from "../records/words.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import { manyByNode } from "../redis/pipelines.ts";
import { scriptsOf } from "../redis/script-runner.ts";
import { LAYOUT, RESTORING, requireNoEviction } from "../redis/store-facts.ts";
import { gatherAll } from "../scripts/keys.ts";

interface RestoredStore {
  id: string;
  partitions: number;
}

interface RestoredAccount {
  partition: number;
  accountId: string;
  record: AccountFields & Readonly<Record<string, string>>;
}

export interface RestoredKey {
  partition: number;
  keyId: string;
  record: KeyFields & Readonly<Record<string, string>>;
}

export interface RunningTask {
  partition: number;
  accountId: string;
  keyId: string;
  requestId: string;
  taskId: string;
  endpoint: string;
  price: number;
  boundAtMs: number;
}

/** Until `endRestore`, no gateway and no other command uses this Redis. @throws OperatorError, Error */
export async function beginRestore(nodes: RedisNodes, store: RestoredStore): Promise<void> {
  const redis = nodes.ofName(META);
  if ((await redis.hget(META, "layout")) === RESTORING)
    throw new OperatorError(
      "this Redis holds a restore that was interrupted; empty it (FLUSHALL) and start again",
    );
  for (const node of nodes.all()) {
    await requireNoEviction(node);
    const names = await node.dbsize();
    if (names === 0) continue;
    throw new OperatorError(
      `this Redis is not empty (${names} names), and nothing is changed; stop all gateways, and name an empty Redis in REDIS_URL`,
    );
  }
  await redis.hset(META, { id: store.id, partitions: store.partitions, layout: RESTORING });
}

export async function endRestore(nodes: RedisNodes): Promise<void> {
  await nodes.ofName(META).hset(META, "layout", LAYOUT);
}

/** Writes entries at the end of their ledgers, under the ids that they had. They come in the order of their ids. */
export async function restoreEntries(nodes: RedisNodes, entries: readonly LedgerEntry[]): Promise<void> {
  await manyByNode(entries, ofPartition(nodes), (pipe, entry) =>
    pipe.xadd(partitionNames(entry.partition).ledger, entry.streamId, ...packedEntry(entry)),
  );
}

/** Notes what these entries' references stand for, and lists their accounts under them. */
export async function restoreReferences(nodes: RedisNodes, entries: readonly LedgerEntry[]): Promise<void> {
  await indexReferences(nodes, entries);
  await listWords(nodes, entries, ({ accountId, reference }) => placesOfReference(accountId, reference));
  await manyByNode(entries, ofPartition(nodes), (pipe, entry) =>
    pipe.hset(accountNames(entry.partition, entry.accountId).references, entry.reference, standsFor(entry)),
  );
  const reversals = entries.filter((entry) => kindOf(entry) === "reversal");
  for (const fieldOf of [({ details }: LedgerEntry) => detailsOf({ details }).of ?? "", () => ""])
    await manyByNode(reversals, ofPartition(nodes), (pipe, entry) =>
      pipe.hincrby(accountNames(entry.partition, entry.accountId).reversed, fieldOf(entry), -entry.amount),
    );
  const refunds = entries.flatMap((entry) => {
    const requestId = kindOf(entry) === "refund" ? entry.requestId : detailsOf(entry).corrects;
    return requestId === undefined ? [] : [{ ...entry, requestId }];
  });
  await manyByNode(refunds, ofPartition(nodes), (pipe, { partition, accountId, requestId, reference }) =>
    pipe.hset(accountNames(partition, accountId).refunds, requestId, reference),
  );
}

/** As lua/include/references.lua. */
async function indexReferences(nodes: RedisNodes, entries: readonly LedgerEntry[]): Promise<void> {
  const byPlace = Map.groupBy(entries, ({ partition, reference }) => {
    const { name, field } = referencePlace(partition, reference);
    return `${name} ${field}`;
  });
  const places = [...byPlace.values()].map((same) => ({
    ...same[0]!,
    ...referencePlace(same[0]!.partition, same[0]!.reference),
    indexed: same.map(({ accountId, streamId }) => ({ accountId, entry: streamId })),
  }));
  const known = await manyByNode<string | null, (typeof places)[number]>(
    places,
    ofPartition(nodes),
    (pipe, { name, field }) => pipe.hget(name, field),
  );
  const lists = places.map((place, at) => ({
    ...place,
    text: placeText([...readPlace(known[at]), ...place.indexed].slice(0, REFERENCE_ACCOUNTS_MAX)),
  }));
  await manyByNode(lists, ofPartition(nodes), (pipe, { name, field, text }) => pipe.hset(name, field, text));
}

export async function restoreAccounts(
  nodes: RedisNodes,
  accounts: readonly RestoredAccount[],
): Promise<void> {
  await manyByNode(accounts, ofPartition(nodes), (pipe, { partition, accountId, record }) =>
    pipe.hset(accountNames(partition, accountId).account, record),
  );
  await manyByNode(accounts, ofPartition(nodes), (pipe, { partition, accountId }) =>
    pipe.zadd(partitionNames(partition).accounts, 0, accountId),
  );
  await manyByNode(accounts, ofPartition(nodes), (pipe, { partition, accountId, record }) =>
    pipe.zadd(partitionNames(partition).byBalance, moneyOf(record.money).balance ?? "0", accountId),
  );
  await listAccounts(nodes, accounts);
  await listWords(nodes, accounts, ({ accountId, record: { label, metadata = "{}" } }) =>
    placesOfAccount(accountId, label, JSON.parse(metadata)),
  );
}

/** As lua/include/words.lua. */
async function listWords<Item extends { partition: number }>(
  nodes: RedisNodes,
  items: readonly Item[],
  placesOf: (item: Item) => string[],
): Promise<void> {
  const listed = items.flatMap((item) => placesOf(item).map((place) => ({ ...item, place })));
  await manyByNode(listed, ofPartition(nodes), (pipe, { partition, place }) =>
    pipe.zadd(partitionNames(partition).words, 0, place),
  );
}

/** As lua/include/accounts.lua and lua/include/metadata.lua. */
async function listAccounts(nodes: RedisNodes, accounts: readonly RestoredAccount[]): Promise<void> {
  const listed = accounts.flatMap(({ partition, accountId, record }) => {
    const { label, status, metadata = "{}" } = record;
    const { labels, inactive, metadata: values } = partitionNames(partition);
    const lists = [
      { partition, name: labels, first: label === undefined ? undefined : lowerCase(label) },
      { partition, name: inactive, first: status },
      ...metadataDigests(JSON.parse(metadata)).map((first) => ({ partition, name: values, first })),
    ];
    return lists.flatMap((list) =>
      list.first === undefined ? [] : [{ ...list, member: `${list.first} ${accountId}` }],
    );
  });
  await manyByNode(listed, ofPartition(nodes), (pipe, { name, member }) => pipe.zadd(name, 0, member));
}

export async function restoreKeys(nodes: RedisNodes, keys: readonly RestoredKey[]): Promise<void> {
  const account = ({ record }: RestoredKey): string => record.account_id ?? "";
  await manyByNode(keys, ofPartition(nodes), (pipe, { partition, keyId, record }) =>
    pipe.hset(keyNames(partition, keyId).key, record),
  );
  await listWords(nodes, keys, (key) => placesOfKey(account(key), key.keyId, key.record.label));
  await countTiers(nodes, keys);
  await listExpiries(nodes, keys);
  await manyByNode(keys, ofPartition(nodes), (pipe, key) =>
    pipe.zadd(accountNames(key.partition, account(key)).keys, Number(key.record.created_at ?? 0), key.keyId),
  );
  const index = ({ record }: RestoredKey): string => indexName(record.sha256 ?? "");
  await manyByNode(
    keys,
    (key) => nodes.ofName(index(key)),
    (pipe, key) => pipe.set(index(key), `${key.keyId} ${account(key)}`),
  );
  await gatherSlots(nodes, keys);
}

/** As lua/include/keys.lua. */
async function countTiers(nodes: RedisNodes, keys: readonly RestoredKey[]): Promise<void> {
  const used = keys.flatMap(({ partition, keyId, record: { tier, revoked_at } }) =>
    tier === undefined || revoked_at !== undefined ? [] : [{ partition, keyId, tier }],
  );
  await manyByNode(used, ofPartition(nodes), (pipe, { partition, keyId, tier }) =>
    pipe.hset(keyNames(partition, keyId).key, "counted", tier),
  );
  await manyByNode(used, ofPartition(nodes), (pipe, { partition, tier }) =>
    pipe.hincrby(partitionNames(partition).tiers, tier, 1),
  );
}

/** As lua/include/keys.lua: accounts are told of keys that end so long before they do. */
const EXPIRY_NOTICE_MS = 7 * 86_400_000;

async function listExpiries(nodes: RedisNodes, keys: readonly RestoredKey[]): Promise<void> {
  const ending = keys.flatMap(({ partition, keyId, record: { expires_at, revoked_at } }) =>
    expires_at === undefined || revoked_at !== undefined
      ? []
      : [{ partition, keyId, endMs: Number(expires_at) }],
  );
  await manyByNode(ending, ofPartition(nodes), (pipe, { partition, keyId, endMs }) =>
    pipe.zadd(partitionNames(partition).expiring, endMs - EXPIRY_NOTICE_MS, keyId),
  );
}

/** For accounts with limits over all keys. Requires accounts and tasks. */
async function gatherSlots(nodes: RedisNodes, keys: readonly RestoredKey[]): Promise<void> {
  const limited = await manyByNode<number, RestoredKey>(keys, ofPartition(nodes), (pipe, key) =>
    pipe.hexists(accountNames(key.partition, key.record.account_id ?? "").account, "limited"),
  );
  for (const [at, { partition, keyId, record }] of keys.entries()) {
    const call = { partition, accountId: record.account_id ?? "", keyIds: [keyId] };
    if (limited[at] === 1) await gatherAll(scriptsOf(nodes.of(partition)).run, call);
  }
}

export async function restoreTasks(nodes: RedisNodes, tasks: readonly RunningTask[]): Promise<void> {
  const write = (command: (pipe: ChainableCommander, task: RunningTask) => ChainableCommander) =>
    manyByNode(tasks, ofPartition(nodes), command);
  const names = ({ keyId, accountId, partition }: RunningTask) => keyRef(keyId, accountId, partition).names;
  await write((pipe, { partition, requestId, accountId, keyId, price, endpoint, taskId, boundAtMs }) =>
    pipe.set(
      requestName(partition, requestId),
      requestText({
        state: "bound",
        account_id: accountId,
        key_id: keyId,
        price: String(price),
        endpoint,
        due_at: String(boundAtMs),
        task_id: taskId,
        bound_at: String(boundAtMs),
      }),
    ),
  );
  await write((pipe, { partition, requestId, keyId, accountId, taskId, boundAtMs }) =>
    pipe.set(taskName(taskId, partition), `${requestId} ${keyId} ${accountId} ${boundAtMs}`),
  );
  await write((pipe, task) => pipe.sadd(names(task).slots, task.requestId));
  await write((pipe, task) => pipe.zadd(names(task).due, dueFrom("polls") + task.boundAtMs, task.requestId));
  await manyByNode(
    tasks,
    ({ taskId }) => nodes.ofName(claimName(taskId)),
    (pipe, { taskId, requestId, partition }) => pipe.set(claimName(taskId), claimText(requestId, partition)),
  );
}

const ofPartition =
  (nodes: RedisNodes) =>
  ({ partition }: { partition: number }) =>
    nodes.of(partition);
