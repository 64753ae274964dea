import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { sumOfMoney } from "../../src/domain/money.ts";
import { rollUp } from "../../src/jobs/rollup-work.ts";
import { amountsPaid, salesOf } from "../../src/ledger/sales.ts";
import { META, partitionNames, soldName } from "../../src/records/names.ts";
import { createScriptRunner } from "../../src/redis/script-runner.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { type GivenEntry, writeEntries } from "../support/ledger-entries.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { plantForTest } from "./mutant-client.ts";
import { inShare, type Mutant, SALES_MUTANTS } from "./mutants.ts";

// Sales of a month, in a store that no other test writes to.

const DAY_MS = 86_400_000;
const MONTH = new Date().toISOString().slice(0, 7);
const BEGIN_MS = Date.parse(`${MONTH}-01`);

let server: TestRedis;
beforeAll(async () => {
  server = await givenRedis();
});
afterAll(() => server.stop());

interface Grant {
  kind: "purchase" | "trial" | "goodwill" | "adjustment";
  credits: number;
  package?: string | undefined;
  paid?: { amount: string; currency: string } | undefined;
}

function entryOf({ kind, credits, package: name, paid }: Grant, at: number): GivenEntry {
  const details = { package: name, amount_paid: paid?.amount, currency: paid?.currency };
  const text = JSON.stringify(details);
  const kindFields = kind === "adjustment" ? { reason: "mistake" } : kind === "purchase" ? {} : { kind };
  return {
    ...{ accountId: `a${at % 3}`, amount: credits, atMs: BEGIN_MS + at, reference: `r${at}` },
    ...{ ...kindFields, ...(text !== "{}" && { details: text }) },
  };
}

/** Sales read of these entries once they are rolled up, in small steps. */
async function soldOf(entries: readonly GivenEntry[], mutant?: Mutant) {
  await server.client.flushall();
  await server.client.hset(META, { partitions: 1, id: "store", layout: "1" });
  await writeEntries(server.client, 0, entries);
  const folder = mutant && (await plantForTest(mutant));
  const form = { checksFrozen: false, crossesSlots: false };
  const { run } = createScriptRunner(server.client, { ...(folder === undefined ? {} : { folder }), form });
  await rollUp(run, { partition: 0 });
  const { sales, sinceMs } = await salesOf(oneNode(server.client), MONTH);
  return { sales, sinceMs, keptMs: await server.client.pexpiretime(soldName(0, MONTH)) };
}

/** As above, counted here. */
function countedOf(grants: readonly Grant[]) {
  const sold = grants.filter(({ kind }) => kind !== "adjustment");
  const groups = Map.groupBy(sold, ({ kind, package: name, paid }) =>
    JSON.stringify([kind, paid?.currency ?? "", name ?? ""]),
  );
  return [...groups].map(([group, of]) => {
    const [kind, currency, name] = JSON.parse(group);
    const paid = sumOfMoney(of.flatMap((one) => one.paid ?? []));
    return {
      ...{ kind, package: name, currency, grants: of.length, amountPaid: paid[currency] },
      credits: of.reduce((sum, { credits }) => sum + credits, 0),
    };
  });
}

const money = fc.oneof(
  fc.record({
    amount: fc.constantFrom("0.05", "9.90", "100.00", "0.00"),
    currency: fc.constantFrom("EUR", "USD"),
  }),
  fc.record({ amount: fc.constantFrom("0", "1200"), currency: fc.constant("JPY") }),
  fc.record({ amount: fc.constantFrom("0.0001", "12.3456"), currency: fc.constant("CLF") }),
);
const grant = fc.record({
  kind: fc.constantFrom<Grant["kind"][]>("purchase", "trial", "goodwill", "adjustment"),
  credits: fc.integer({ min: 1, max: 1e6 }),
  package: fc.option(fc.constantFrom("basic", "a b", "größer", '"'), { nil: undefined }),
  paid: fc.option(money, { nil: undefined }),
});

// Guarantee: finance reads what customers paid to the last digit, whatever was sold in which currency.
test("grants add up by kind, package and currency, and money is exact", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(grant, { minLength: 1, maxLength: 40 }), async (grants) => {
      const { sales, sinceMs } = await soldOf(grants.map(entryOf));
      expect(sinceMs).toBeUndefined();
      expect(new Set(sales)).toEqual(new Set(countedOf(grants)));
    }),
    { numRuns: 40 },
  );
});

