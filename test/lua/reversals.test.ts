import { afterAll, beforeAll, expect, test } from "vitest";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { pageAudit } from "../../src/operations/access/audit.ts";
import { readAccount } from "../../src/operations/accounts/accounts.ts";
import { patchAccount } from "../../src/operations/accounts/operator-accounts.ts";
import { adjustCredits } from "../../src/operations/credits/adjustments.ts";
import { grantCredits, readGrant } from "../../src/operations/credits/grants.ts";
import type { ReadArchived } from "../../src/operations/credits/references.ts";
import { refundTask } from "../../src/operations/credits/refunds.ts";
import { reverseGrant } from "../../src/operations/credits/reversals.ts";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import type { Actor } from "../../src/records/actor.ts";
import { detailsOf, type GrantKind, kindOf, type LedgerEntry } from "../../src/records/ledger-entries.ts";
import { accountNames, partitionOf } from "../../src/records/names.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { recharge } from "../../src/scripts/credit-changes.ts";
import { changeMoney } from "../support/account-money.ts";
import { createStage, openConnection, randomId, type TestConnection, times } from "../support/store.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { withMutant } from "./mutant-client.ts";
import { inShare, type Mutant, REVERSAL_MUTANTS } from "./mutants.ts";

// Kinds of grants, and taking back what is left of one.

let redis: TestRedis;
let nodes: RedisNodes;
let connection: TestConnection;
beforeAll(async () => {
  redis = await givenRedis();
  nodes = oneNode(redis.client);
  connection = await openConnection(redis.url);
});
afterAll(async () => {
  await connection.close();
  await redis.stop();
});

const ANN: Actor = { by: "tok_1 Ann's shop", requestId: "req_ann" };
const PACKAGES = { premium: { credits: 500, price: "39.90", currency: "USD" }, bonus: { credits: 50 } };

/** An account without credits, with a key, in the partition where the store looks for it. */
async function givenAccount() {
  const accountId = randomId("acc");
  const stage = createStage(connection, { clock: "redis", partition: partitionOf(accountId, 64) });
  const key = await stage.givenKey({ accountId, credits: 0 });
  const grant = (credits: number, reference: string, kind: GrantKind = "purchase", on = nodes) =>
    grantCredits(on, accountId, credits, reference, ANN, undefined, { kind, details: {} });
  const reverse = (of: string, reference: string, amount?: number, on = nodes, read?: ReadArchived) =>
    reverseGrant(on, accountId, { of, reference, reason: "money back", amount }, ANN, read);
  return { stage, key, accountId, grant, reverse };
}

const problemOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => "done",
    (error: { problem?: string }) => {
      if (error.problem === undefined) throw error;
      return error.problem;
    },
  );

const soundly = async (accountId: string, credits: object): Promise<void> => {
  const verified = await verifyLedger(nodes, { accountIds: [accountId] });
  expect(verified).toMatchObject({ ok: true, violations: [], credits });
};

test("a reversal takes back all of a grant, linked to it, once per reference, and shows customers why", async () => {
  const { accountId, grant, reverse } = await givenAccount();
  await grant(500, "order 1");
  const taken = await reverse("order 1", "r-1");
  expect(taken).toMatchObject({
    ...{ outcome: "reversed", balance: 0 },
    entry: { type: "consume", amount: -500, reason: "money back", reference: "r-1", by: ANN.by },
  });
  expect(detailsOf(taken.entry!)).toEqual({ of: "order 1", requested: 500, all: true });
  expect(await reverse("order 1", "r-1")).toEqual({ ...taken, outcome: "duplicate" });
  expect(await problemOf(reverse("order 1", "r-2"))).toBe("nothing_left");
  const { recent } = await readAccount(nodes, accountId);
  expect(recent[0]).toMatchObject({ type: "consume", amount: -500, reason: "money back" });
  await soundly(accountId, { recharged: 500, reversed: 500, adjusted: 0 });
  const { records } = await pageAudit(nodes, { accountId, limit: 1 });
  expect(records[0]).toMatchObject({
    ...{ ...ANN, action: "credits.reverse", before: { balance: 500 } },
    after: { balance: 0, amount: 500, requested: 500, of: "order 1", reason: "money back", reference: "r-1" },
  });
});

