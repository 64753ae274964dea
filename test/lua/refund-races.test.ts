import { afterAll, beforeAll, expect, test } from "vitest";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { refundTask } from "../../src/operations/credits/refunds.ts";
import { releaseTask } from "../../src/operations/tasks/operator-tasks.ts";
import type { Actor } from "../../src/records/actor.ts";
import { kindOf, LEDGER_START, type LedgerEntry, readLedger } from "../../src/records/ledger-entries.ts";
import { META } from "../../src/records/names.ts";
import { createScriptRunner } from "../../src/redis/script-runner.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { createStage, openConnection, type TestConnection, taskOf, times } from "../support/store.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { plantForTest } from "./mutant-client.ts";
import { inShare, type Mutant, REFUND_RACE_MUTANTS } from "./mutants.ts";

/** `REFUND_ROUNDS=1000` is the whole length. */
const ROUNDS = Number(process.env.REFUND_ROUNDS ?? 100);
const ANN: Actor = { by: "tok_1 Ann", requestId: "req_ann" };

let server: TestRedis;
let connections: TestConnection[];
beforeAll(async () => {
  server = await givenRedis();
  // Before the connections, which leave a store alone that changes its id.
  await server.client.hset(META, { partitions: 1, id: "store", layout: "1" });
  connections = await Promise.all(times(3, () => openConnection(server.url)));
});
afterAll(async () => {
  for (const connection of connections) await connection.close();
  await server.stop();
});

// Guarantee: whoever is first, an operator's refund, a release or a failed task, its charge goes back once.
test("a refund, a release and a failed observation over three gateways give one credit each round", {
  timeout: 600_000,
}, async () => {
  const [one, two, three] = connections as [TestConnection, TestConnection, TestConnection];
  const options = { clock: "redis", partition: 0 } as const;
  const stage = createStage(one, options);
  const limits = { rate_limit: 1_000_000, max_concurrent: 1000, daily_limit: 1_000_000 };
  const key = await stage.givenKey({ accountId: "acc", credits: ROUNDS, ...limits });
  const observer = createStage(three, options);
  for (let round = 0; round < ROUNDS; round++) {
    const request = stage.request(key, { price: 1 });
    await stage.givenTask(request);
    // Half of the tasks are completed before, so that only the two refunds may give the charge back.
    if (round % 2 === 0) await stage.observe(request, "completed");
    const refundOnce = (by: string) => () =>
      refundTask(oneNode(two.redis), request.requestId, { reason: "r", reference: `${by}-${round}` }, ANN);
    const works: (() => Promise<unknown>)[] = [
      () => releaseTask(oneNode(one.redis), taskOf(request), ANN),
      () => observer.observe(request, "failed"),
      refundOnce("f"),
      refundOnce("f"),
      refundOnce("g"),
    ];
    await Promise.allSettled(works.map((_, at) => works[(at + round) % works.length]!()));
  }
  const all: LedgerEntry[] = [];
  for (let page = await readLedger(one.redis, 0, LEDGER_START); page.length > 0; ) {
    all.push(...page);
    page = await readLedger(one.redis, 0, page.at(-1)!.streamId);
  }
  const back = all.filter((entry) => kindOf(entry) === "refund");
  expect(back).toHaveLength(ROUNDS);
  expect(new Set(back.map(({ requestId }) => requestId)).size).toBe(ROUNDS);
  expect((await stage.account(key)).balance).toBe(ROUNDS);
  expect(await verifyLedger(oneNode(one.redis))).toMatchObject({ ok: true, violations: [] });
});

// Guarantee: an operator is told of a release that is in the audit.
test.each(["refused", "released"] as const)(
  "the release of a hold that was %s meanwhile says that it was void",
  async (reason) => {
    const [connection] = connections as [TestConnection];
    const nodes = oneNode(connection.redis);
    const stage = createStage(connection, { clock: "redis", partition: 0 });
    const key = await stage.givenKey({ credits: 100 });
    const [ending, held] = times(2, () => stage.request(key));
    for (const one of [ending!, held!]) await stage.admit(one);
    // Between the operator's read and the script.
    const endHold = () => void stage.void(ending!, reason);
    const released = await releaseTask({ ...nodes, requireWritable: endHold }, ending!.requestId, ANN);
    expect(released).toEqual({ outcome: "already_void" });
    expect(await releaseTask(nodes, held!.requestId, ANN)).toEqual({ outcome: "voided", credits: 10 });
  },
);

test.each(inShare(REFUND_RACE_MUTANTS))("the mistake is found: $what", async (mutant) => {
  expect(await refundedBy(undefined)).toBe(1);
  expect(await refundedBy(mutant)).toBe(2);
});

/** How often a completed task is refunded that is refunded under two references. */
async function refundedBy(mutant: Mutant | undefined): Promise<number> {
  const folder = mutant && (await plantForTest(mutant));
  const [connection] = connections as [TestConnection];
  const scripts = createScriptRunner(connection.redis, folder === undefined ? {} : { folder });
  const stage = createStage(connection, { scripts });
  const key = await stage.givenKey({ credits: 100 });
  const request = stage.request(key, { price: 10 });
  await stage.givenTask(request);
  await stage.observe(request, "completed");
  const { accountId, partition } = key;
  const call = { partition, accountId, requestId: request.requestId, reason: "r", lookedUp: 0, actor: ANN };
  for (const reference of ["one", "two"]) await stage.refund({ ...call, reference });
  return ((await stage.account(key)).balance - 90) / 10;
}
