import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { restoreReferences } from "../../src/archive/restoring.ts";
import { trimLedger } from "../../src/archive/trimming.ts";
import { createAccount } from "../../src/operations/accounts/operator-accounts.ts";
import { adjustCredits } from "../../src/operations/credits/adjustments.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import {
  accountsOfReference,
  entryIdOf,
  type ReadArchived,
} from "../../src/operations/credits/references.ts";
import { refundTask } from "../../src/operations/credits/refunds.ts";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { LEDGER_START, readLedger } from "../../src/records/ledger-entries.ts";
import { REFERENCE_ACCOUNTS_MAX } from "../../src/records/names.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { emptyStore, type OwnStore, openOwnStore } from "../support/own-store.ts";
import { createStage, type TestConnection, times } from "../support/store.ts";
import { withMutant } from "./mutant-client.ts";
import { inShare, REFERENCE_MUTANTS } from "./mutants.ts";

// The search is one of a whole store: one that no other test writes to.

const ACTOR = { by: "test", requestId: "" };
const PARTITIONS = 4;

let server: OwnStore;
let connection: TestConnection;
let nodes: RedisNodes;
beforeAll(async () => {
  server = await openOwnStore(PARTITIONS);
  connection = server.connection;
  nodes = oneNode(server.client);
});
afterAll(() => server?.stop());
const empty = (partitions = PARTITIONS): Promise<void> => emptyStore(server.client, partitions);
beforeEach(() => empty());

const grant = (to: RedisNodes, accountId: string, reference: string) =>
  grantCredits(to, accountId, 10, reference, ACTOR);
const found = async (reference: string): Promise<string[]> =>
  (await accountsOfReference(nodes, reference)).accountIds.sort();

/** Accounts in all partitions; every kind of entry that has a reference. */
async function givenReferences(to: RedisNodes): Promise<{ keyId: string }> {
  const ids = times(12, (at) => `acc_${at}`);
  for (const accountId of ids) await createAccount(to, { accountId }, ACTOR);
  for (const accountId of ids) await grant(to, accountId, `invoice of ${accountId}`);
  for (const accountId of ids.slice(3, 6)) await grant(to, accountId, "Autumn sale");
  await adjustCredits(to, "acc_1", { amount: -3, reason: "typo", reference: "ticket 1" }, ACTOR);
  return issueKey(to, { accountId: "acc_2", credits: 5 }, cliActor());
}

test("finds the accounts of grants, adjustments and first credits, in whichever partition they are", async () => {
  const { keyId } = await givenReferences(nodes);
  for (const at of [0, 5, 11]) expect(await found(`invoice of acc_${at}`)).toEqual([`acc_${at}`]);
  expect(await found("Autumn sale")).toEqual(["acc_3", "acc_4", "acc_5"]);
  expect(await found("ticket 1")).toEqual(["acc_1"]);
  expect(await found(`key:${keyId}`)).toEqual(["acc_2"]);
  for (const none of ["autumn sale", "Autumn", "invoice of acc_", "x", ""])
    expect(await found(none)).toEqual([]);
});

test("finds the account of a refund by an operator", async () => {
  await empty(1);
  const stage = createStage(connection, { partition: 0, clock: "redis" });
  const key = await stage.givenKey({ accountId: "acc", credits: 100 });
  const request = stage.request(key);
  await stage.givenTask(request);
  await stage.observe(request, "completed");
  await refundTask(nodes, request.requestId, { reason: "black", reference: "ticket 9" }, ACTOR);
  expect(await found("ticket 9")).toEqual(["acc"]);
});

test("keeps twenty accounts of one reference, and says that there may be more", async () => {
  await empty(1);
  const ids = times(REFERENCE_ACCOUNTS_MAX + 3, (at) => `acc_${at}`);
  for (const [at, accountId] of ids.entries()) {
    await createAccount(nodes, { accountId }, ACTOR);
    await grant(nodes, accountId, "promo");
    const { accountIds, complete } = await accountsOfReference(nodes, "promo");
    expect(accountIds).toEqual(ids.slice(0, Math.min(at + 1, REFERENCE_ACCOUNTS_MAX)));
    expect(complete).toBe(at + 1 < REFERENCE_ACCOUNTS_MAX);
  }
});

// Guarantee: a backend that repeats a call days later gets the transaction of the first one, as the contract says.
test("a repeat answers the entry of the first call, however many came since", async () => {
  await empty(1);
  const stage = createStage(connection, { partition: 0, clock: "redis" });
  const key = await stage.givenKey({ accountId: "acc", credits: 0 });
  const first = await grant(nodes, "acc", "order 1");
  const down = { amount: -3, reason: "typo", reference: "ticket 1" };
  const adjusted = await adjustCredits(nodes, "acc", down, ACTOR);
  await Promise.all(times(1200, (at) => stage.recharge(key, 1, `later ${at}`)));
  const again = await grant(nodes, "acc", "order 1");
  expect(again).toMatchObject({ outcome: "duplicate", entry: first.entry, balance: 1207 });
  expect(first.entry).toMatchObject({ reference: "order 1", amount: 10 });
  expect((await adjustCredits(nodes, "acc", down, ACTOR)).entry).toEqual(adjusted.entry);
  // It has left for the archive.
  const archivedTo = (await readLedger(server.client, 0, LEDGER_START)).at(-1)!;
  await trimLedger(scriptsOf(server.client).run, { partition: 0, archivedTo, keepMs: 0 });
  const readFrom = (read: ReadArchived) => grantCredits(nodes, "acc", 10, "order 1", ACTOR, read);
  expect((await readFrom(async () => first.entry)).entry).toEqual(first.entry);
  const away = await readFrom(() => Promise.reject(new Error("away")));
  expect(away).toMatchObject({ outcome: "duplicate", entry: undefined });
});

