import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type AccountQuery, listAccounts } from "../../src/operations/accounts/account-lists.ts";
import { createAccount, patchAccount } from "../../src/operations/accounts/operator-accounts.ts";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { accountNames, META, partitionNames, partitionOf } from "../../src/records/names.ts";
import { metadataDigests } from "../../src/records/words.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { times } from "../support/store.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { withMutant } from "./mutant-client.ts";
import { inShare, METADATA_MUTANTS } from "./mutants.ts";

const PARTITIONS = 2;
const ACTOR = { by: "test", requestId: "" };
const IDS = ["a", "b", "b.2", "c"];

let server: TestRedis;
let nodes: RedisNodes;
beforeAll(async () => {
  server = await givenRedis();
  nodes = oneNode(server.client);
});
afterAll(() => server.stop());

async function emptyStore(): Promise<void> {
  await server.client.flushall();
  await server.client.hset(META, { partitions: PARTITIONS, id: "store", layout: "1" });
}

async function listed(query: Partial<AccountQuery>, own?: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await listAccounts(nodes, { limit: 2, ...query, cursor }, own);
    found.push(...page.accounts.map(({ accountId }) => accountId));
    cursor = page.next;
  } while (cursor !== undefined);
  return found;
}

/** The members of the index, and those that the records of all accounts make. */
async function indexAndScan() {
  const index: string[] = [];
  const scan: string[] = [];
  for (const partition of times(PARTITIONS, (at) => at)) {
    const { metadata, accounts } = partitionNames(partition);
    index.push(...(await server.client.zrange(metadata, "0", "-1")));
    for (const accountId of await server.client.zrange(accounts, "0", "-1")) {
      const text = await server.client.hget(accountNames(partition, accountId).account, "metadata");
      const digests = metadataDigests(JSON.parse(text ?? "{}"));
      scan.push(...digests.map((digest) => `${digest} ${accountId}`));
    }
  }
  return { index: index.sort(), scan: scan.sort() };
}

const value = fc.oneof(
  fc.constantFrom<unknown>("", "pro", "Pro", "1", "true", "null", 1, 0, -1.5, 1e-7, true, false, null),
  fc.constantFrom<unknown>("a b", 'a"b\\', "},{[", "é 😀", "a\n\tb\u001f\u007f", "x".repeat(500), [1], {
    plan: "pro",
  }),
  fc.string({ unit: "binary" }).filter((text) => !text.includes("\0")),
);
const metadata = fc.option(
  fc.dictionary(fc.constantFrom("plan", "region", "a.b-_9", "with space", "ü", "constructor"), value, {
    noNullPrototype: true,
  }),
);
const change = fc.record({
  accountId: fc.constantFrom(...IDS),
  metadata,
  status: fc.constantFrom(undefined, "closed" as const, "active" as const),
  label: fc.constantFrom(undefined, "L"),
});

// Guarantee: after any changes the index has what a scan of all records finds, no more and no less.
test("the index of metadata equals a scan, and a list by it equals a filter", async () => {
  const plans = fc.constantFrom(
    "",
    "pro",
    "1",
    "true",
    "a b",
    "é 😀",
    'a"b\\',
    "x".repeat(500),
    "1e-7",
    "null",
  );
  await fc.assert(
    fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 12 }), plans, async (changes, plan) => {
      await emptyStore();
      const now = new Map<string, Record<string, unknown>>();
      for (const { accountId, ...wanted } of changes) {
        if (now.has(accountId)) await patchAccount(nodes, accountId, wanted, ACTOR);
        else await createAccount(nodes, { accountId, label: wanted.label, metadata: wanted.metadata }, ACTOR);
        now.set(accountId, wanted.metadata ?? {});
      }
      const { index, scan } = await indexAndScan();
      expect(index).toEqual(scan);
      const having = [...now].filter(
        ([, { plan: own }]) => !Array.isArray(own) && own !== null && String(own) === plan,
      );
      expect(await listed({ metadata: { plan } })).toEqual(having.map(([id]) => id).sort());
    }),
    { numRuns: 60 },
  );
});

