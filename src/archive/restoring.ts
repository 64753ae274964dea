import type { ChainableCommander } from "ioredis";
import { placeText, readPlace } from "../operations/credits/references.ts";
import { detailsOf, kindOf, type LedgerEntry, packedEntry, standsFor } from "../records/ledger-entries.ts";
import {
  accountNames,
  claimName,
  claimText,
  dueFrom,
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
import { type AccountFields, type KeyFields, requestText } from "../records/records.ts";
import {
  lowerCase,
  metadataDigests,
  placesOfAccount,
  placesOfKey,
  placesOfReference,
} from "../records/words.ts";
import { manyByNode } from "../redis/pipelines.ts";
import { scriptsOf } from "../redis/script-runner.ts";
import { LAYOUT, RESTORING, type RedisNodes, requireNoEviction } from "../redis/store-facts.ts";
import { gatherAll } from "../scripts/keys.ts";

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
export async function beginRestore(
  nodes: RedisNodes,
  store: { id: string; partitions: number },
): Promise<void> {
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
  await redis.hset(META, { ...store, layout: RESTORING });
}

export async function endRestore(nodes: RedisNodes): Promise<void> {
  await nodes.ofName(META).hset(META, "layout", LAYOUT);
}

/** Sends the commands of each item to the server of its partition. */
const write = async <Item extends { partition: number }>(
  nodes: RedisNodes,
  items: readonly Item[],
  commands: (pipe: ChainableCommander, item: Item) => ChainableCommander,
): Promise<void> => void (await manyByNode(items, ({ partition }) => nodes.of(partition), commands));

/** As lua/include/words.lua. */
function listWords(pipe: ChainableCommander, partition: number, places: readonly string[]) {
  const { words } = partitionNames(partition);
  for (const place of places) pipe.zadd(words, 0, place);
  return pipe;
}

/** Writes entries at the end of their ledgers, under the ids that they had. They come in the order of their ids. */
export const restoreEntries = (nodes: RedisNodes, entries: readonly LedgerEntry[]): Promise<void> =>
  write(nodes, entries, (pipe, entry) =>
    pipe.xadd(partitionNames(entry.partition).ledger, entry.streamId, ...packedEntry(entry)),
  );

/** Notes what these entries' references stand for, and lists their accounts under them. */
export async function restoreReferences(nodes: RedisNodes, entries: readonly LedgerEntry[]): Promise<void> {
  await indexReferences(nodes, entries);
  await write(nodes, entries, (pipe, entry) => {
    const { partition, accountId, reference, amount } = entry;
    const { references, reversed, refunds } = accountNames(partition, accountId);
    const kind = kindOf(entry);
    const { of = "", corrects } = detailsOf(entry);
    pipe.hset(references, reference, standsFor(entry));
    if (kind === "reversal") pipe.hincrby(reversed, of, -amount).hincrby(reversed, "", -amount);
    const refunded = kind === "refund" ? entry.requestId : corrects;
    if (refunded !== undefined) pipe.hset(refunds, refunded, reference);
    return listWords(pipe, partition, placesOfReference(accountId, reference));
  });
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
    ({ partition }) => nodes.of(partition),
    (pipe, { name, field }) => pipe.hget(name, field),
  );
  const lists = places.map((place, at) => {
    const all = [...readPlace(known[at]), ...place.indexed];
    const text = placeText(all.slice(0, REFERENCE_ACCOUNTS_MAX));
    return { ...place, text, beyond: all.slice(REFERENCE_ACCOUNTS_MAX) };
  });
  await write(nodes, lists, (pipe, { name, field, text, beyond }) =>
    pipe.hset(
      name,
      field,
      text,
      ...beyond.flatMap(({ accountId, entry }) => [`${field} ${accountId}`, entry]),
    ),
  );
}

