import { afterAll, beforeAll, expect, test } from "vitest";
import { keyNames, partitionNames } from "../../src/records/names.ts";
import { createScriptRunner } from "../../src/redis/script-runner.ts";
import { holding } from "../../src/scripts/surveys.ts";
import { createStage, openConnection, type TestConnection } from "../support/store.ts";
import { plantForTest } from "./mutant-client.ts";
import { HOLDING_MUTANTS } from "./mutants.ts";

// Sums of HOLDING for an account that the ledger check reads in slices, and how many holds it reads at most.

let connection: TestConnection;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());

/** Two holds of 30 and 15 credits that count, three that do not. @returns what HOLDING says with room for each of these numbers of holds */
async function held(folder?: string): Promise<unknown[]> {
  const stage = createStage(connection);
  const { partition } = stage;
  const [key, other] = [await stage.givenKey(), await stage.givenKey()];
  const [, , unslotted, bound] = await Promise.all(
    [30, 15, 7, 5].map(async (price) => {
      const request = stage.request(key, { price });
      await stage.admit(request);
      return request;
    }),
  );
  await stage.admit(stage.request(other, { price: 11 }));
  await stage.redis.srem(keyNames(partition, key.keyId).slots, unslotted!.requestId);
  await stage.bind(bound!);
  await stage.redis.zadd(partitionNames(partition).due, 1, bound!.requestId);
  const { run } = createScriptRunner(connection.redis, folder === undefined ? {} : { folder });
  const replies = [4, 5].map((most) => {
    const args: typeof holding.args = (call) => holding.args(call).with(1, most);
    return run({ ...holding, args }, { partition, accountId: key.accountId });
  });
  return Promise.all(replies);
}

// 52 are held, of which 7 have no slot.
const HELD = [{ outcome: "too_many" }, { outcome: "read", held: 52, holds: 45 }];

test("holds of an account that have a slot are added up, if the partition has no more than may be read", async () => {
  expect(await held()).toEqual(HELD);
});

test.each(HOLDING_MUTANTS)("a mistake in adding up shows: $what", async (mutant) => {
  const folder = await plantForTest(mutant);
  expect(await held(folder)).not.toEqual(HELD);
});
