import fc from "fast-check";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { restoreAccounts, restoreKeys, restoreReferences } from "../../src/archive/restoring.ts";
import { trimLedger } from "../../src/archive/trimming.ts";
import { createAccount, patchAccount } from "../../src/operations/accounts/operator-accounts.ts";
import { searchWords } from "../../src/operations/accounts/search-words.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { changeKey } from "../../src/operations/keys/change-key.ts";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { readKey } from "../../src/operations/keys/keys.ts";
import { cliActor } from "../../src/records/actor.ts";
import { LEDGER_START, readLedger } from "../../src/records/ledger-entries.ts";
import { accountNames, keyNames, META, partitionNames } from "../../src/records/names.ts";
import { placesOfAccount, placesOfKey, placesOfReference } from "../../src/records/words.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { times } from "../support/store.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { withMutant } from "./mutant-client.ts";
import { inShare, WORD_MUTANTS } from "./mutants.ts";

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
const emptyStore = async (): Promise<void> => {
  await server.client.flushall();
  await server.client.hset(META, { partitions: PARTITIONS, id: "store", layout: "1" });
};
beforeEach(emptyStore);

const partitions = times(PARTITIONS, (at) => at);

async function indexNow(): Promise<string[]> {
  const lists = partitions.map((at) => server.client.zrange(partitionNames(at).words, "0", "-1"));
  return (await Promise.all(lists)).flat().sort();
}

/** Places that the records of all accounts, keys and references make. */
async function scan(): Promise<string[]> {
  const redis = server.client;
  const places = new Set<string>();
  for (const partition of partitions) {
    for (const accountId of await redis.zrange(partitionNames(partition).accounts, "0", "-1")) {
      const { account, keys, references } = accountNames(partition, accountId);
      const [label, metadata] = await redis.hmget(account, "label", "metadata");
      const found = placesOfAccount(accountId, label ?? undefined, JSON.parse(metadata ?? "{}"));
      for (const keyId of await redis.zrange(keys, "0", "-1")) {
        const own = await redis.hget(keyNames(partition, keyId).key, "label");
        found.push(...placesOfKey(accountId, keyId, own ?? undefined));
      }
      for (const reference of await redis.hkeys(references))
        found.push(...placesOfReference(accountId, reference));
      for (const place of found) places.add(place);
    }
  }
  return [...places].sort();
}

const words = async (q: string, own?: readonly string[]): Promise<string[]> =>
  (await searchWords(nodes, q, { limit: 20, own })).found.map(
    ({ accountId, keyId, reference }) => keyId ?? reference ?? accountId,
  );

const text = fc.oneof(
  fc.constantFrom(
    "",
    "Acme Films, Ltd.",
    "acme",
    "films films",
    "é 😀 Ünder",
    "a/b@c=d",
    `x${"é".repeat(60)}`,
  ),
  fc.constantFrom("one two three four five six seven eight nine ten", "-- --", "order-2026-0042"),
  fc.string({ unit: "binary" }).filter((one) => !one.includes("\0")),
);
const change = fc.record({
  accountId: fc.constantFrom(...IDS),
  label: fc.option(fc.constantFrom("Acme Films", "acme", "Films / Acme", "Ünder é")),
  metadata: fc.option(
    fc.dictionary(
      fc.constantFrom("crm", "with space", "constructor"),
      fc.oneof(text, fc.constantFrom(17, true, null)),
      {
        noNullPrototype: true,
      },
    ),
  ),
});

// Guarantee: after any changes the index has what a scan of all records finds, no more and no less.
test("the index of words equals a scan, and each word and what follows it finds its account", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 8 }), async (changes) => {
      await emptyStore();
      const now = new Map<string, (typeof changes)[number]>();
      for (const { accountId, label, metadata } of changes) {
        if (now.has(accountId)) await patchAccount(nodes, accountId, { label, metadata }, ACTOR);
        else await createAccount(nodes, { accountId, label: label ?? undefined, metadata }, ACTOR);
        now.set(accountId, { accountId, label, metadata });
      }
      expect(await indexNow()).toEqual(await scan());
      for (const { accountId, label } of now.values())
        for (const word of label?.split(/[ /]+/) ?? [])
          expect(await words(word.slice(0, 3))).toContain(accountId);
    }),
    { numRuns: 40 },
  );
});

// Guarantee: whoever may write metadata fills Redis with little more than what he sends.
test("an account has 64 places, however many words its metadata has, and none once they are gone", async () => {
  const eight = (nth: number): string => times(8, (at) => `w${8 * nth + at}`).join(" ");
  const metadata = Object.fromEntries(times(50, (nth) => [`name${nth}`, eight(nth)]));
  await createAccount(nodes, { accountId: "a", label: "Acme Films", metadata }, ACTOR);
  expect(await indexNow()).toHaveLength(64);
  expect(await indexNow()).toEqual(await scan());
  expect(await words("films")).toEqual(["a"]);
  expect(await words("w61")).toEqual(["a"]);
  expect(await words("w62")).toEqual([]);
  await patchAccount(nodes, "a", { label: null, metadata: null }, ACTOR);
  expect(await indexNow()).toEqual([]);
});

