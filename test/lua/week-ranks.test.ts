import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { META, partitionNames } from "../../src/records/names.ts";
import { createScriptRunner, itemOf } from "../../src/redis/script-runner.ts";
import { rollup } from "../../src/scripts/ledger.ts";
import { createClient } from "../support/client.ts";
import { type GivenEntry, writeEntries } from "../support/ledger-entries.ts";
import { ENDPOINT } from "../support/store.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { plantForTest } from "./mutant-client.ts";
import { inShare, type Mutant, WEEK_MUTANTS } from "./mutants.ts";

// The lists by what was spent in seven days, and by the days that the balance lasts, over many days.

const DAY_MS = 86_400_000;
const FIRST_MS = Date.UTC(2031, 1, 20);

let server: TestRedis;
beforeAll(async () => {
  server = await givenRedis();
});
afterAll(() => server.stop());

interface Step {
  day: number;
  account: number;
  amount: number;
  /** True if the ledger is rolled up behind it, at the end of its day. */
  isRolled: boolean;
}

interface Scene {
  steps: readonly Step[];
  /** The day of the last ROLLUP. */
  today: number;
  /** True if the first ROLLUP finds a ledger that is there already. */
  isFound?: boolean;
}

interface Lists {
  week: Record<string, string>;
  daysLeft: Record<string, string>;
}

const entryOf = ({ day, account, amount }: Step, at: number): GivenEntry => ({
  ...{ accountId: `acc_${account}`, amount, atMs: FIRST_MS + day * DAY_MS + at },
  ...(amount < 0 ? { endpoint: ENDPOINT, keyId: "key", requestId: `req_${at}`, taskId: `task_${at}` } : {}),
  reference: amount < 0 ? "" : `order_${at}`,
});

/** The lists as the entries alone give them. */
function wanted({ steps, today }: Scene): Lists {
  const spent = new Map<string, number>();
  const balances = new Map<string, number>();
  for (const { day, account, amount } of steps) {
    const id = `acc_${account}`;
    balances.set(id, (balances.get(id) ?? 0) + amount);
    if (amount < 0 && day > today - 7) spent.set(id, (spent.get(id) ?? 0) - amount);
  }
  const texts = [...spent].map(([id, sum]): [string, string] => [id, String(sum)]);
  const days = [...spent].map(([id, sum]): [string, string] => [
    id,
    String(Math.floor((balances.get(id)! * 7000) / sum)),
  ]);
  return { week: Object.fromEntries(texts), daysLeft: Object.fromEntries(days) };
}

/** Plays the steps, and rolls up at some of them and in the end. @returns the lists, without accounts of which nothing counts */
async function play({ steps, today, isFound = false }: Scene, mutant?: Mutant): Promise<Lists> {
  const folder = mutant && (await plantForTest(mutant));
  const client = createClient(server.url, 10_000);
  try {
    await client.connect();
    await client.flushall();
    await client.hset(META, { partitions: 1, id: "store", layout: "1" });
    const { send } = createScriptRunner(client, folder === undefined ? {} : { folder });
    const rollAt = async (day: number): Promise<void> => {
      const now = String(FIRST_MS + day * DAY_MS + DAY_MS - 1);
      for (let [more, calls] = [true, 0]; more; calls++) {
        if (calls > 100) throw new Error("ROLLUP has no end");
        const [reply] = await send(rollup, [itemOf(rollup, { partition: 0 }, now)]);
        if (reply instanceof Error) throw reply;
        ({ more } = rollup.read(reply!, { partition: 0 }));
      }
    };
    if (!isFound) await rollAt(0);
    const balances = new Map<string, { balance: number; last: string }>();
    let waiting: GivenEntry[] = [];
    for (const [at, step] of steps.entries()) {
      waiting.push(entryOf(step, at));
      if (!step.isRolled) continue;
      await writeEntries(client, 0, waiting, balances);
      waiting = [];
      await rollAt(step.day);
    }
    await writeEntries(client, 0, waiting, balances);
    await rollAt(today);
    const { spentWeek, daysLeft } = partitionNames(0);
    const read = async (name: string): Promise<Record<string, string>> => {
      const found = await client.zrange(name, "0", "-1", "WITHSCORES");
      return Object.fromEntries(found.flatMap((id, at) => (at % 2 === 0 ? [[id, found[at + 1]!]] : [])));
    };
    const week = Object.entries(await read(spentWeek)).filter(([, sum]) => sum !== "0");
    return { week: Object.fromEntries(week), daysLeft: await read(daysLeft) };
  } finally {
    client.disconnect();
  }
}

const step = fc.record({
  day: fc.nat(20),
  account: fc.nat(3),
  amount: fc.oneof(fc.integer({ min: -9, max: -1 }), fc.integer({ min: 1, max: 50 })),
  isRolled: fc.boolean(),
});
const history = fc
  .array(step, { maxLength: 25 })
  .map((steps) => steps.toSorted((one, other) => one.day - other.day));

// Guarantee: the order by seven days has every account, and each day leaves it once, whenever the ledger was rolled up.
test("the lists of a week are what the ledger says, on any day", async () => {
  await fc.assert(
    fc.asyncProperty(history, fc.nat(9), async (steps, later) => {
      const scene = { steps, today: (steps.at(-1)?.day ?? 0) + later };
      expect(await play(scene)).toEqual(wanted(scene));
    }),
    { numRuns: 30 },
  );
});

/** More accounts than leave in one call; some spend again on the next days, and one gets credits last. */
const MANY: readonly Step[] = [
  ...Array.from({ length: 250 }, (_, account) => ({
    day: 1,
    account,
    amount: -5,
    isRolled: account === 249,
  })),
  { day: 2, account: 7, amount: -4, isRolled: true },
  { day: 3, account: 8, amount: -6, isRolled: false },
  { day: 3, account: 300, amount: 70, isRolled: true },
  { day: 3, account: 8, amount: 90, isRolled: true },
];
/** The second is rolled up when its day has left the week. */
const LATE: readonly Step[] = [
  { day: 1, account: 1, amount: -5, isRolled: true },
  { day: 2, account: 2, amount: -5, isRolled: false },
];
const SCENES: readonly Scene[] = [
  { steps: MANY, today: 7 },
  { steps: MANY, today: 8 },
  { steps: MANY, today: 9 },
  { steps: MANY, today: 30 },
  { steps: LATE, today: 12 },
  { steps: LATE.map((step) => ({ ...step, isRolled: false })), today: 11, isFound: true },
];

test.each(SCENES)("a day leaves the week for all its accounts, seen on day $today", async (scene) => {
  expect(await play(scene)).toEqual(wanted(scene));
});

test.each(inShare(WEEK_MUTANTS))("the mistake is found: $what", async (mutant) => {
  for (const scene of SCENES) {
    const found = await play(scene, mutant).catch(() => NO_END);
    if (JSON.stringify(sorted(found)) !== JSON.stringify(sorted(wanted(scene)))) return;
  }
  expect.fail("it is not found");
});

const NO_END: Lists = { week: { "no end": "" }, daysLeft: {} };
const sorted = ({ week, daysLeft }: Lists) =>
  [week, daysLeft].map((list) => Object.entries(list).sort(([one], [other]) => (one < other ? -1 : 1)));
