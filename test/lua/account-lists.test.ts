import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type AccountQuery, listAccounts, listKeys } from "../../src/operations/accounts/account-lists.ts";
import { createAccount, patchAccount } from "../../src/operations/accounts/operator-accounts.ts";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { accountNames, keyNames, META, partitionNames, partitionOf } from "../../src/records/names.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { times } from "../support/store.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { withMutant } from "./mutant-client.ts";
import { inShare, LISTS_MUTANTS } from "./mutants.ts";

// Lists of accounts are those of a whole store: one that no other test writes to.

const PARTITIONS = 8;
const ACTOR = { by: "test", requestId: "" };

let server: TestRedis;
let nodes: RedisNodes;
beforeAll(async () => {
  server = await givenRedis();
  nodes = oneNode(server.client);
});
afterAll(() => server.stop());
beforeEach(async () => {
  await server.client.flushall();
  await server.client.hset(META, { partitions: PARTITIONS, id: "store", layout: "1" });
});

async function pagesOf(query: Partial<AccountQuery>, from = nodes) {
  const pages: Awaited<ReturnType<typeof listAccounts>>[] = [];
  let cursor: string | undefined;
  do {
    pages.push(await listAccounts(from, { limit: 3, ...query, cursor }));
    cursor = pages.at(-1)!.next;
  } while (cursor !== undefined);
  return pages;
}
const listed = async (query: Partial<AccountQuery> = {}, from = nodes): Promise<string[]> =>
  (await pagesOf(query, from)).flatMap(({ accounts }) => accounts.map(({ accountId }) => accountId));

/** Accounts with labels and without, active ones and others. */
async function givenAccounts(to = nodes): Promise<string[]> {
  const ids = [...times(30, (at) => `acc_${at}`), "Acme.1", "acme-2", "zz"];
  for (const [at, accountId] of ids.entries()) {
    await createAccount(
      to,
      { accountId, ...(at % 5 === 0 ? { label: `Shop ${at % 3} of ${at}` } : {}) },
      ACTOR,
    );
  }
  await patchAccount(to, "acc_3", { status: "suspended" }, ACTOR);
  await patchAccount(to, "acc_5", { status: "suspended", label: "École Ünique 😀" }, ACTOR);
  await patchAccount(to, "acc_7", { status: "closed" }, ACTOR);
  await patchAccount(to, "acc_9", { status: "suspended" }, ACTOR);
  await patchAccount(to, "acc_9", { status: "active" }, ACTOR);
  await patchAccount(to, "acc_10", { label: "Moved" }, ACTOR);
  await patchAccount(to, "acc_15", { label: null }, ACTOR);
  return ids.sort();
}

describe("accounts", () => {
  test("are listed by id over all partitions, each once, whatever the size of a page", async () => {
    const ids = await givenAccounts();
    expect(new Set(ids.map((id) => partitionOf(id, PARTITIONS))).size).toBe(PARTITIONS);
    for (const limit of [1, 2, 7, 33, 100]) expect(await listed({ limit })).toEqual(ids);
    const [page] = (await listAccounts(nodes, { limit: 1, prefix: "acc_5" })).accounts;
    expect(page).toMatchObject({
      accountId: "acc_5",
      label: "École Ünique 😀",
      status: "suspended",
      balance: 0,
    });
  });

  test("are found by the beginning of their id, by status and by label", async () => {
    const ids = await givenAccounts();
    expect(await listed({ prefix: "acc_1" })).toEqual(ids.filter((id) => id.startsWith("acc_1")));
    expect(await listed({ prefix: "acm" })).toEqual(["acme-2"]);
    expect(await listed({ prefix: "nothing" })).toEqual([]);
    expect(await listed({ status: "suspended", limit: 1 })).toEqual(["acc_3", "acc_5"]);
    expect(await listed({ status: "closed" })).toEqual(["acc_7"]);
    const inactive = ["acc_3", "acc_5", "acc_7"];
    expect(await listed({ status: "active", limit: 2 })).toEqual(ids.filter((id) => !inactive.includes(id)));
    expect(await listed({ status: "suspended", prefix: "acc_5" })).toEqual(["acc_5"]);
    // By label, then id.
    expect(await listed({ label: "sHOP 0", limit: 1 })).toEqual(["acc_0", "Acme.1"]);
    expect((await listed({ label: "shop" })).length).toBe(4);
    expect(await listed({ label: "École" })).toEqual(["acc_5"]);
    expect(await listed({ label: "moved" })).toEqual(["acc_10"]);
    expect(await listed({ label: "shop", prefix: "Acme" })).toEqual(["Acme.1"]);
    expect(await listed({ label: "é" })).toEqual([]);
  });

  test("come with a page that looks at a bounded number of them", async () => {
    const { client } = server;
    const pipe = client.pipeline();
    for (let at = 0; at < 3000; at++) {
      const accountId = `busy_${at}`;
      const partition = partitionOf(accountId, PARTITIONS);
      pipe.hset(accountNames(partition, accountId).account, { money: "0 0 0 0 - +", status: "closed" });
      pipe.zadd(partitionNames(partition).accounts, 0, accountId);
    }
    await pipe.exec();
    await createAccount(nodes, { accountId: "zz" }, ACTOR);
    const pages = await pagesOf({ status: "active", limit: 10 });
    expect(pages.map(({ accounts }) => accounts.length)).toEqual([0, 0, 1]);
    expect(await listed({ limit: 100 })).toHaveLength(3001);
  });

  test("are not found with a cursor of another list", async () => {
    await givenAccounts();
    const { next: cursor } = await listAccounts(nodes, { limit: 2 });
    const refused: Partial<AccountQuery>[] = [
      { cursor, status: "closed" },
      { cursor, prefix: "a" },
      { cursor, label: "a" },
      { cursor: "acc_3" },
      { cursor: "" },
      { cursor: `${cursor}A` },
      { limit: 0 },
      { limit: 101 },
      { prefix: "a b" },
      { prefix: "[" },
      { label: "" },
    ];
    for (const query of refused)
      await expect(listAccounts(nodes, { limit: 2, ...query }), JSON.stringify(query)).rejects.toMatchObject({
        code: "invalid",
      });
  });
});