// Guarantee: a repeat after a lost answer changes nothing, whatever it asks for.
test("a reversal that is repeated with another amount is refused, and with the same answers the first", async () => {
  const { accountId, grant, reverse } = await givenAccount();
  await grant(100, "order 1");
  const first = await reverse("order 1", "r-1", 30);
  expect(await problemOf(reverse("order 1", "r-1", 31))).toBe("reference_mismatch");
  expect(await problemOf(reverse("order 1", "r-1"))).toBe("reference_mismatch");
  expect(
    await problemOf(adjustCredits(nodes, accountId, { amount: 1, reason: "r", reference: "r-1" }, ANN)),
  ).toBe("reference_used");
  expect(await problemOf(reverse("order 1", "order 1"))).toBe("reference_used");
  expect(await reverse("order 1", "r-1", 30)).toEqual({ ...first, outcome: "duplicate" });
  expect(await reverse("order 1", "r-2")).toMatchObject({ balance: 0, entry: { amount: -70 } });
  await soundly(accountId, { recharged: 100, reversed: 100 });
});

// Guarantee: credits that were bought long ago are given back as well, and nothing is that was never bought.
test("of a grant that Redis has forgotten the archive says what it was, and of nothing else", async () => {
  const { accountId, stage, grant, reverse } = await givenAccount();
  await grant(100, "order 1");
  const first = await reverse("order 1", "r-1", 10);
  const { checkpoint } = accountNames(stage.partition, accountId);
  await redis.client.set(checkpoint, "entry 1-0 balance 0 entries 1 forgotten 1");
  const old = { details: "", amount: 7, requestId: "", taskId: "", endpoint: "" };
  const archived: Record<string, object> = {
    "old trial": { ...old, kind: "trial", reference: "old trial" },
    "old mistake": { ...old, kind: "adjustment", type: "recharge", reason: "r", reference: "old mistake" },
  };
  const lookUps: string[] = [];
  const read: ReadArchived = async (_nodes, _id, reference) => {
    lookUps.push(reference);
    return archived[reference] as LedgerEntry | undefined;
  };
  const taken = (of: string, reference: string) => problemOf(reverse(of, reference, 5, nodes, read));
  expect(await taken("old trial", "r-2")).toBe("done");
  expect(await taken("old mistake", "r-3")).toBe("grant_not_found");
  expect(await taken("never", "r-4")).toBe("grant_not_found");
  expect(lookUps).toEqual(["r-2", "old trial", "r-3", "old mistake", "r-4", "never"]);
  expect(await reverse("order 1", "r-1", 10, nodes, () => Promise.reject(new Error("away")))).toEqual({
    ...{ ...first, outcome: "duplicate" },
    balance: 85,
  });
  for (const of of ["order 1", "old trial"])
    expect(await problemOf(reverse(of, "r-5", 5))).toBe("unavailable");
  expect(await problemOf(reverse("old trial", "r-2", 5))).toBe("done");
  expect((await readAccount(nodes, accountId)).balance).toBe(85);
});

// Guarantee: a grant is there at each moment, in Redis or in the archive.
test("a grant that leaves Redis while it is reversed is found in the archive", async () => {
  const { accountId, stage, grant, reverse } = await givenAccount();
  await grant(100, "order 1");
  const { checkpoint, references } = accountNames(stage.partition, accountId);
  await redis.client.set(checkpoint, "entry 1-0 balance 0 entries 1 forgotten 1");
  const { entry } = await grant(100, "order 1");
  const read: ReadArchived = async (_nodes, _id, reference) => (reference === "order 1" ? entry : undefined);
  const hexists = async (name: string, field: string) => {
    const isThere = await redis.client.hexists(name, field);
    await redis.client.hdel(references, "order 1");
    await redis.client.set(checkpoint, "entry 1-0 balance 0 entries 1 forgotten 2");
    return isThere;
  };
  const leaving = oneNode(Object.assign(Object.create(redis.client), { hexists }));
  expect(await reverse("order 1", "r-1", 40, leaving, read)).toMatchObject({
    outcome: "reversed",
    balance: 60,
  });
});

