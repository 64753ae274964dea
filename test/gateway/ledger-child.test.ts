import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { verifyInChild, watchProgress } from "../../src/ledger/verify-process.ts";
import { accountNames } from "../../src/store/names.ts";
import { partitionFor } from "../support/audit.ts";
import { givenKey, givenRedis } from "../support/store-stage.ts";

// Guarantee: the regular check finds what `ledger verify` finds, and a store that is away is an error, not a sound ledger.
test("the check of the ledger in a process of its own names a broken account", async () => {
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

// Guarantee: the check may take as long as it needs while it goes on, and one that stands still is ended and named.
test("a check that makes progress has no time limit", () => {
  vi.useFakeTimers();
  try {
    const end = vi.fn();
    const watch = watchProgress(300_000, end);
    for (let minute = 0; minute < 24 * 60; minute++) {
      vi.advanceTimersByTime(60_000);
      watch.progress(`minute ${minute}`);
    }
    expect([end.mock.calls.length, watch.complaint()]).toEqual([0, undefined]);
    vi.advanceTimersByTime(300_000);
    expect(end).toHaveBeenCalledTimes(1);
    expect(watch.complaint()).toBe("it made no progress for 300 s at minute 1439, and was ended");
  } finally {
    vi.useRealTimers();
  }
});

test("a check that stands still is ended, and says where", async () => {
  const dir = await mkdtemp(join(tmpdir(), "tollgate-check-"));
  try {
    const program = join(dir, "still.mjs");
    await writeFile(program, 'process.send("partition 3 of 64"); setInterval(() => undefined, 1000);');
    const { signal } = new AbortController();
    const check = verifyInChild("redis://127.0.0.1:1", signal, { program, stalledAfterMs: 2000 });
    await expect(check).rejects.toThrow(/made no progress for 2 s .*, and was ended/);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

test("the command line tells the gateway that it goes on", async () => {
  const redis = await givenRedis();
  try {
    await givenKey(redis.client, { credits: 70 });
    const progressed: string[] = [];
    const { signal } = new AbortController();
    await verifyInChild(redis.url, signal, { onProgress: (where) => progressed.push(where) });
    expect(progressed[0]).toMatch(/^partition \d+ of \d+: \d+ accounts, \d+ entries$/);
  } finally {
    await redis.stop();
  }
});