/** Accounts, keys and references, some of which have changed. @returns the ids of the keys */
async function givenShops(to = nodes): Promise<string[]> {
  await emptyStore();
  const crm = { crm: "lead 17", "any name": "Étoile", seats: 450, paying: true, long: `x${"é".repeat(60)}` };
  await createAccount(to, { accountId: "a", label: "Old Name", metadata: { crm: "former" } }, ACTOR);
  await patchAccount(to, "a", { label: "Acme Films, Ltd." }, ACTOR);
  await patchAccount(to, "a", { metadata: crm }, ACTOR);
  await createAccount(to, { accountId: "b", label: "Films of Bolt" }, ACTOR);
  await patchAccount(to, "b", { limits: { rate_limit: 5 } }, ACTOR);
  await createAccount(to, { accountId: "c" }, ACTOR);
  for (const [accountId, reference] of [
    ["a", "order-2026-0042"],
    ["b", "Order 2026/0043"],
    ["c", "a-b-c-d-fifth"],
  ] as const)
    await grantCredits(to, accountId, 10, reference, ACTOR);
  const first = await issueKey(to, { accountId: "c", label: "Render farm", credits: 5 }, cliActor());
  const { keyId } = await issueKey(to, { accountId: "c", label: "Lost label" }, cliActor());
  await changeKey(to, (await readKey(to, keyId, "c"))!, { label: "Batch of films" }, ACTOR);
  return [first.keyId, keyId];
}

test("words are found inside labels, metadata and references, by their beginnings and in a row", async () => {
  const [farm, batch] = await givenShops();
  for (const [q, ids] of [
    ["films", ["a", "b", batch]],
    ["FILMS L", ["a"]],
    ["films-of", ["b"]],
    ["ilms", []],
    ["farm", [farm]],
    ["name", []],
    ["lost", []],
    ["17", ["a"]],
    ["450", ["a"]],
    ["true", []],
    ["Étoi", ["a"]],
    ["0042", ["order-2026-0042"]],
    ["2026 00", ["Order 2026/0043", "order-2026-0042"]],
    ["d fi", ["a-b-c-d-fifth"]],
    ["fifth", []],
    ["-", []],
    ["key", []],
    [`x${"é".repeat(60)}`, ["a"]],
    [`x${"é".repeat(61)}`, []],
  ] as const)
    expect([q, (await words(q)).sort()]).toEqual([q, [...ids].sort()]);
  expect((await searchWords(nodes, "lead", { limit: 20 })).found).toEqual([
    { accountId: "a", label: "Acme Films, Ltd.", metadata: "crm: lead 17" },
  ]);
  expect(await words("films", ["b"])).toEqual(["b"]);
});

// Guarantee: what a search reads does not grow with what has the word.
test("a search reads a bounded number of places and records, and says that there may be more", async () => {
  await Promise.all(
    times(300, (at) => createAccount(nodes, { accountId: `x${at}`, label: `Shop ${at} shop` }, ACTOR)),
  );
  await server.client.config("RESETSTAT");
  const { found, complete } = await searchWords(nodes, "shop", { limit: 20 });
  expect([found.length, complete]).toEqual([20, false]);
  const stats = await server.client.info("commandstats");
  const calls = (command: string) =>
    Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
  expect(calls("zrange")).toBeLessThanOrEqual(2 * PARTITIONS);
  expect(calls("hmget")).toBeLessThanOrEqual(22);
  expect(await searchWords(nodes, "shop 17", { limit: 20 })).toMatchObject({ complete: true });
});

const ledgerOf = (partition: number) => readLedger(server.client, partition, LEDGER_START);

test("a restored store gets the index by its accounts, keys and references", async () => {
  await givenShops();
  const before = await indexNow();
  expect(before).toEqual(await scan());
  await server.client.del(...partitions.map((at) => partitionNames(at).words));
  for (const partition of partitions) {
    for (const accountId of await server.client.zrange(partitionNames(partition).accounts, "0", "-1")) {
      const { account, keys } = accountNames(partition, accountId);
      const record = await server.client.hgetall(account);
      await restoreAccounts(nodes, [{ partition, accountId, record: record as never }]);
      for (const keyId of await server.client.zrange(keys, "0", "-1")) {
        const own = await server.client.hgetall(keyNames(partition, keyId).key);
        await restoreKeys(nodes, [{ partition, keyId, record: own as never }]);
      }
    }
    await restoreReferences(nodes, await ledgerOf(partition));
  }
  expect(await indexNow()).toEqual(before);
});

/** Forgets all references but that of the newest entry. */
async function forgetReferences(to = nodes): Promise<void> {
  for (const partition of partitions) {
    const archivedTo = (await ledgerOf(partition)).at(-1);
    const options = { partition, archivedTo: archivedTo!, keepMs: 0, keepReferencesMs: 0 };
    // Entries leave first, then their references.
    for (const _ of archivedTo ? [1, 2] : []) await trimLedger(scriptsOf(to.of(0)).run, options);
  }
}

test("a reference that Redis forgets leaves the index", async () => {
  await givenShops();
  for (const accountId of ["a", "b", "c"]) await grantCredits(nodes, accountId, 1, "newest", ACTOR);
  await forgetReferences();
  expect(await words("0042")).toEqual([]);
  expect(await indexNow()).toEqual(await scan());
});

test.each(inShare(WORD_MUTANTS))("the mistake is found: $what", async (mutant) => {
  await withMutant(server.url, mutant, async (to) => {
    await givenShops(to);
    await grantCredits(to, "a", 1, "newest", ACTOR);
    const made = (await indexNow()).join() === (await scan()).join();
    await forgetReferences(to);
    expect(made && (await indexNow()).join() === (await scan()).join()).toBe(false);
  });
});