test("three reversals at once take a grant back once", async () => {
  const { accountId, grant, reverse } = await givenAccount();
  await grant(100, "order 1");
  await grant(1000, "order 2");
  const outcomes = await Promise.all(times(3, (at) => problemOf(reverse("order 1", `r-${at}`))));
  expect(outcomes.sort()).toEqual(["done", "nothing_left", "nothing_left"]);
  const parts = await Promise.all(times(3, (at) => reverse("order 2", `p-${at}`, 400)));
  expect(parts.map(({ entry }) => -entry!.amount).sort()).toEqual([200, 400, 400]);
  await soundly(accountId, { recharged: 1100, reversed: 1100 });
});

// Guarantee: what is held stays covered, in whatever order charges and reversals come.
test("reversals beside charges never take what is held", async () => {
  const { accountId, stage, key, grant, reverse } = await givenAccount();
  const limits = { rate_limit: 1000, max_concurrent: 1000, daily_limit: 1000 };
  const other = await stage.givenKey({ accountId, credits: 0, ...limits });
  await grant(300, "order 1");
  const requests = times(40, () => stage.request(other, { price: 10 }));
  const [admissions] = await Promise.all([
    Promise.all(requests.map((request) => stage.admit(request))),
    ...times(10, (at) => problemOf(reverse("order 1", `r-${at}`, 20))),
  ]);
  const admitted = requests.filter((_, at) => admissions[at]?.outcome === "admitted");
  expect(admitted.length).toBeGreaterThan(0);
  const { balance, held } = await readAccount(nodes, accountId);
  expect(held).toBe(10 * admitted.length);
  expect(balance).toBeGreaterThanOrEqual(0);
  for (const request of admitted) expect(await stage.bind(request)).toBe("bound");
  expect((await stage.account(key)).balance).toBe(balance);
  await soundly(accountId, { recharged: 300, consumed: 10 * admitted.length });
});

test("a refund gives back what a reversal may then take, up to the grant", async () => {
  const { accountId, stage, key, grant, reverse } = await givenAccount();
  await grant(30, "order 1");
  const [first, second] = times(2, () => stage.request(key, { price: 10 }));
  for (const request of [first!, second!]) {
    await stage.givenTask(request);
    await stage.observe(request, "completed");
  }
  expect(await reverse("order 1", "r-1")).toMatchObject({ balance: 0, entry: { amount: -10 } });
  expect(await problemOf(reverse("order 1", "r-2"))).toBe("nothing_left");
  await refundTask(nodes, first!.requestId, { reason: "black", reference: "f-1" }, ANN);
  expect(await reverse("order 1", "r-2", 50)).toMatchObject({ balance: 0, entry: { amount: -10 } });
  await refundTask(nodes, second!.requestId, { reason: "black", reference: "f-2" }, ANN);
  await grant(5, "order 2");
  // Of 30 credits, 20 were taken back, and the account can spend more than the rest.
  expect(await reverse("order 1", "r-3")).toMatchObject({ balance: 5, entry: { amount: -10 } });
  await soundly(accountId, { recharged: 35, refunded: 20, reversed: 30 });
});

test("what is no grant cannot be reversed", async () => {
  const { accountId, stage, grant, reverse } = await givenAccount();
  await grant(30, "order 1");
  await adjustCredits(nodes, accountId, { amount: 5, reason: "r", reference: "a-1" }, ANN);
  await reverse("order 1", "r-1", 1);
  for (const of of ["none", "a-1", "r-1"])
    expect(await problemOf(reverse(of, "r-2"))).toBe("grant_not_found");
  expect(await problemOf(reverse("", "r-2"))).toBe("invalid");
  expect(await problemOf(reverse("order 1", "r-2", 0))).toBe("invalid");
  expect(await problemOf(reverse("order 1", "r-2", 1.5))).toBe("invalid");
  const nobody = reverseGrant(nodes, randomId("acc"), { of: "o", reference: "r", reason: "r" }, ANN);
  expect(await problemOf(nobody)).toBe("not_found");
  expect(await stage.redis.hget(accountNames(stage.partition, accountId).references, "r-2")).toBeNull();
});

