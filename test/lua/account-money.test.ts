import { afterAll, beforeAll, expect, test } from "vitest";
import { accountOf, moneyText } from "../../src/records/packed-fields.ts";
import { createScriptRunner, type ScriptRunner, scriptsOf } from "../../src/redis/script-runner.ts";
import { account, suspend } from "../../src/scripts/accounts.ts";
import { createStage, openConnection, type TestConnection } from "../support/store.ts";
import { plantForTest } from "./mutant-client.ts";
import { EXTRA_MUTANTS, inShare } from "./mutants.ts";

// Most accounts have none of the fields that `+` in their money stands for, and ADMIT reads them only behind it.

let connection: TestConnection;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());

const ACTOR = { by: "ann", requestId: "" };

/** Answers of ADMIT after each change of an account, and the account's money as Lua and TypeScript write it. */
async function answersOf(scripts: ScriptRunner): Promise<unknown[]> {
  const stage = createStage(connection, { scripts });
  const key = await stage.givenKey({ credits: 1000 });
  const place = { partition: key.partition, accountId: key.accountId, actor: ACTOR };
  const answers: unknown[] = [];
  async function look(): Promise<void> {
    const answer = await stage.admit(stage.request(key));
    const record = await stage.redis.hgetall(key.names.account);
    const price = "price" in answer ? answer.price : undefined;
    answers.push([answer.outcome, price, record.money === moneyText(accountOf(record))]);
  }
  await look();
  for (const fields of [{ price_multiplier: "2" }, { daily_limit: 0 }, { status: "closed" }]) {
    const removed = Object.fromEntries(Object.keys(fields).map((name) => [name, null]));
    for (const change of [fields, removed]) {
      await scripts.run(account, { ...place, action: "account.patch", mayReinstate: true, fields: change });
      await look();
    }
  }
  await scripts.run(suspend, { ...place, status: "suspended" });
  await look();
  return answers;
}

test("what operators set of an account counts from the next admission on", async () => {
  expect(await answersOf(scriptsOf(connection.redis))).toEqual([
    ["admitted", undefined, true],
    ["admitted", 20, true],
    ["admitted", undefined, true],
    ["daily_limited", undefined, true],
    ["admitted", undefined, true],
    ["account_suspended", undefined, true],
    ["admitted", undefined, true],
    ["account_suspended", undefined, true],
  ]);
});

test.each(inShare(EXTRA_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const folder = await plantForTest(mutant);
  const answers = await answersOf(createScriptRunner(connection.redis, { folder }));
  expect(answers).not.toEqual(await answersOf(scriptsOf(connection.redis)));
});
