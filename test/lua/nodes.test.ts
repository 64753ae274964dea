import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { missingEntries } from "../../src/durability/losses/loss-report.ts";
import { listMissing } from "../../src/durability/losses/missing-entries.ts";
import { exportLedger, formatCursor, type LedgerCursor } from "../../src/ledger/export.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { listAccounts } from "../../src/operations/accounts/account-lists.ts";
import { readAccount, requireAccount } from "../../src/operations/accounts/accounts.ts";
import { topRefusals } from "../../src/operations/accounts/refusals.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { pageTransactions } from "../../src/operations/credits/transactions.ts";
import { changeKey, revokeKey, rotateKey } from "../../src/operations/keys/change-key.ts";
import { type IssuedKey, issueKey } from "../../src/operations/keys/issue-key.ts";
import { eachKey, findKey, oldestKeys, readKey } from "../../src/operations/keys/keys.ts";
import { topKeysByUse, withUseNow } from "../../src/operations/keys/operator-keys.ts";
import { acceptStore, knownLoss } from "../../src/operations/store/operator-loss.ts";
import { countOpen, oldOpenRequests } from "../../src/operations/store/operator-views.ts";
import { findTask, releaseTask, upstreamTags } from "../../src/operations/tasks/operator-tasks.ts";
import { cliActor } from "../../src/records/actor.ts";
import { LEDGER_START, type LedgerEntry, readLedger } from "../../src/records/ledger-entries.ts";
import { accountNames, partitionNames, partitionOf, requestName } from "../../src/records/names.ts";
import { readsOfAll } from "../../src/redis/partition-reads.ts";
import {
  oneNode,
  partitionsOf,
  type RedisNodes,
  readFacts,
  storedFacts,
} from "../../src/redis/store-facts.ts";
import { type RunningRedis, startRedis } from "../../src/sandbox/redis.ts";
import { addMoney } from "../support/account-money.ts";
import { createClient } from "../support/client.ts";
import { TIERS, times } from "../support/store.ts";
import { changeRequest } from "../support/stored-requests.ts";
import { givenRequests, startTwoNodes, type TwoNodes } from "../support/two-nodes.ts";

const RULES = { partitions: 64, allowNoPersistence: true };

const ACCOUNTS = 12;

let dir: string;
let two: TwoNodes;
let alone: RunningRedis;
let one: RedisNodes;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "tollgate-nodes-"));
  two = await startTwoNodes(dir);
  alone = await startRedis({ dir: join(dir, "alone"), persistent: false });
  const redis = createClient(alone.url, 10_000);
  await redis.connect();
  one = oneNode(redis);
});
afterAll(async () => {
  for (const redis of one?.all() ?? []) redis.disconnect();
  await two?.stop();
  await alone?.stop();
  await rm(dir, { recursive: true, force: true });
});

/** Operators' work in a store and its results, without values that differ between two runs: ids of keys, and times. */
async function operate(nodes: RedisNodes): Promise<object> {
  const facts = await readFacts(nodes, RULES);
  const keys: IssuedKey[] = [];
  for (let at = 0; at < ACCOUNTS; at++) {
    keys.push(
      await issueKey(nodes, { accountId: `acc_${at}`, credits: 100, token: `sk_token_${at}` }, cliActor()),
    );
  }
  const twice = await issueKey(nodes, { accountId: "acc_1", token: "sk_token_1" }, cliActor()).catch(String);
  const [first, second, third] = keys as [IssuedKey, IssuedKey, IssuedKey];
  const grants: string[] = [];
  for (const id of ["acc_0", "acc_0", "acc_1", "acc_2", "acc_2"]) {
    grants.push((await grantCredits(nodes, id, 5, `order of ${id}`, cliActor())).outcome);
  }
  for (const [at, key] of keys.entries()) await givenRequests(nodes, key, String(at));
  const rotated = await rotateKey(nodes, await findKey(nodes, first.keyId), 0, cliActor());
  const revoked = [
    await revokeKey(nodes, await findKey(nodes, second.key), cliActor()),
    await revokeKey(nodes, await findKey(nodes, second.key), cliActor()),
  ];
  await changeKey(
    nodes,
    await findKey(nodes, third.keyId),
    { tier: "enterprise", limits: { rate_limit: 7 } },
    cliActor(),
  );
  const releases = [
    await releaseTask(nodes, "task_3", cliActor()),
    await releaseTask(nodes, "req_held_4", cliActor()),
    await releaseTask(nodes, "task_3", cliActor()),
  ];
  const seen = {
    partitions: [facts.partitions, await partitionsOf(nodes), (await storedFacts(nodes)).partitions],
    sameId: facts.id === (await storedFacts(nodes)).id,
    twice,
    grants,
    rotated: rotated.accountId,
    revoked,
    releases,
    ...(await seenKeys(nodes, keys)),
    ...(await seenMoney(nodes)),
    ...(await seenRequests(nodes)),
  };
  const ids = [...keys, rotated].map(({ keyId }, at) => [keyId, `key ${at}`] as const);
  return withoutChance(seen, ids);
}

