import { afterAll, beforeAll, beforeEach, expect, inject, test } from "vitest";
import type { KeyRef } from "../../src/records/names.ts";
import { createScriptRunner } from "../../src/redis/script-runner.ts";
import { inspect as inspectScript } from "../../src/scripts/tasks.ts";
import { changeAccount } from "../support/account-money.ts";
import { createClient } from "../support/client.ts";
import { createStage, openConnection, type Stage, type TestConnection } from "../support/store.ts";
import { setKeyFields } from "../support/stored-records.ts";
import { plantForTest } from "./mutant-client.ts";
import { inShare, type Mutant, RESTRICTION_MUTANTS } from "./mutants.ts";

const TEXT = "endpoints=gen2/text-to-video;addresses=10.0.0.0/8";

const TIER = { rate_limit: 20, max_concurrent: 3, daily_limit: 500 };

let connection: TestConnection;
let stage: Stage;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());
beforeEach(() => {
  stage = createStage(connection);
});

const restrict = (on: Stage, key: KeyRef, text: string) =>
  setKeyFields(on.redis, key.names.key, { restrictions: text === "" ? null : text });

const admit = async (on: Stage, key: KeyRef, restrictions?: string) => {
  const { outcome, restrictions: stored } = await on.admit({ ...on.request(key), restrictions });
  return [outcome, stored];
};

// Guarantee: nothing is admitted by other restrictions than those that the key has at that moment.
test("ADMIT runs only with the restrictions that the key has, writes nothing otherwise, and says which they are", async () => {
  const key = await stage.givenKey({ credits: 100 });
  await restrict(stage, key, TEXT);
  const before = await stage.everything();
  for (const judgedBy of [undefined, "endpoints=gen2/text-to-video"])
    expect(await admit(stage, key, judgedBy)).toEqual(["restricted", TEXT]);
  expect(await stage.everything()).toEqual(before);
  expect(await admit(stage, key, TEXT)).toEqual(["admitted", TEXT]);
  await restrict(stage, key, "");
  expect(await admit(stage, key, TEXT)).toEqual(["restricted", undefined]);
  expect(await admit(stage, key)).toEqual(["admitted", undefined]);
});

test("a key's end comes before its restrictions, and they come before its account, its repeats and its limits", async () => {
  const key = await stage.givenKey({ credits: 0, rate_limit: 0 });
  await restrict(stage, key, TEXT);
  await changeAccount(stage.redis, key.names.account, { status: "suspended" });
  expect(await admit(stage, key)).toEqual(["restricted", TEXT]);
  await setKeyFields(stage.redis, key.names.key, { revoked_at: 1 });
  expect((await admit(stage, key))[0]).toBe("unknown_key");
});

const inspect = (key: KeyRef) =>
  createScriptRunner(stage.redis).run(inspectScript, { key, tiers: { standard: TIER } });

test("replies of INSPECT and CREDITS say the restrictions, beside expiry and cap", async () => {
  const key = await stage.givenKey({ credits: 100 });
  await restrict(stage, key, TEXT);
  await setKeyFields(stage.redis, key.names.key, { monthly_credits: 40 });
  for (const reply of [await inspect(key), await stage.credits(key)]) {
    expect(reply).toMatchObject({
      outcome: "known",
      tier: "standard",
      restrictions: TEXT,
      terms: { cap: 40 },
    });
  }
});

test.each(inShare(RESTRICTION_MUTANTS))("the mistake is found: $what", async (mutant) => {
  expect(await lived(mutant)).not.toEqual(await lived());
});

async function lived(mutant?: Mutant): Promise<unknown[]> {
  const folder = mutant && (await plantForTest(mutant));
  const client = createClient(inject("redisUrl"), 10_000);
  try {
    await client.connect();
    const scripts = createScriptRunner(client, folder === undefined ? {} : { folder });
    const own = createStage(connection, { scripts });
    const key = await own.givenKey({ credits: 100 });
    const outcomes: unknown[] = [await admit(own, key), await admit(own, key, TEXT)];
    await restrict(own, key, TEXT);
    outcomes.push(await admit(own, key), await admit(own, key, TEXT));
    await setKeyFields(own.redis, key.names.key, { revoked_at: 1 });
    return [...outcomes, await admit(own, key)];
  } finally {
    client.disconnect();
  }
}