/** As lua/include/accounts.lua and lua/include/metadata.lua. */
export const restoreAccounts = (nodes: RedisNodes, accounts: readonly RestoredAccount[]): Promise<void> =>
  write(nodes, accounts, (pipe, { partition, accountId, record }) => {
    const { label, status, money } = record;
    const { accounts: all, byBalance, labels, inactive, metadata: values } = partitionNames(partition);
    const metadata = JSON.parse(record.metadata ?? "{}");
    pipe
      .hset(accountNames(partition, accountId).account, record)
      .zadd(all, 0, accountId)
      .zadd(byBalance, moneyOf(money).balance ?? "0", accountId);
    if (label !== undefined) pipe.zadd(labels, 0, `${lowerCase(label)} ${accountId}`);
    if (status !== undefined) pipe.zadd(inactive, 0, `${status} ${accountId}`);
    for (const digest of metadataDigests(metadata)) pipe.zadd(values, 0, `${digest} ${accountId}`);
    return listWords(pipe, partition, placesOfAccount(accountId, label, metadata));
  });

/** As lua/include/keys.lua: accounts are told of keys that end so long before they do. */
const EXPIRY_NOTICE_MS = 7 * 86_400_000;

export async function restoreKeys(nodes: RedisNodes, keys: readonly RestoredKey[]): Promise<void> {
  await write(nodes, keys, (pipe, { partition, keyId, record }) => {
    const { account_id: accountId = "", tier, label, created_at, expires_at, revoked_at } = record;
    const { tiers, expiring } = partitionNames(partition);
    const { key } = keyNames(partition, keyId);
    pipe.hset(key, record).zadd(accountNames(partition, accountId).keys, Number(created_at ?? 0), keyId);
    if (tier !== undefined && revoked_at === undefined)
      pipe.hset(key, "counted", tier).hincrby(tiers, tier, 1);
    if (expires_at !== undefined && revoked_at === undefined)
      pipe.zadd(expiring, Number(expires_at) - EXPIRY_NOTICE_MS, keyId);
    return listWords(pipe, partition, placesOfKey(accountId, keyId, label));
  });
  const index = ({ record }: RestoredKey): string => indexName(record.sha256 ?? "");
  await manyByNode(
    keys,
    (key) => nodes.ofName(index(key)),
    (pipe, key) => pipe.set(index(key), `${key.keyId} ${key.record.account_id ?? ""}`),
  );
  await gatherSlots(nodes, keys);
}

/** For accounts with limits over all keys. Requires accounts and tasks. */
async function gatherSlots(nodes: RedisNodes, keys: readonly RestoredKey[]): Promise<void> {
  const limited = await manyByNode<number, RestoredKey>(
    keys,
    ({ partition }) => nodes.of(partition),
    (pipe, key) => pipe.hexists(accountNames(key.partition, key.record.account_id ?? "").account, "limited"),
  );
  for (const [at, { partition, keyId, record }] of keys.entries()) {
    const call = { partition, accountId: record.account_id ?? "", keyIds: [keyId] };
    if (limited[at] === 1) await gatherAll(scriptsOf(nodes.of(partition)).run, call);
  }
}

export async function restoreTasks(nodes: RedisNodes, tasks: readonly RunningTask[]): Promise<void> {
  await write(nodes, tasks, (pipe, task) => {
    const { partition, requestId, accountId, keyId, price, endpoint, taskId, boundAtMs } = task;
    const { slots, due } = keyRef(keyId, accountId, partition).names;
    // It passed while the store was away: BIND gives it no slot.
    const isUnmetered = price === 0;
    const record = {
      ...{ state: "bound", account_id: accountId, key_id: keyId, price: String(price), endpoint },
      ...{ due_at: String(boundAtMs), task_id: taskId, bound_at: String(boundAtMs) },
      ...(isUnmetered && { unmetered: "1" }),
    } as const;
    if (!isUnmetered) pipe.sadd(slots, requestId);
    return pipe
      .set(requestName(partition, requestId), requestText(record))
      .set(taskName(taskId, partition), `${requestId} ${keyId} ${accountId} ${boundAtMs}`)
      .zadd(due, dueFrom("polls") + boundAtMs, requestId);
  });
  await manyByNode(
    tasks,
    ({ taskId }) => nodes.ofName(claimName(taskId)),
    (pipe, { taskId, requestId, partition }) => pipe.set(claimName(taskId), claimText(requestId, partition)),
  );
}