async function seenKeys(nodes: RedisNodes, keys: readonly IssuedKey[]) {
  const listed = await oldestKeys(eachKey(nodes), { limit: 1000 });
  const found = await Promise.all(keys.map(({ keyId }) => findKey(nodes, keyId)));
  const top = await topKeysByUse(nodes, TIERS, 1000);
  return {
    listed: { ...listed, keys: listed.keys.sort(byAccount) },
    ofAccount: (await oldestKeys(eachKey(nodes, "acc_0"), { limit: 10 })).keys.sort(byAccount),
    found,
    byToken: await Promise.all(keys.map(({ key }) => findKey(nodes, key))),
    read: await readKey(nodes, keys[5]!.keyId, "acc_5"),
    unknown: await findKey(nodes, "key_unknown").catch(String),
    top: { ...top, keys: top.keys.sort(byAccount) },
    use: await withUseNow(nodes, found, TIERS),
  };
}

/** Keys of one millisecond have no order of their own. */
const byAccount = <Key extends { accountId: string; rotatedTo?: string | undefined }>(
  a: Key,
  b: Key,
): number =>
  Number(a.accountId.slice(4)) - Number(b.accountId.slice(4)) || (a.rotatedTo === undefined ? 1 : -1);

async function seenMoney(nodes: RedisNodes) {
  const accounts: object[] = [];
  for (let cursor: string | undefined = ""; cursor !== undefined; ) {
    const page = await listAccounts(nodes, { prefix: "acc_", cursor: cursor || undefined, limit: 5 });
    accounts.push(...page.accounts);
    cursor = page.next;
  }
  const exported: string[] = [];
  const cursor: LedgerCursor = new Map();
  const exportOn = async () => {
    for await (const { entries } of exportLedger(nodes, cursor)) exported.push(...entries.map(wordsOf));
  };
  await exportOn();
  const all = exported.length;
  await exportOn();
  const { entries: latest, ...account } = await readAccount(nodes, "acc_3");
  return {
    accounts,
    account,
    latest: latest.map(wordsOf),
    exists: [
      (await requireAccount(nodes, "acc_3")).partition,
      await requireAccount(nodes, "acc_none").catch(String),
    ],
    transactions: (await pageTransactions(nodes, "acc_3", { limit: 10 })).entries.map(wordsOf),
    exported,
    exportedTwice: exported.length - all,
    cursorPartitions: formatCursor(cursor).replaceAll(/:[^,]*/g, ""),
    verified: await verifyLedger(nodes),
    loss: [await knownLoss(nodes, undefined), await acceptStore(nodes, undefined, []).catch(String)],
  };
}

const wordsOf = (entry: LedgerEntry): string =>
  [
    entry.partition,
    entry.accountId,
    entry.type,
    entry.amount,
    entry.balanceAfter,
    entry.taskId,
    entry.reference,
  ].join(" ");

async function seenRequests(nodes: RedisNodes) {
  const open = await oldOpenRequests(nodes, 0, 1000);
  const nowMs = Date.now();
  const name = `tg:refusals:${new Date(nowMs).toISOString().slice(0, 10)}`;
  await nodes.ofName(name).zincrby(name, 3, "key_1 acc_1 rate_limited");
  return {
    open: { ...open, requests: open.requests.sort((a, b) => (a.requestId < b.requestId ? -1 : 1)) },
    counted: await countOpen(nodes, await partitionsOf(nodes)),
    tasks: await Promise.all(times(ACCOUNTS, (at) => findTask(nodes, `task_${at}`))),
    request: await findTask(nodes, "req_held_7"),
    unknown: await findTask(nodes, "task_unknown").catch(String),
    upstreams: await upstreamTags(nodes, await partitionsOf(nodes), 10),
    refusals: await topRefusals(nodes, nowMs, 10),
  };
}