test("a closed account gets no credits and no keys, and what it has can be taken back", async () => {
  const { accountId, grant, reverse } = await givenAccount();
  await grant(30, "order 1");
  await patchAccount(nodes, accountId, { status: "closed" }, ANN);
  expect(await problemOf(grant(30, "order 2"))).toBe("account_closed");
  expect(await grant(30, "order 1")).toMatchObject({ outcome: "duplicate" });
  expect(await problemOf(issueKey(nodes, { accountId, credits: 5 }, ANN))).toBe("account_closed");
  expect(await reverse("order 1", "r-1")).toMatchObject({ balance: 0 });
  await soundly(accountId, { recharged: 30, reversed: 30 });
});

test("a grant keeps its kind, its package with the price of then, and what was paid", async () => {
  const { accountId } = await givenAccount();
  const grant = (
    reference: string,
    terms: Parameters<typeof readGrant>[1],
    packages: typeof PACKAGES = PACKAGES,
  ) => {
    const { amount, ...notes } = readGrant(packages, terms);
    return grantCredits(nodes, accountId, amount, reference, ANN, undefined, notes);
  };
  const noted = async (reference: string, terms: Parameters<typeof readGrant>[1]) => {
    const { entry } = await grant(reference, terms);
    return [kindOf(entry!), entry!.amount, detailsOf(entry!)];
  };
  const price = { package: "premium", package_price: "39.90", package_currency: "USD" };
  expect(await noted("o-1", { package: "premium" })).toEqual([
    ...["purchase", 500, { ...price, amount_paid: "39.90", currency: "USD" }],
  ]);
  const discount = { package: "premium", amount_paid: "30", metadata: { invoice: 17 } };
  expect(await noted("o-2", discount)).toEqual([
    ...["purchase", 500, { ...price, amount_paid: "30.00", currency: "USD", metadata: { invoice: 17 } }],
  ]);
  expect(await noted("o-3", { package: "premium", kind: "trial" })).toEqual(["trial", 500, price]);
  expect(await noted("o-4", { credits: 7, kind: "goodwill" })).toEqual(["goodwill", 7, {}]);
  expect(await noted("o-5", { credits: 7, amount_paid: "900", currency: "JPY" })).toEqual([
    ...["purchase", 7, { amount_paid: "900", currency: "JPY" }],
  ]);
  expect(await noted("o-6", { package: "bonus" })).toEqual(["purchase", 50, { package: "bonus" }]);
  const euros = { premium: { ...PACKAGES.premium, currency: "EUR" } };
  const { details } = readGrant(euros, { package: "premium", amount_paid: "30" });
  expect(details).toMatchObject({ amount_paid: "30.00", currency: "EUR" });
  // The price of a package may change between a call and its repeat.
  const dearer = { ...PACKAGES, premium: { ...PACKAGES.premium, price: "49.90" } };
  expect(await grant("o-1", { package: "premium" }, dearer)).toMatchObject({ outcome: "duplicate" });
  for (const other of [
    { credits: 500 },
    { credits: 500, amount_paid: "39.90" },
    { package: "premium", kind: "trial" as const },
    { package: "premium", amount_paid: "39.91" },
    { package: "premium", amount_paid: "39.90", currency: "EUR" },
  ])
    expect(await problemOf(grant("o-1", other))).toBe("reference_mismatch");
  await soundly(accountId, { recharged: 500 * 3 + 7 * 2 + 50 });
});