// Guarantee: what was paid for credits is all there, whichever partitions have the accounts.
test("the sales of all partitions are one sum, and say from when on they count", async () => {
  await server.client.flushall();
  await server.client.hset(META, { partitions: 2, id: "store", layout: "1" });
  const nodes = oneNode(server.client);
  expect((await salesOf(nodes, MONTH)).sinceMs).toBeGreaterThan(BEGIN_MS);
  const bought = {
    kind: "purchase",
    credits: 100,
    package: "basic",
    paid: { amount: "9.90", currency: "USD" },
  };
  const { run } = createScriptRunner(server.client, { form: { checksFrozen: false, crossesSlots: false } });
  for (const partition of [0, 1]) {
    await writeEntries(server.client, partition, [
      entryOf(bought as Grant, 1),
      entryOf({ kind: "trial", credits: 5 }, 2),
    ]);
    await rollUp(run, { partition });
  }
  const { sales } = await salesOf(nodes, MONTH);
  expect(sales).toEqual([
    { kind: "purchase", package: "basic", currency: "USD", grants: 2, credits: 200, amountPaid: "19.80" },
    { kind: "trial", package: "", currency: "", grants: 2, credits: 10, amountPaid: undefined },
  ]);
  expect(amountsPaid(sales)).toEqual({ USD: "19.80" });
  for (const [since, shown] of [
    [BEGIN_MS, undefined],
    [BEGIN_MS + 1, BEGIN_MS + 1],
  ] as const) {
    await server.client.hset(partitionNames(1).rolled, "since", since);
    expect((await salesOf(nodes, MONTH)).sinceMs).toBe(shown);
  }
});

const nested = `${"[".repeat(1500)}${"]".repeat(1500)}`;
/** Each bound, and what stands beside it. */
const BOUNDS: readonly GivenEntry[] = [
  { kind: "purchase", credits: 5, package: "first", paid: { amount: "0.05", currency: "USD" } },
  ...Array.from(
    { length: 210 },
    (_, at) =>
      ({
        kind: "purchase",
        credits: 1,
        package: `p${at}`,
        paid: { amount: "1.00", currency: "USD" },
      }) as const,
  ),
  { kind: "purchase", credits: 7, package: "first", paid: { amount: "0.05", currency: "USD" } },
  { kind: "adjustment", credits: 4 },
  { kind: "trial", credits: 3 },
]
  .map((one, at) => entryOf(one as Grant, at))
  .concat(
    ["deep"].map(() => ({
      accountId: "a",
      amount: 2,
      atMs: BEGIN_MS + 1000,
      reference: "deep",
      kind: "goodwill",
      details: `{"x":${nested}}`,
    })),
  );

test("packages beyond the room count together, and what cannot be read of a grant stops nothing", async () => {
  const { sales, keptMs } = await soldOf(BOUNDS);
  expect(sales.find((one) => one.package === "first")).toEqual({
    ...{ kind: "purchase", package: "first", currency: "USD", grants: 2, credits: 12, amountPaid: "0.10" },
  });
  const further = sales.filter((one) => one.package === "*");
  expect(further).toContainEqual({
    ...{ kind: "purchase", package: "*", currency: "USD", grants: 11, credits: 11, amountPaid: "11.00" },
  });
  expect(further.map(({ kind, grants }) => [kind, grants])).toEqual([
    ["goodwill", 1],
    ["purchase", 11],
    ["trial", 1],
  ]);
  expect(keptMs).toBe(BEGIN_MS + 431 * DAY_MS);
});

// Guarantee: what was paid is the same here and on the customers' statements, whatever an operator notes beside it.
test("a sale counts with its package and its money, however deep its metadata is", async () => {
  const paid = { package: "basic", amount_paid: "9.90", currency: "USD" };
  const details = `${JSON.stringify(paid).slice(0, -1)},"metadata":{"x":${nested}}}`;
  const sold = { accountId: "a", amount: 100, atMs: BEGIN_MS, reference: "deep", details };
  expect((await soldOf([sold])).sales).toEqual([
    { kind: "purchase", package: "basic", currency: "USD", grants: 1, credits: 100, amountPaid: "9.90" },
  ]);
});

// Guarantee: a sum that Redis cannot hold does not stop the roll-up of usage.
test("a sum beyond 10^13 of a currency stays as it is", async () => {
  const { sales } = await soldOf(HUGE);
  expect(sales).toMatchObject([{ grants: 2000, amountPaid: "10999999999999.89" }]);
});
const HUGE = Array.from({ length: 2000 }, (_, at) =>
  entryOf({ kind: "purchase", credits: 1, paid: { amount: "999999999999.99", currency: "USD" } }, at),
);

test.each(inShare(SALES_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const seen = (of?: Mutant) =>
    Promise.all([BOUNDS, HUGE]).then(async ([bounds, huge]) => [
      await soldOf(bounds, of).catch(String),
      await soldOf(huge, of).catch(String),
    ]);
  expect(await seen(mutant)).not.toEqual(await seen());
});
