import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { requestName } from "../../src/records/names.ts";
import { partitionFor, readLedger } from "../support/audit.ts";
import type { MadeTask } from "../support/callback-upstream.ts";
import { runHere } from "../support/cli.ts";
import { expectStatus, until } from "../support/gateway.ts";
import {
  callBack,
  callbackCounts,
  givenRelayStage,
  type RelayStage,
  storyboard,
} from "../support/relay-stage.ts";
import { readRequest } from "../support/stored-requests.ts";

// Guarantee: a task that ended as too old and was refunded is charged again if it completes after all.

const PRICE = 150;

let stage: RelayStage;
beforeAll(async () => {
  stage = await givenRelayStage({
    config: { tasks: { maxAgeMs: 200, sweepIntervalMs: 20, pollIntervalMs: 100 } },
  });
});
afterEach(() => stage.upstream.behave({}));
afterAll(() => stage.stop());

const ledgerOf = (key: IssuedKey) => readLedger(stage.gateway.redis, key);
const amountsOf = async (key: IssuedKey) =>
  (await ledgerOf(key)).entries.map(({ type, amount }) => [type, amount]);

/** A task that the gateway has ended as too old. */
async function givenExpired(credits = 1000): Promise<{ key: IssuedKey; task: MadeTask }> {
  const key = await stage.gateway.givenKey({ credits });
  expectStatus(await storyboard(stage.gateway, key), 200);
  const task = stage.latest();
  await until(async () => (await ledgerOf(key)).slots.length === 0, "the task to be too old");
  expect(await ledgerOf(key)).toMatchObject({ balance: credits, totalUsed: 0 });
  return { key, task };
}

const shownOf = async (key: IssuedKey, task: MadeTask) =>
  (await stage.gateway.request("GET", `/api/v1/tasks/${task.taskId}`, { key: key.key })).body.data;

test("its callback charges it again, once, and it is completed from then on", async () => {
  const { key, task } = await givenExpired();
  expect(await shownOf(key, task)).toMatchObject({ status: "failed" });
  task.status = "completed";
  const consumed = async () => stage.gateway.metric("tollgate_credits_consumed_total");
  const before = await consumed();
  for (const reply of await Promise.all([1, 2, 3].map(() => callBack(stage.gateway, task))))
    expectStatus(reply, 200);
  expect(await consumed()).not.toEqual(before);
  expect(await amountsOf(key)).toEqual([
    ["recharge", 1000],
    ["consume", -PRICE],
    ["recharge", PRICE],
    ["reclaim", -PRICE],
  ]);
  expect(await ledgerOf(key)).toMatchObject({ balance: 1000 - PRICE, totalUsed: PRICE, slots: [] });
  expect(await shownOf(key, task)).toMatchObject({ status: "completed", video_url: expect.any(String) });
  const { body } = await stage.gateway.request("GET", "/api/v1/credits", { key: key.key });
  expect(body.data.recent_transactions[0]).toMatchObject({
    type: "consume",
    amount: -PRICE,
    endpoint: "/api/v1/gen2-pro/storyboard",
    reason: "completed_late",
    task_id: task.taskId,
  });
  const verified = await runHere(["ledger", "verify", "--account", key.accountId, "--json"]);
  const { violations } = JSON.parse(verified.stdout);
  expect(violations.filter((found: { account_id: string }) => found.account_id === key.accountId)).toEqual(
    [],
  );
});

test("it stays failed if the upstream says so, whatever the callback says", async () => {
  const { key, task } = await givenExpired();
  const says = { code: 200, msg: "success", data: { task_id: task.taskId, status: "completed" } };
  for (const status of ["processing", "failed"] as const) {
    task.status = status;
    expectStatus(await callBack(stage.gateway, task, says), 200);
  }
  expect(await ledgerOf(key)).toMatchObject({ balance: 1000, totalUsed: 0 });
  expect(await shownOf(key, task)).toMatchObject({ status: "failed" });
});

// Without the credits there is no video.
test("it stays failed while the balance does not allow the price", async () => {
  const { key, task } = await givenExpired(PRICE);
  stage.upstream.behave({ create: "hang" });
  const before = stage.upstream.tasks.length;
  const other = storyboard(stage.gateway, key, {});
  await until(() => stage.upstream.tasks.length > before, "the credits to be held");
  task.status = "completed";
  expectStatus(await callBack(stage.gateway, task), 200);
  expect(await callbackCounts(stage.gateway)).toMatchObject({ uncovered: 1 });
  expect(await shownOf(key, task)).toMatchObject({ status: "failed" });
  stage.latest().answer();
  await other;
  const grown = stage.latest();
  await until(async () => (await ledgerOf(key)).slots.length === 0, "the other task to be too old");
  expect(grown.taskId).not.toBe(task.taskId);
  expectStatus(await callBack(stage.gateway, task), 200);
  expect(await ledgerOf(key)).toMatchObject({ balance: 0, totalUsed: PRICE });
});

test("its record is kept for twice the retention, and of other tasks for once", async () => {
  const { key, task } = await givenExpired();
  const { redis, config } = stage.gateway;
  const partition = await partitionFor(redis, key.accountId);
  const requestId = /\.(req_\w+)\./.exec(task.callBackUrl ?? "")?.[1] ?? "";
  const kept = await readRequest(redis, requestName(partition, requestId));
  expect(Number(kept.retention_ms)).toBe(2 * config.tasks.retentionMs);
});