test.each([
  ["no credits and no package", {}, "invalid"],
  ["credits and a package", { credits: 5, package: "premium" }, "invalid"],
  ["an unknown package", { package: "gold" }, "unknown_package"],
  ["a paid trial", { credits: 5, kind: "trial", amount_paid: "9.90" }, "invalid_money"],
  ["a currency of nothing", { credits: 5, currency: "USD" }, "invalid_money"],
  ["a third decimal of USD", { credits: 5, amount_paid: "9.901" }, "invalid_money"],
  ["a decimal of JPY", { credits: 5, amount_paid: "9.90", currency: "JPY" }, "invalid_money"],
  ["a negative amount", { credits: 5, amount_paid: "-9.90" }, "invalid_money"],
  ["a comma", { credits: 5, amount_paid: "9,90" }, "invalid_money"],
  ["an exponent", { credits: 5, amount_paid: "1e3" }, "invalid_money"],
  ["no currency of ISO 4217", { credits: 5, amount_paid: "9.90", currency: "ZZZ" }, "invalid_money"],
  ["a U+0000 in the metadata", { credits: 5, metadata: { note: "\0" } }, "invalid"],
] as const)("a grant with %s is refused", async (_, terms, problem) => {
  expect(await problemOf(Promise.resolve().then(() => readGrant(PACKAGES, terms)))).toBe(problem);
});

test("the credits of a new key are a trial unless it is said otherwise", async () => {
  const kinds: unknown[] = [];
  for (const creditsKind of [undefined, "purchase", "goodwill"] as const) {
    const { accountId } = await issueKey(nodes, { credits: 5, creditsKind }, ANN);
    const { entries } = await readAccount(nodes, accountId);
    kinds.push(kindOf(entries[0]!));
    expect(await verifyLedger(nodes, { accountIds: [accountId] })).toMatchObject({ ok: true });
    const reversed = await reverseGrant(
      nodes,
      accountId,
      { of: entries[0]!.reference, reference: "r", reason: "r" },
      ANN,
    );
    expect(reversed.balance).toBe(0);
  }
  expect(kinds).toEqual(["trial", "purchase", "goodwill"]);
});

// Guarantee: the check of the ledger sees each number that a reversal writes.
test.each([
  ["the sum of reversals", (reversed: string) => redis.client.hincrby(reversed, "", 1), "references"],
  ["a reversal without its note", (reversed: string) => redis.client.del(reversed), "references"],
])("the check of the ledger finds a difference in %s", async (_, spoil, invariant) => {
  const { accountId, stage, grant, reverse } = await givenAccount();
  await grant(30, "order 1");
  await reverse("order 1", "r-1", 10);
  await spoil(accountNames(stage.partition, accountId).reversed);
  const { violations } = await verifyLedger(nodes, { accountIds: [accountId] });
  expect(violations).toMatchObject([{ invariant, account_id: accountId }]);
  await redis.client.hset(accountNames(stage.partition, accountId).reversed, { "order 1": 10, "": 10 });
});

/** Results and records of grants and reversals of all kinds. */
const played = (mutant?: Mutant): Promise<unknown> => withMutant(redis.url, mutant, everything);

