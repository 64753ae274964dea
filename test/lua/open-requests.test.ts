import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { countOpen, oldOpenRequests } from "../../src/operations/store/operator-views.ts";
import { dueFrom, partitionNames, requestName } from "../../src/records/names.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { type OwnStore, openOwnStore } from "../support/own-store.ts";
import { createStage, type Stage, taskOf, times } from "../support/store.ts";
import { changeRequest } from "../support/stored-requests.ts";

// Open requests as operators see them. They are counted over a whole store, so it is a test's own.

const PARTITIONS = 3;
const MINUTE_MS = 60_000;
/** As many as one read of a list. */
const PAGE = 500;
const LOOKED_AT_MAX = 20_000;

let store: OwnStore;
let nodes: RedisNodes;
let stages: Stage[];
beforeAll(async () => {
  store = await openOwnStore(PARTITIONS);
  nodes = oneNode(store.client);
});
afterAll(() => store.stop());
beforeEach(async () => {
  await store.empty();
  stages = times(PARTITIONS, (partition) => createStage(store.connection, { clock: "redis", partition }));
});

/** A request that was admitted so long ago. */
async function given(stage: Stage, state: "held" | "bound", ageMs: number): Promise<Generation> {
  const key = await stage.givenKey({ credits: 100 });
  const generation = stage.request(key, { price: 10 });
  if (state === "held") await stage.admit(generation);
  else await stage.givenTask(generation);
  await changeRequest(store.client, requestName(stage.partition, generation.requestId), {
    admitted_at: Date.now() - ageMs,
  });
  return generation;
}

/** Lists this many requests as due, without their records. */
async function listDue(partition: number, count: number, name = "none"): Promise<void> {
  for (let from = 0; from < count; from += 5000) {
    const some = times(Math.min(5000, count - from), (at) => [dueFrom("holds") + 1, `${name}_${from + at}`]);
    await store.client.zadd(partitionNames(partition).due, ...some.flat());
  }
}

test("open requests of all partitions are counted, whatever their age, and the old ones shown, oldest first", async () => {
  const [first, , last] = stages as [Stage, Stage, Stage];
  const young = await given(last, "held", 0);
  const older = await given(first, "bound", 30 * MINUTE_MS);
  const oldest = await given(last, "held", 50 * MINUTE_MS);
  const old = await given(last, "bound", 11 * MINUTE_MS);
  await last.observe(old, "processing");
  const ended = await given(first, "bound", 40 * MINUTE_MS);
  await first.observe(ended, "completed");

  expect(await countOpen(nodes, PARTITIONS)).toBe(4);
  const seen = await oldOpenRequests(nodes, 10 * MINUTE_MS, 2);
  expect(seen).toMatchObject({ old: 3, open: 4, complete: true, unread: undefined });
  const dueOf = async (stage: Stage, { requestId }: Generation, list: "holds" | "polls") =>
    Number(await store.client.zscore(partitionNames(stage.partition).due, requestId)) - dueFrom(list);
  expect(seen.requests).toMatchObject([
    {
      ...{ requestId: oldest.requestId, state: "held", taskId: "", status: "" },
      ...{ accountId: oldest.key.accountId, keyId: oldest.key.keyId, endpoint: oldest.endpoint, price: 10 },
      dueAtMs: await dueOf(last, oldest, "holds"),
    },
    {
      ...{ requestId: older.requestId, state: "bound", taskId: taskOf(older), status: "" },
      dueAtMs: await dueOf(first, older, "polls"),
    },
  ]);
  for (const { seenAtMs } of seen.requests) expect(Math.abs(seenAtMs - Date.now())).toBeLessThan(MINUTE_MS);

  const all = await oldOpenRequests(nodes, 0, 10);
  const ids = [oldest, older, old, young].map(({ requestId }) => requestId);
  expect(all.requests.map(({ requestId }) => requestId)).toEqual(ids);
  expect(all.requests[2]).toMatchObject({ status: "processing" });
});

test("a request that BIND has made without an admission is as old as its charge", async () => {
  const [stage] = stages as [Stage];
  const generation = stage.request(await stage.givenKey({ credits: 100 }));
  await stage.bind(generation);
  const name = requestName(stage.partition, generation.requestId);
  const boundAtMs = Date.now() - 20 * MINUTE_MS;
  await changeRequest(store.client, name, { bound_at: boundAtMs });
  const { requests } = await oldOpenRequests(nodes, 15 * MINUTE_MS, 10);
  expect(requests).toMatchObject([{ requestId: generation.requestId, admittedAtMs: boundAtMs }]);
});

test("an old request is found behind a page of others, in each partition", async () => {
  const behind = await Promise.all(stages.map((stage) => given(stage, "bound", 30 * MINUTE_MS)));
  for (const partition of times(PARTITIONS, (at) => at)) await listDue(partition, PAGE);
  const seen = await oldOpenRequests(nodes, 20 * MINUTE_MS, 10);
  expect(seen).toMatchObject({ old: 3, open: PARTITIONS * (PAGE + 1), complete: true });
  const ids = seen.requests.map(({ requestId }) => requestId);
  expect(ids.sort()).toEqual(behind.map(({ requestId }) => requestId).sort());
});

test("what is not looked at is counted, and the list is not complete then", async () => {
  await listDue(0, LOOKED_AT_MAX - PAGE);
  await listDue(1, PAGE);
  expect(await oldOpenRequests(nodes, 0, 10)).toMatchObject({ open: LOOKED_AT_MAX, complete: true });
  const [, , last] = stages as [Stage, Stage, Stage];
  await given(last, "held", 30 * MINUTE_MS);
  expect(await countOpen(nodes, PARTITIONS)).toBe(LOOKED_AT_MAX + 1);
  const seen = await oldOpenRequests(nodes, 0, 10);
  expect(seen).toMatchObject({ requests: [], old: 0, open: LOOKED_AT_MAX + 1, complete: false });
});
