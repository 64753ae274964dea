import type { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { accountNames, partitionOf } from "../../src/records/names.ts";
import { itemOf, scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, partitionsOf } from "../../src/redis/store-facts.ts";
import { recharge } from "../../src/scripts/credit-changes.ts";
import type { Reply } from "../../src/scripts/script-definition.ts";
import { accountIn } from "../support/account-money.ts";
import { createClient } from "../support/client.ts";
import { COMMAND_TIMEOUT_MS, givenRedis, type TestRedis } from "../support/store-stage.ts";

let redis: TestRedis;
let client: Redis;
beforeAll(async () => {
  redis = await givenRedis();
  client = createClient(redis.url, COMMAND_TIMEOUT_MS);
  await client.connect();
});
afterAll(async () => {
  client?.disconnect();
  await redis?.stop();
});

/** How many script calls the server has had: it counts them itself. */
async function callsSoFar(): Promise<number> {
  const stats = await redis.client.info("commandstats");
  const lines = [...stats.matchAll(/^cmdstat_eval(?:sha)?:calls=(\d+)/gm)];
  return lines.reduce((sum, [, calls]) => sum + Number(calls), 0);
}

/** An account with 15 credits, and what grants it 5 more by one script call. */
async function givenAccount() {
  const { accountId } = await issueKey(oneNode(client), { credits: 10 }, cliActor());
  const partition = partitionOf(accountId, await partitionsOf(oneNode(client)));
  const { account, references } = accountNames(partition, accountId);
  const grant = async (reference: string): Promise<Reply | Error | undefined> => {
    const item = itemOf(recharge, { actor: cliActor(), partition, accountId, amount: 5, reference });
    return (await scriptsOf(client).send(recharge, [item]))[0];
  };
  await grant("so that the script is known");
  return { account, references, grant };
}

// Guarantee: only a script that did not run is sent again; anything else may have moved credits.
test("a script whose call failed is not sent again, be it an error or no answer in time", async () => {
  const { account, references, grant } = await givenAccount();
  const calls = await callsSoFar();
  await client.rename(references, `${references}:away`);
  await client.set(references, "of another type");
  await expect(grant("an error within")).rejects.toThrow(/WRONGTYPE/);
  expect(await callsSoFar()).toBe(calls + 1);

  await client.rename(`${references}:away`, references);
  redis.pause();
  await expect(grant("no answer in time"))
    .rejects.toThrow(/timed out/)
    .finally(() => redis.resume());
  // A command that the client might have sent a second time stands in front of this on its connection.
  await client.ping();
  expect(await callsSoFar()).toBe(calls + 2);
  expect((await accountIn(client, account)).balance).toBe("20");
});

test("a script that the store does not know is sent again once, and runs once", async () => {
  const { account, grant } = await givenAccount();
  await redis.client.script("FLUSH");
  const calls = await callsSoFar();
  expect(await grant("order 1")).toEqual(["recharged", "20"]);
  expect(await callsSoFar()).toBe(calls + 2);
  expect((await accountIn(client, account)).balance).toBe("20");
});