async function everything(on: RedisNodes): Promise<unknown> {
  const { accountId, stage, key, grant, reverse } = await givenAccount();
  const seen: unknown[] = [];
  const take = async (of: string, reference: string, amount?: number) => {
    seen.push(await problemOf(reverse(of, reference, amount, on)));
  };
  await grant(40, "p-1", "purchase", on);
  await grant(20, "t-1", "trial", on);
  await grant(10, "g-1", "goodwill", on);
  seen.push(
    await problemOf(grant(20, "t-1", "goodwill", on)),
    await problemOf(grant(40, "p-1", "trial", on)),
  );
  await stage.admit(stage.request(key, { price: 30 }));
  await take("p-1", "r-1", 15);
  await take("p-1", "r-1", 15);
  await take("p-1", "r-1", 16);
  await take("p-1", "r-2", 15);
  await take("t-1", "r-3");
  await take("g-1", "r-4");
  await take("r-1", "r-5");
  await grantCredits(on, accountId, 5, "m-1", ANN, undefined, {
    kind: "purchase",
    details: { package: "five" },
  });
  await adjustCredits(on, accountId, { amount: 60, reason: "why", reference: "a-1" }, ANN);
  await take("a-1", "r-6");
  await take("p-1", "r-7", 100);
  await take("p-1", "r-8");
  await take("g-1", "r-9");
  await take("t-1", "r-9");
  await patchAccount(on, accountId, { status: "closed" }, ANN);
  seen.push(await problemOf(grant(1, "p-2", "purchase", on)));
  seen.push(await problemOf(issueKey(on, { accountId, credits: 3 }, ANN)));
  const issued = await issueKey(on, { credits: 3 }, ANN);
  const { entries } = await readAccount(on, accountId);
  const ofKey = (await readAccount(on, issued.accountId)).entries;
  const nobody = reverseGrant(on, randomId("acc"), { of: "o", reference: "r", reason: "r" }, ANN);
  seen.push(await problemOf(nobody));
  const { reversed, checkpoint, references } = accountNames(stage.partition, accountId);
  const sums = await redis.client.hgetall(reversed);
  const stored = await redis.client.hgetall(references);
  const { ok } = await verifyLedger(nodes, { accountIds: [accountId] });
  // An account of which references were forgotten: the caller knows a grant, or must look a reference up.
  await redis.client.set(checkpoint, "entry 1-0 balance 0 entries 1 forgotten 1");
  const archived = {
    kind: "trial",
    details: "",
    reference: "old",
    amount: 7,
    requestId: "",
    taskId: "",
    endpoint: "",
  };
  const read: ReadArchived = async (_nodes, _id, reference) =>
    reference === "old" ? (archived as LedgerEntry) : undefined;
  await changeMoney(redis.client, accountNames(stage.partition, accountId).account, { balance: 50, held: 0 });
  seen.push(await problemOf(reverse("old", "r-10", undefined, on, read)));
  seen.push(await problemOf(reverse("p-1", "r-11", 1, on)));
  const { balance, totalUsed } = await readAccount(on, accountId);
  return {
    ...{ seen, sums, stored, ok, balance, totalUsed },
    entries: [...entries, ...ofKey].map((one) => [kindOf(one), one.amount, one.reason, one.by, one.details]),
  };
}

test("grants of each kind are taken back as far as they are left", async () => {
  expect(await played()).toMatchObject({
    seen: [
      ...["reference_mismatch", "reference_mismatch", "done", "done", "reference_mismatch", "done"],
      ...["done", "nothing_left", "grant_not_found", "grant_not_found"],
      ...["done", "nothing_left", "done", "reference_mismatch"],
      ...["account_closed", "account_closed", "not_found", "done", "unavailable"],
    ],
    sums: { "": "60", "p-1": "40", "t-1": "10", "g-1": "10" },
    ok: true,
  });
});

// Guarantee: a mistake in what grants and takes back credits shows.
test.each(inShare(REVERSAL_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const found = await played(mutant).catch((error: Error) => error.message);
  const good = (await played()) as object;
  expect(sameEverywhere(found)).not.toEqual(sameEverywhere(good));
  expect(String(found)).not.toContain("compiling script");
});

/** Without what differs between two runs. */
const sameEverywhere = (found: unknown): string =>
  JSON.stringify(found)
    .replaceAll(/key:key_\w+/g, "key")
    .replaceAll(/(acc|key)_[\w-]+/g, "id");

test("a grant under the reference of an earlier account's does not count there", async () => {
  const [one, other] = [await givenAccount(), await givenAccount()];
  await one.grant(5, "order 1");
  expect(await problemOf(other.reverse("order 1", "r-1"))).toBe("grant_not_found");
  const { run } = scriptsOf(nodes.of(one.stage.partition));
  const call = { partition: one.stage.partition, accountId: one.accountId, amount: 5, actor: ANN };
  expect(await run(recharge, { ...call, reference: "order 1", kind: "trial" })).toMatchObject({
    outcome: "mismatch",
  });
});