describe("keys of an account", () => {
  test("are listed in the order in which they were made, in pages of any size", async () => {
    const made: string[] = [];
    for (const _ of times(12, () => 0))
      made.push((await issueKey(nodes, { accountId: "acc" }, cliActor())).keyId);
    await issueKey(nodes, { accountId: "other" }, cliActor());
    for (const limit of [1, 5, 12, 100]) {
      const found: string[] = [];
      let cursor: string | undefined;
      do {
        const page = await listKeys(nodes, "acc", { cursor, limit });
        found.push(...page.keys.map(({ keyId }) => keyId));
        cursor = page.next;
      } while (cursor !== undefined);
      expect(found).toHaveLength(12);
      expect(new Set(found)).toEqual(new Set(made));
    }
    const { keys } = await listKeys(nodes, "acc", { limit: 100 });
    const times_ = keys.map(({ createdAtMs }) => createdAtMs!);
    expect(times_).toEqual(times_.toSorted((a, b) => a - b));
  });

  test("are read in one page of 10,000 without looking at the others", async () => {
    const partition = partitionOf("acc", PARTITIONS);
    await createAccount(nodes, { accountId: "acc" }, ACTOR);
    const pipe = server.client.pipeline();
    for (let at = 0; at < 10_000; at++) {
      pipe.zadd(accountNames(partition, "acc").keys, at, `key_${at}`);
      pipe.hset(keyNames(partition, `key_${at}`).key, {
        account_id: "acc",
        tier: "standard",
        created_at: at,
      });
    }
    await pipe.exec();
    let cursor: string | undefined;
    for (let page = 0; page < 40; page++)
      ({ next: cursor } = await listKeys(nodes, "acc", { cursor, limit: 100 }));
    await server.client.config("RESETSTAT");
    const { keys } = await listKeys(nodes, "acc", { cursor, limit: 100 });
    expect(keys.map(({ keyId }) => keyId)).toEqual(times(100, (at) => `key_${4000 + at}`));
    const stats = await server.client.info("commandstats");
    expect(Number(/cmdstat_hgetall:calls=(\d+)/.exec(stats)?.[1])).toBe(100);
    expect(stats).not.toMatch(/cmdstat_[sz]scan/);
  });

  test("are not found with a cursor of another account, or of an account that does not exist", async () => {
    for (const accountId of ["acc", "acc", "other", "other"])
      await issueKey(nodes, { accountId }, cliActor());
    const { next: cursor } = await listKeys(nodes, "acc", { limit: 1 });
    for (const made of [cursor, "", "x", `${cursor}A`])
      await expect(listKeys(nodes, "other", { cursor: made, limit: 1 })).rejects.toMatchObject({
        code: "invalid",
      });
    await expect(listKeys(nodes, "nobody", { limit: 1 })).rejects.toMatchObject({ code: "not_found" });
    await expect(listKeys(nodes, "acc", { limit: 0 })).rejects.toMatchObject({ code: "invalid" });
  });
});

test.each(inShare(LISTS_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const seen = async (from: RedisNodes): Promise<unknown> => {
    await server.client.flushall();
    await server.client.hset(META, { partitions: PARTITIONS, id: "store", layout: "1" });
    await givenAccounts(from);
    const members: string[] = [];
    for (const partition of times(PARTITIONS, (at) => at)) {
      const { labels, inactive } = partitionNames(partition);
      for (const name of [labels, inactive]) members.push(...(await server.client.zrange(name, "0", "-1")));
    }
    return members;
  };
  const good = await seen(nodes);
  expect(await withMutant(server.url, mutant, seen)).not.toEqual(good);
});