// Guarantee: a promotion that all accounts get under one reference can be repeated as any other grant.
test("a repeat answers the entry of the first call, however many accounts have the reference", async () => {
  await empty(1);
  const stage = createStage(connection, { partition: 0, clock: "redis" });
  const ids = times(REFERENCE_ACCOUNTS_MAX + 2, (at) => `acc_${at}`);
  const first = [];
  for (const accountId of ids) {
    await createAccount(nodes, { accountId }, ACTOR);
    first.push((await grant(nodes, accountId, "welcome")).entry);
  }
  const key = await stage.givenKey({ accountId: "acc_21", credits: 0 });
  await Promise.all(times(1200, (at) => stage.recharge(key, 1, `later ${at}`)));
  for (const [at, accountId] of ids.entries())
    expect(await grant(nodes, accountId, "welcome")).toMatchObject({
      outcome: "duplicate",
      entry: first[at],
    });
  expect(await entryIdOf(server.client, 0, "acc_21", "welcome")).toBe(first[21]?.streamId);
});

// Guarantee: the index is no larger than the references that there are.
test("a reference that Redis forgets leaves the index, and the others of its place stay", async () => {
  await empty(1);
  for (const accountId of ["one", "two"]) {
    await createAccount(nodes, { accountId }, ACTOR);
    await grant(nodes, accountId, "shared");
    await grant(nodes, accountId, `own of ${accountId}`);
  }
  const archivedTo = (await readLedger(server.client, 0, LEDGER_START)).at(-1)!;
  const { run } = scriptsOf(server.client);
  const trim = (keepReferencesMs: number) =>
    trimLedger(run, { partition: 0, archivedTo, keepMs: 0, keepReferencesMs });
  // The newest entry stays, and its reference with it.
  expect(await trim(1e12)).toMatchObject({ entries: 3 });
  expect(await found("shared")).toEqual(["one", "two"]);
  await grant(nodes, "two", "later");
  expect(await trim(0)).toMatchObject({ references: 3 });
  expect(await found("own of one")).toEqual([]);
  expect(await found("own of two")).toEqual(["two"]);
  expect(await found("later")).toEqual(["two"]);
  expect(await server.client.keys("tg:{p00}:reference-index:*")).toHaveLength(2);
});

test("a restored store gets the index by its entries", async () => {
  await givenReferences(nodes);
  const before = await indexNow();
  await server.client.del(...before.keys());
  expect(await indexNow()).toEqual(new Map());
  for (const partition of times(PARTITIONS, (at) => at)) {
    // In two pages.
    const entries = await readLedger(server.client, partition, LEDGER_START);
    await restoreReferences(nodes, entries.slice(0, 3));
    await restoreReferences(nodes, entries.slice(3));
  }
  expect(await indexNow()).toEqual(before);
});

async function indexNow(): Promise<Map<string, Map<string, string>>> {
  const index = new Map<string, Map<string, string>>();
  for (const name of (await server.client.keys("tg:*:reference-index:*")).sort()) {
    const places = Object.entries(await server.client.hgetall(name));
    index.set(
      name,
      new Map(places.map(([field, ids]) => [field, ids.replaceAll(/@\S+/g, "").split(" ").sort().join()])),
    );
  }
  return index;
}

/** Findings of searches in one partition, and how many places are taken, before references leave and after. */
async function searchesOf(to: RedisNodes): Promise<unknown> {
  await empty(1);
  const { keyId } = await givenReferences(to);
  const ids = times(REFERENCE_ACCOUNTS_MAX + 1, (at) => `more_${at}`);
  for (const accountId of ids) {
    await createAccount(to, { accountId }, ACTOR);
    await grant(to, accountId, "promo");
  }
  // The newest entry stays, and so does its reference.
  await grant(to, "acc_0", "Autumn sale");
  const looks = async () => [
    ...(await Promise.all(["invoice of acc_1", "Autumn sale", "ticket 1", `key:${keyId}`].map(found))),
    await accountsOfReference(nodes, "promo"),
    (await entryIdOf(server.client, 0, "acc_1", "ticket 1")) !== undefined,
    (await entryIdOf(server.client, 0, ids.at(-1)!, "promo")) !== undefined,
    [...(await indexNow()).values()].reduce((sum, places) => sum + places.size, 0),
  ];
  const before = await looks();
  const archivedTo = (await readLedger(server.client, 0, LEDGER_START)).at(-1)!;
  const { run } = scriptsOf(to.of(0));
  for (const keepReferencesMs of [1e12, 0])
    await trimLedger(run, { partition: 0, archivedTo, keepMs: 0, keepReferencesMs });
  return [before, await looks()];
}

test.each(inShare(REFERENCE_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const good = await searchesOf(nodes);
  expect(await withMutant(server.url, mutant, searchesOf)).not.toEqual(good);
});
