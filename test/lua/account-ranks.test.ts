import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { rollUp } from "../../src/jobs/rollup-work.ts";
import { type AccountQuery, listAccounts } from "../../src/operations/accounts/account-lists.ts";
import { createAccount, patchAccount } from "../../src/operations/accounts/operator-accounts.ts";
import { adjustCredits } from "../../src/operations/credits/adjustments.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { reverseGrant } from "../../src/operations/credits/reversals.ts";
import type { GrantKind } from "../../src/records/ledger-entries.ts";
import { partitionNames, partitionOf, spentName } from "../../src/records/names.ts";
import { createScriptRunner, scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { startBinary } from "../../src/sandbox/redis-server.ts";
import { account } from "../../src/scripts/accounts.ts";
import { ranked } from "../../src/scripts/ledger.ts";
import type { Run } from "../../src/scripts/script-definition.ts";
import { backwardsLocale } from "../support/backwards-locale.ts";
import { createClient } from "../support/client.ts";
import { type OwnStore, openOwnStore } from "../support/own-store.ts";
import { redisBinary } from "../support/redis-binary.ts";
import { createStage, type TestConnection, times } from "../support/store.ts";
import { plantForTest } from "./mutant-client.ts";
import { inShare, type Mutant, RANK_MUTANTS } from "./mutants.ts";

// Lists over all accounts by balance and by spending, in a store that no other test writes to.

const PARTITIONS = 4;
const ACTOR = { by: "test", requestId: "" };

let server: OwnStore;
let nodes: RedisNodes;
let connection: TestConnection;
beforeAll(async () => {
  server = await openOwnStore(PARTITIONS);
  connection = server.connection;
  nodes = oneNode(server.client);
});
afterAll(() => server?.stop());
beforeEach(() => server.empty());

async function rollAll(run = scriptsOf(server.client).run): Promise<void> {
  for (let partition = 0; partition < PARTITIONS; partition++) await rollUp(run, { partition });
}

async function pagesOf(query: Partial<AccountQuery>, own?: readonly string[]) {
  const rows: Awaited<ReturnType<typeof listAccounts>>["accounts"] = [];
  let cursor: string | undefined;
  do {
    const page = await listAccounts(nodes, { limit: 3, ...query, cursor }, own);
    rows.push(...page.accounts);
    cursor = page.next;
  } while (cursor !== undefined);
  return rows;
}
const idsOf = async (query: Partial<AccountQuery>, own?: readonly string[]): Promise<string[]> =>
  (await pagesOf(query, own)).map(({ accountId }) => accountId);

let grants = 0;
const give = (accountId: string, amount: number) =>
  adjustCredits(nodes, accountId, { amount, reason: "test", reference: `r${grants++}` }, ACTOR);

/** Accounts with these balances. */
async function givenBalances(balances: Readonly<Record<string, number>>): Promise<void> {
  for (const [accountId, balance] of Object.entries(balances)) {
    await createAccount(nodes, { accountId }, ACTOR);
    if (balance > 0) await give(accountId, balance);
  }
  await rollAll();
}

const BALANCES = { a: 5, b: 0, c: 30, d: 5, e: 5, f: 12, g: 0, h: 7, i: 5, j: 100 };
const BY_BALANCE = ["b", "g", "a", "d", "e", "i", "h", "f", "c", "j"];

// Guarantee: who is about to run out is found in one list, in one order over all its pages.
test("accounts are listed by balance, then by id, over all pages and both ways", async () => {
  await givenBalances(BALANCES);
  for (const limit of [1, 3, 4, 100]) {
    expect(await idsOf({ sort: "balance", limit })).toEqual(BY_BALANCE);
    expect(await idsOf({ sort: "-balance", limit })).toEqual(BY_BALANCE.toReversed());
  }
  expect(await idsOf({ balanceBelow: 7 })).toEqual(["b", "g", "a", "d", "e", "i"]);
  expect(await idsOf({ balanceBelow: 7, sort: "-balance" })).toEqual(["i", "e", "d", "a", "g", "b"]);
  expect(await idsOf({ balanceBelow: 0 })).toEqual([]);
  await patchAccount(nodes, "d", { status: "suspended" }, ACTOR);
  expect(await idsOf({ sort: "balance", status: "suspended" })).toEqual(["d"]);
  expect(await idsOf({ sort: "balance", prefix: "e" })).toEqual(["e"]);
});

test("a token for some accounts sees these in the same order", async () => {
  await givenBalances(BALANCES);
  const own = ["c", "a", "d", "g", "nobody"];
  expect(await idsOf({ sort: "balance", limit: 2 }, own)).toEqual(["g", "a", "d", "c"]);
  expect(await idsOf({ sort: "-balance", limit: 2 }, own)).toEqual(["c", "d", "a", "g"]);
  expect(await idsOf({ balanceBelow: 5 }, own)).toEqual(["g"]);
});

test("a new account is listed at once, a change of its balance once it is rolled up", async () => {
  await givenBalances({ a: 5 });
  await createAccount(nodes, { accountId: "new" }, ACTOR);
  expect(await idsOf({ sort: "balance" })).toEqual(["new", "a"]);
  await give("new", 9);
  expect(await idsOf({ sort: "balance" })).toEqual(["new", "a"]);
  await rollAll();
  expect(await idsOf({ sort: "balance" })).toEqual(["a", "new"]);
});

// Guarantee: whatever moves a balance moves its account in the list.
test("grants of each kind and their reversals move an account in the list", async () => {
  await givenBalances({ a: 5 });
  await createAccount(nodes, { accountId: "new" }, ACTOR);
  const kinds: GrantKind[] = ["purchase", "trial", "goodwill"];
  for (const [at, kind] of kinds.entries()) {
    await grantCredits(nodes, "new", 10, kind, ACTOR, undefined, { kind, details: {} });
    await rollAll();
    const balance = 10 * (at + 1);
    expect((await pagesOf({ sort: "-balance" }))[0]).toMatchObject({ accountId: "new", balance });
    expect(await idsOf({ balanceBelow: balance })).toEqual(["a"]);
  }
  for (const of of kinds) {
    await reverseGrant(nodes, "new", { of, reference: `back ${of}`, reason: "test" }, ACTOR);
    await rollAll();
  }
  expect(await idsOf({ balanceBelow: 1 })).toEqual(["new"]);
});

test("pages go on behind a place whose account has moved", async () => {
  await givenBalances({ a: 1, b: 2, c: 3, d: 4 });
  const first = await listAccounts(nodes, { sort: "balance", limit: 2 });
  await give("b", 90);
  await rollAll();
  const second = await listAccounts(nodes, { sort: "balance", limit: 2, cursor: first.next });
  expect(second.accounts.map(({ accountId }) => accountId)).toEqual(["c", "d"]);
});

// Guarantee: what an account has spent is what it was charged without what it got back, each counted once.
// Guarantee: nobody is missing. Redis orders members by their bytes, and compares texts of a script by the locale of its server.
test("pages of accounts with one balance have each once, whatever the locale of the server", async () => {
  const dir = await mkdtemp(join(tmpdir(), "tollgate-locale-"));
  const binary = await redisBinary();
  const env = { ...binary.env, ...(await backwardsLocale(dir)) };
  const redis = await startBinary({ ...binary, env }, "Redis", {
    dir: join(dir, "redis"),
    persistent: false,
  });
  const client = new Redis(redis.url);
  try {
    expect(await client.eval("return tostring('b' < 'a')", 0), "the locale is in force").toBe("true");
    const ids = ["Acme", "a-1", "a_1", "acme", "b", "bob", "c"];
    await client.zadd("list", ...ids.flatMap((id) => [0, id]));
    for (const descending of [false, true]) {
      const found: string[] = [];
      let after: { score: number; member: string } | undefined;
      for (;;) {
        const page = await scriptsOf(client).run(ranked, { list: "list", after, most: 2, descending });
        found.push(...page.map(({ member }) => member));
        after = page.at(-1);
        if (after === undefined || found.length > ids.length) break;
      }
      expect(found).toEqual(descending ? ids.toReversed() : ids);
    }
  } finally {
    client.disconnect();
    await redis.stop();
    await rm(dir, { recursive: true, force: true });
  }
});

test("accounts are listed by what they spent today; rows have today and seven days", async () => {
  const spend = async (accountId: string, prices: number[], failing = 0) => {
    const partition = partitionOf(accountId, PARTITIONS);
    const stage = createStage(connection, { partition, clock: "redis" });
    const key = await stage.givenKey({ accountId, credits: 100 });
    const made = prices.map((price) => stage.request(key, { price }));
    for (const one of made) await stage.givenTask(one);
    for (const one of made.slice(0, failing)) await stage.observe(one, "failed");
  };
  await spend("small", [5]);
  await spend("large", [20, 20]);
  await spend("returned", [50, 10], 1);
  await spend("none", []);
  await Promise.all([rollAll(), rollAll()]);
  await rollAll();
  expect(await idsOf({ sort: "-spent_today", limit: 2 })).toEqual(["large", "returned", "small"]);
  expect(await idsOf({ sort: "-spent_today" }, ["small", "returned", "none"])).toEqual(["returned", "small"]);
  const ago = (days: number) => new Date(Date.now() - days * 86_400_000).toISOString().slice(0, 10);
  const partition = partitionOf("small", PARTITIONS);
  await server.client.zadd(spentName(partition, ago(6)), 30, "small");
  await server.client.zadd(spentName(partition, ago(7)), 400, "small");
  await server.client.zincrby(partitionNames(partition).spentWeek, 30, "small");
  await server.client.zadd(partitionNames(partition).daysLeft, (95 * 7000) / 35, "small");
  const rows = await pagesOf({});
  expect(
    Object.fromEntries(rows.map(({ accountId, spent }) => [accountId, [spent.today, spent.week]])),
  ).toEqual({
    ...{ small: [5, 35], large: [40, 40], returned: [10, 10], none: [0, 0] },
  });
  // 60 credits at 40 a week, 95 at 35, 90 at 10.
  for (const own of [undefined, ["none", "returned", "small", "large"]]) {
    expect(await idsOf({ sort: "days_left", limit: 1 }, own)).toEqual(["large", "small", "returned"]);
    expect(await idsOf({ sort: "-spent_7d", limit: 2 }, own)).toEqual(["large", "small", "returned"]);
  }
  expect(await idsOf({ sort: "days_left", prefix: "s" })).toEqual(["small"]);
  await give("returned", -88);
  await rollAll();
  expect(await idsOf({ sort: "days_left" })).toEqual(["returned", "large", "small"]);
});

// Guarantee: any page of any list, though a million accounts may have the same balance.
test("a page begins behind its place, whatever ties there are", async () => {
  const list = "{p00}ranks";
  const members = fc.uniqueArray(fc.stringMatching(/^[a-c]{1,3}$/), { minLength: 1, maxLength: 30 });
  await fc.assert(
    fc.asyncProperty(
      members,
      fc.infiniteStream(fc.nat(3)),
      fc.nat(3),
      fc.boolean(),
      async (names, scores, at, descending) => {
        const places = names.map((member) => ({ member, score: scores.next().value! }));
        await server.client.del(list);
        await server.client.zadd(list, ...places.flatMap(({ score, member }) => [score, member]));
        const order = places.toSorted((a, b) => a.score - b.score || (a.member < b.member ? -1 : 1));
        const place = { score: at, member: "bb" };
        const isBefore = (one: typeof place) =>
          one.score < place.score || (one.score === place.score && one.member < place.member);
        const wanted = descending
          ? order.filter(isBefore).toReversed()
          : order.filter(
              (one) => !isBefore(one) && (one.score !== place.score || one.member !== place.member),
            );
        const call = { list, most: 5, descending };
        const { run } = scriptsOf(server.client);
        expect(await run(ranked, { ...call, after: place })).toEqual(wanted.slice(0, 5));
        const whole = descending ? order.toReversed() : order;
        expect(await run(ranked, { ...call, after: undefined })).toEqual(whole.slice(0, 5));
      },
    ),
    { numRuns: 200 },
  );
});

test.each(inShare(RANK_MUTANTS))("the mistake is found: $what", async (mutant) => {
  expect(await lived(mutant)).not.toEqual(await lived());
});

/** Balances in the lists, of accounts that got nothing but such grants. */
async function balancesOf(kinds: readonly GrantKind[], run: Run): Promise<unknown[]> {
  for (const kind of kinds) {
    await createAccount(nodes, { accountId: kind }, ACTOR);
    await grantCredits(nodes, kind, 10, kind, ACTOR, undefined, { kind, details: {} });
  }
  await rollAll(run);
  const read = () =>
    Promise.all(
      kinds.map((kind) =>
        server.client.zscore(partitionNames(partitionOf(kind, PARTITIONS)).byBalance, kind),
      ),
    );
  const granted = await read();
  for (const of of kinds) await reverseGrant(nodes, of, { of, reference: "back", reason: "test" }, ACTOR);
  await rollAll(run);
  return [granted, await read()];
}

async function lived(mutant?: Mutant): Promise<unknown> {
  await server.empty();
  const folder = mutant && (await plantForTest(mutant));
  const client = createClient(server.url, 10_000);
  try {
    await client.connect();
    const scripts = createScriptRunner(client, folder === undefined ? {} : { folder });
    const stage = createStage(connection, { partition: 0, clock: "redis", scripts });
    const key = await stage.givenKey({ accountId: "acc", credits: 100 });
    const call = {
      partition: 0,
      accountId: "idle",
      action: "account.create",
      actor: ACTOR,
      fields: {},
    } as const;
    await scripts.run(account, call);
    const made = times(3, () => stage.request(key, { price: 10 }));
    for (const one of made) await stage.givenTask(one);
    await stage.observe(made[0]!, "failed");
    const other = await stage.givenKey({ accountId: "charged", credits: 50 });
    await stage.givenTask(stage.request(other, { price: 10 }));
    await rollUp(scripts.run, { partition: 0 });
    const today = spentName(0, new Date().toISOString().slice(0, 10));
    const { byBalance } = partitionNames(0);
    await client.zadd("ties", 1, "a", 1, "b", 1, "c", 2, "d");
    const place = { score: 1, member: "b" };
    const pages = [true, false].map((descending) =>
      scripts.run(ranked, { list: "ties", after: place, most: 9, descending }),
    );
    return [
      await client.zrange(byBalance, "0", "-1", "WITHSCORES"),
      await client.zrange(today, "0", "-1", "WITHSCORES"),
      (await client.pttl(today)) > 31 * 86_400_000,
      await Promise.all(pages),
      await balancesOf(["trial", "goodwill"], scripts.run),
    ];
  } finally {
    client.disconnect();
  }
}
