import { expect, test } from "vitest";
import { accountNames } from "../../src/store/names.ts";
import { verifyInChild } from "../../src/workers/ledger-child.ts";
import { partitionFor } from "../support/audit.ts";
import { givenKey, givenRedis } from "../support/store-stage.ts";

// Guarantee: the regular check finds what `ledger verify` finds, and a store that is away is an error, not sound books.
test("the check of the books in a process of its own names a broken account", async () => {
  const redis = await givenRedis();
  const { signal } = new AbortController();
  try {
    const { accountId } = await givenKey(redis.client, { credits: 70 });
    expect(await verifyInChild(redis.url, signal)).toMatchObject({ ok: true, accounts: 1, entries: 1 });
    const { account } = accountNames(await partitionFor(redis.client, accountId), accountId);
    await redis.client.hincrby(account, "balance", 1);
    const { ok, violations } = await verifyInChild(redis.url, signal);
    expect(ok).toBe(false);
    expect(violations).toContainEqual(expect.objectContaining({ account_id: accountId }));
  } finally {
    await redis.stop();
  }
  await expect(verifyInChild(redis.url, signal)).rejects.toThrow("ECONNREFUSED");
});

test("a gateway that stops ends the check with it", async () => {
  const redis = await givenRedis();
  const ending = new AbortController();
  const check = verifyInChild(redis.url, ending.signal);
  ending.abort();
  await expect(check).rejects.toThrow(/abort/);
  await redis.stop();
});
