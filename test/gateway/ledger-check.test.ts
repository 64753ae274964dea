import { expect, test } from "vitest";
import { verifyBeside } from "../../src/jobs/background-work.ts";
import { accountNames } from "../../src/records/names.ts";
import { addMoney } from "../support/account-money.ts";
import { partitionFor } from "../support/audit.ts";
import { givenKey, givenRedis } from "../support/store-stage.ts";

const HERE = { folder: "", waiting: () => [] };

// Guarantee: the regular check finds what `ledger verify` finds, and a store that is away is an error, not a sound ledger.
test("the check of the ledger beside the traffic names a broken account", async () => {
  const redis = await givenRedis();
  const endpoint = { redisUrl: redis.url };
  const { signal } = new AbortController();
  try {
    const { accountId } = await givenKey(redis.client, { credits: 70 });
    expect(await verifyBeside(endpoint, signal, HERE)).toMatchObject({ ok: true, accounts: 1, entries: 1 });
    const { account } = accountNames(await partitionFor(redis.client, accountId), accountId);
    await addMoney(redis.client, account, "balance", 1);
    const { ok, violations } = await verifyBeside(endpoint, signal, HERE);
    expect(ok).toBe(false);
    expect(violations).toContainEqual(expect.objectContaining({ account_id: accountId }));
    // Its connections end with it.
    const clients = async () =>
      String(await redis.client.client("LIST"))
        .trim()
        .split("\n");
    await expect.poll(async () => (await clients()).length).toBe(1);
  } finally {
    await redis.stop();
  }
  await expect(verifyBeside(endpoint, signal, HERE)).rejects.toThrow("ECONNREFUSED");
});

test("a gateway that stops ends the check, also one that waits for Redis", async () => {
  const redis = await givenRedis();
  try {
    await givenKey(redis.client, { credits: 70 });
    const ending = new AbortController();
    const resting = verifyBeside({ redisUrl: redis.url }, ending.signal, HERE);
    ending.abort();
    await expect(resting).rejects.toThrow();
    const waiting = new AbortController();
    const check = verifyBeside({ redisUrl: redis.url }, waiting.signal, HERE);
    redis.pause();
    waiting.abort();
    await expect(check).rejects.toThrow();
    redis.resume();
  } finally {
    await redis.stop();
  }
});