/** Replaces ids of keys by their names, and times and values made of them by 0. */
function withoutChance(seen: object, ids: readonly (readonly [string, string])[]): object {
  // The data of a task is a text in JSON.
  let text = JSON.stringify(seen).replaceAll(/(\\"created_at\\":\\")[^"\\]*/g, "$1");
  for (const [keyId, name] of ids) text = text.replaceAll(keyId, name);
  return JSON.parse(text, (field, value) =>
    /Ms$|_at$|^id$|^previous$|^last_entry$/.test(field) ? 0 : value,
  ) as object;
}

test("a command at the wrong one of two servers fails, so that the tests below prove something", async () => {
  for (const redis of two.nodes.all()) {
    const elsewhere = times(64, (at) => partitionNames(at).ledger).find(
      (name) => two.nodes.ofName(name) !== redis,
    );
    await expect(redis.xlen(elsewhere!)).rejects.toThrow(/CLUSTERDOWN|MOVED/);
  }
});

// Guarantee: operators see and do the same, whether a store is on one server or on several.
test("operators' work on two servers ends as on one", async () => {
  const expected = await operate(one);
  expect(await operate(two.nodes)).toEqual(expected);
  expect(expected).toMatchObject({
    listed: { keys: { length: ACCOUNTS + 1 } },
    verified: { ok: true, accounts: ACCOUNTS },
    counted: 2 * ACCOUNTS - 2,
  });
  // Both servers had their part in it.
  const accounts = times(ACCOUNTS, (at) => two.nodes.of(partitionOf(`acc_${at}`, 64)));
  expect(new Set(accounts).size).toBe(2);
});

describe("the ledger of two servers", () => {
  /** An account on each server, and that server. */
  async function givenAccounts(): Promise<{ key: IssuedKey; partition: number }[]> {
    const made = new Map<unknown, { key: IssuedKey; partition: number }>();
    while (made.size < 2) {
      const key = await issueKey(two.nodes, { credits: 50 }, cliActor());
      const partition = partitionOf(key.accountId, await partitionsOf(two.nodes));
      made.set(two.nodes.of(partition), { key, partition });
    }
    return [...made.values()];
  }

  test("is wrong if it is wrong on either of them", async () => {
    for (const { key, partition } of await givenAccounts()) {
      const redis = two.nodes.of(partition);
      const { account } = accountNames(partition, key.accountId);
      // One more than its ledger makes, and a request that is in no list and has no slot.
      await addMoney(redis, account, "balance", 1);
      const lost = requestName(partition, "req_lost");
      await changeRequest(redis, lost, {
        state: "held",
        account_id: key.accountId,
        key_id: key.keyId,
        price: 1,
      });
      const { violations } = await verifyLedger(two.nodes, { accountIds: [key.accountId] });
      expect(violations.map(({ invariant }) => invariant).sort()).toEqual(["balance", "due", "slots"]);
      await addMoney(redis, account, "balance", -1);
      await redis.del(lost);
    }
    expect((await verifyLedger(two.nodes)).violations).toEqual([]);
  });

  test("has lost an entry if either of them has", async () => {
    for (const { key, partition } of await givenAccounts()) {
      const { ledger } = partitionNames(partition);
      const [entry] = await readLedger(two.nodes.of(partition), partition, LEDGER_START);
      const common = { accountId: key.accountId, kind: "grant", credits: 50, reference: "" };
      const there = { ...common, id: entry!.streamId };
      const lost = { ...common, id: "99999999999999-0" };
      expect(await missingEntries(two.nodes.of(partition), new Map([[ledger, there]]))).toEqual([]);
      expect(await missingEntries(two.nodes.of(partition), new Map([[ledger, lost]]))).toMatchObject([
        { ledger, id: lost.id },
      ]);
      const known = new Map([there, lost].map((one) => [one.id, { ...one, after: undefined }]));
      const { entries } = await listMissing(readsOfAll(two.nodes), new Map([[ledger, known]]));
      expect(entries.map(({ id }) => id)).toEqual([lost.id]);
    }
  });
});