async function givenShops(to = nodes): Promise<void> {
  await emptyStore();
  const made = (accountId: string, values?: Record<string, unknown>, label?: string) =>
    createAccount(to, { accountId, metadata: values, label }, ACTOR);
  await made("a", { plan: "pro", region: "eu" }, "Shop");
  await made("b", { plan: "pro", region: "us", "not findable": 1 });
  await made("b.2", { plan: 'pro "x"', seats: 5, tags: ["pro"], none: null });
  await made("c", { plan: "free", region: "eu" }, "Shop");
  await made("d");
  await patchAccount(to, "c", { metadata: { plan: "pro" } }, ACTOR);
  await patchAccount(to, "c", { label: "Other" }, ACTOR);
  await patchAccount(to, "b", { status: "suspended" }, ACTOR);
  await patchAccount(to, "b", { status: "closed", priceMultiplier: 2 }, ACTOR);
}

test("metadata combines with other filters, with orders and with a token's own accounts", async () => {
  await givenShops();
  const pro = { plan: "pro" };
  expect(await listed({ metadata: pro })).toEqual(["a", "b", "c"]);
  expect(await listed({ metadata: { plan: "pro", region: "eu" } })).toEqual(["a"]);
  expect(await listed({ metadata: { region: "eu" } })).toEqual(["a"]);
  expect(await listed({ metadata: { seats: "5" } })).toEqual(["b.2"]);
  for (const none of ["[object Object]", "null", "pro,", ""])
    expect(await listed({ metadata: { plan: none } })).toEqual([]);
  expect(await listed({ metadata: { constructor: "x" } })).toEqual([]);
  expect(await listed({ metadata: pro, status: "closed" })).toEqual(["b"]);
  expect(await listed({ metadata: pro, status: "active" })).toEqual(["a", "c"]);
  expect(await listed({ metadata: pro, prefix: "b" })).toEqual(["b"]);
  expect(await listed({ metadata: pro, label: "o" })).toEqual(["c"]);
  expect(await listed({ metadata: pro, sort: "-balance" })).toEqual(["c", "b", "a"]);
  expect(await listed({ metadata: pro, balanceBelow: 1 })).toEqual(["a", "b", "c"]);
  expect(await listed({ metadata: pro }, ["a", "d", "b.2"])).toEqual(["a"]);
  expect(await listed({ metadata: pro, sort: "balance" }, ["a", "d", "b.2"])).toEqual(["a"]);
  const { next: cursor } = await listAccounts(nodes, { metadata: pro, limit: 1 });
  for (const other of [undefined, { plan: "free" }, { ...pro, region: "eu" }])
    await expect(listAccounts(nodes, { metadata: other, limit: 1, cursor })).rejects.toMatchObject({
      path: "cursor",
    });
});

// Guarantee: what a page reads does not grow with the accounts that have the value.
test("a page looks at a bounded number of accounts", async () => {
  await emptyStore();
  const [digest] = metadataDigests({ plan: "pro" });
  const pipe = server.client.pipeline();
  for (const at of times(2500, (n) => n)) {
    const accountId = `x${at}`;
    const partition = partitionOf(accountId, PARTITIONS);
    pipe.hset(accountNames(partition, accountId).account, { money: "0 0 0 0 -", metadata: '{"plan":"pro"}' });
    pipe.zadd(partitionNames(partition).metadata, 0, `${digest} ${accountId}`);
  }
  await pipe.exec();
  await server.client.config("RESETSTAT");
  const query = { metadata: { plan: "pro", region: "eu" }, limit: 100 };
  const page = await listAccounts(nodes, query);
  expect(page).toMatchObject({ accounts: [], next: expect.any(String) });
  const stats = await server.client.info("commandstats");
  expect(Number(/cmdstat_hgetall:calls=(\d+)/.exec(stats)?.[1])).toBe(1000);
  expect(await listed(query)).toEqual([]);
});

test("metadata has at most 50 names, which are all indexed", async () => {
  await emptyStore();
  const of = (count: number) => Object.fromEntries(times(count, (at) => [`n${at}`, at]));
  await createAccount(nodes, { accountId: "a", metadata: of(50) }, ACTOR);
  expect((await indexAndScan()).index).toHaveLength(50);
  await expect(patchAccount(nodes, "a", { metadata: of(51) }, ACTOR)).rejects.toMatchObject({
    path: "metadata",
  });
  await issueKey(nodes, { accountId: "a" }, cliActor());
  await patchAccount(nodes, "a", { metadata: null }, ACTOR);
  expect((await indexAndScan()).index).toEqual([]);
});

test.each(inShare(METADATA_MUTANTS))("the mistake is found: $what", async (mutant) => {
  await withMutant(server.url, mutant, givenShops);
  const { index, scan } = await indexAndScan();
  expect(index).not.toEqual(scan);
});
