import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rollUp } from "../../src/jobs/rollup-work.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { createToken, findToken, revokeToken } from "../../src/operations/access/tokens.ts";
import { createAccount, patchAccount } from "../../src/operations/accounts/operator-accounts.ts";
import { adjustCredits } from "../../src/operations/credits/adjustments.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { changeKey, revokeKey } from "../../src/operations/keys/change-key.ts";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { findKey } from "../../src/operations/keys/keys.ts";
import { keyRef, partitionOf } from "../../src/records/names.ts";
import { markAndWait } from "../../src/redis/confirmation.ts";
import { takeLease } from "../../src/redis/repeated-work.ts";
import { createScriptRunner } from "../../src/redis/script-runner.ts";
import { oneNode, partitionsOf } from "../../src/redis/store-facts.ts";
import { type RunningRedis, startRedis } from "../../src/sandbox/redis.ts";
import { suspend } from "../../src/scripts/accounts.ts";
import { archived, note } from "../../src/scripts/archive.ts";
import { adjust, recharge, refund } from "../../src/scripts/credit-changes.ts";
import { probe, workLease } from "../../src/scripts/gateways.ts";
import { admit, bind } from "../../src/scripts/holds.ts";
import { revoke } from "../../src/scripts/keys.ts";
import { trim } from "../../src/scripts/ledger.ts";
import { collect } from "../../src/scripts/tasks.ts";
import { revokeToken as revokeTokens } from "../../src/scripts/tokens.ts";
import { unclear, voidHold } from "../../src/scripts/uncharged-holds.ts";
import { webhook } from "../../src/scripts/webhooks.ts";
import { createClient } from "../support/client.ts";
import {
  createStage,
  HOLD_MS,
  newTask,
  openConnection,
  openStore,
  RETENTION_MS,
  randomId,
  type Stage,
  type TestConnection,
  times,
} from "../support/store.ts";
import { plantForTest } from "./mutant-client.ts";
import { FILLING_MUTANTS, FULL_MUTANTS, inShare, type Mutant } from "./mutants.ts";

let dir: string;
let server: RunningRedis;
let connection: TestConnection;
let stage: Stage;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "tollgate-oom-"));
  server = await startRedis({ dir, persistent: false, args: ["--maxmemory", "64mb"] });
  connection = await openConnection(server.url);
  stage = createStage(connection);
});
afterAll(async () => {
  await connection?.close();
  await server?.stop();
  await rm(dir, { recursive: true, force: true });
});

// Guarantee: without memory to spare nothing new begins, and whatever has begun can be settled.
test("a full store refuses admissions, while settlements, reads and sweeps go on", async () => {
  const key = await stage.givenKey({ credits: 100 });
  const [toBind, toVoid, toEnd, toSweep] = times(4, () => stage.request(key));
  for (const generation of [toBind!, toVoid!, toSweep!]) await stage.admit(generation);
  await stage.givenTask(toEnd!);
  await connection.redis.config("SET", "maxmemory", "1");
  try {
    const store = openStore(connection);
    const refused = store.admit(stage.request(key), stage.tiers);
    await expect(refused).rejects.toMatchObject({ message: expect.stringMatching(/OOM/) });
    expect(connection.breaker.isOpen, "a refusal is an answer: the store is not away").toBe(false);
    expect(store.settlements.outbox.size()).toBe(0);
    await expect(stage.givenKey()).rejects.toThrow(/OOM/);

    expect(await stage.bind(toBind!)).toBe("bound");
    expect(await stage.void(toVoid!, "refused")).toBe("void");
    expect(await stage.void(stage.request(key), "unsent")).toBe("missing");
    expect(await stage.observe(toEnd!, "processing")).toMatchObject({ outcome: "observed" });
    expect(await stage.observe(toEnd!, "failed")).toMatchObject({ outcome: "finished", refunded: 10 });
    await expect(stage.recharge(key, 5, "order 1")).rejects.toThrow(/OOM/);
    expect(await stage.store.inspect(key, stage.tiers)).toMatchObject({ outcome: "known" });

    stage.clock.nowMs += HOLD_MS;
    const { requests } = await stage.sweeps.lease("holds", stage.partition, 10);
    const due = requests.find(({ requestId }) => requestId === toSweep!.requestId);
    expect(await stage.sweeps.voidDue(due!)).toBe("void");
    stage.clock.nowMs += RETENTION_MS;
    expect(await stage.sweeps.collect(stage.partition, 0, 10)).toMatchObject({ collected: 3 });
    expect(await connection.scripts.run(probe, { name: "tg:probe:oom" })).toMatchObject({
      storeNowMs: expect.any(Number),
    });
    expect(await stage.credits(key)).toMatchObject({ balance: 90, totalUsed: 10, state: { active: 1 } });
  } finally {
    await connection.redis.config("SET", "maxmemory", "64mb");
  }
  expect(await stage.admit(stage.request(key))).toMatchObject({ outcome: "admitted" });
});

// Guarantee: what makes room again never waits for room.
test("turns are taken and replicas are asked while the store is full", async () => {
  const { redis } = connection;
  const [name, other] = [`tg:turn-${randomId("x")}`, `tg:turn-${randomId("x")}`];
  await redis.config("SET", "maxmemory", "1");
  try {
    const take = (holder: string) => connection.scripts.run(workLease, { name, holder, leaseMs: 60_000 });
    expect([await take("a"), await take("b"), await take("a")]).toEqual([true, false, true]);
    expect(await redis.pttl(name)).toBeGreaterThan(50_000);
    expect([await takeLease(connection, other, 60_000), await takeLease(connection, other, 60_000)]).toEqual([
      true,
      false,
    ]);
    expect(await markAndWait(redis, { mark: other, replicas: 0, timeoutMs: 10 })).toBe(true);
  } finally {
    await redis.config("SET", "maxmemory", "64mb");
  }
});

/** The scripts that add to a store, and those that make room, settle, or stop somebody. @returns what Redis refuses */
async function refusedWhenFull(mutant?: Mutant): Promise<string[]> {
  const folder = mutant && (await plantForTest(mutant));
  const client = createClient(server.url, 10_000);
  await client.connect();
  const { run } = createScriptRunner(client, folder === undefined ? {} : { folder });
  const partition = 7;
  const archivedTo = { streamId: "1-1", accountId: "a", balanceAfter: 0, requestId: "", reference: "" };
  const actor = { by: "admin_token", requestId: "req_1" };
  const key = keyRef("k", "a", partition);
  const request = stage.request(key);
  const { requestId } = request;
  const credits = { partition, accountId: "a", amount: 5, reference: "r", reason: "x", actor };
  const scripts = {
    "work-lease": () => run(workLease, { name: `tg:turn-${randomId("x")}`, holder: "a", leaseMs: 1000 }),
    note: () => run(note, { partition, changed: ["key a"] }),
    archived: () =>
      run(archived, {
        ...{
          partition,
          generation: "g",
          newest: undefined,
          batch: 1,
          noted: { newest: undefined, batch: 0 },
        },
        ...{ lookedUntil: 0, requests: [], changed: [] },
      }),
    trim: () => run(trim, { partition, archivedTo, keepMs: 0, keepReferencesMs: 0, most: 1 }),
    rollup: () => rollUp(run, { partition, slicesMax: 1 }),
    collect: () => run(collect, { partition, requestId: "r", taskId: undefined, retentionMs: 1 }),
    bind: () => run(bind, { ...request, task: newTask(randomId("task")) }),
    void: () => run(voidHold, { key, requestId, reason: "refused" }),
    unclear: () =>
      run(unclear, { key, requestId, idempotencyDigest: undefined, unknown: "unclear", unknownMax: 1 }),
    refund: () => run(refund, { ...credits, requestId }),
    revoke: () => run(revoke, { partition, keyId: "k", actor }),
    suspend: () => run(suspend, { partition, accountId: "a", actor, status: "suspended" }),
    webhook: () =>
      run(webhook, { partition, accountId: "a", endpointId: "w", action: "webhook.delete", actor }),
    "revoke-token": () => run(revokeTokens, { tokenId: "t", root: "t", actor }),
    admit: () => run(admit, { generation: request, tiers: stage.tiers, notAfterMs: Number.MAX_SAFE_INTEGER }),
    recharge: () => run(recharge, credits),
    adjust: () => run(adjust, credits),
  };
  await connection.redis.config("SET", "maxmemory", "1");
  try {
    const names: string[] = [];
    for (const [name, call] of Object.entries(scripts))
      await call().catch((error: Error) => {
        expect(error.message).toMatch(/OOM/);
        names.push(name);
      });
    return names;
  } finally {
    await connection.redis.config("SET", "maxmemory", "64mb");
    client.disconnect();
  }
}

const FILLING = FILLING_MUTANTS.map(({ file }) => file);

// Guarantee: a full store gets going by itself.
test("what makes room, settles or stops somebody is never refused for want of room; what fills it is", async () => {
  expect(await refusedWhenFull()).toEqual(FILLING);
});

test.each(inShare(FULL_MUTANTS))("the mistake is found: $what", async (mutant) => {
  expect(await refusedWhenFull(mutant)).toEqual([mutant.file, ...FILLING]);
});

test.each(inShare(FILLING_MUTANTS))("the mistake is found: $what", async (mutant) => {
  expect(await refusedWhenFull(mutant)).toEqual(FILLING.filter((file) => file !== mutant.file));
});

// Guarantee: whoever has filled the store is stopped, and adds nothing more to it.
test("a full store revokes keys and tokens, suspends and closes accounts, and grants nothing", async () => {
  const nodes = oneNode(connection.redis);
  const actor = { by: "admin_token", requestId: "req_1" };
  const { keyId, accountId } = await issueKey(nodes, {}, actor);
  const wanted = { label: "small", scopes: ["accounts:write" as const] };
  const root = await createToken(nodes, wanted, actor);
  const child = await createToken(nodes, wanted, actor, { ...root.record, familyMost: 9 });
  const key = await findKey(nodes, keyId);
  await connection.redis.config("SET", "maxmemory", "1");
  try {
    for (const work of [
      () => createToken(nodes, wanted, actor),
      () => createAccount(nodes, {}, actor),
      () => patchAccount(nodes, accountId, { metadata: { a: "b" } }, actor),
      () => patchAccount(nodes, accountId, { status: "suspended", label: "x" }, actor),
      () => changeKey(nodes, key, { label: "x" }, actor),
      () => grantCredits(nodes, accountId, 5, "order 1", actor),
      () => adjustCredits(nodes, accountId, { amount: 5, reference: "order 2", reason: "x" }, actor),
    ])
      await expect(work()).rejects.toThrow(/OOM/);
    expect(await revokeKey(nodes, key, actor)).toBe("revoked");
    expect(await patchAccount(nodes, accountId, { status: "suspended" }, actor)).toMatchObject({
      revision: 1,
    });
    expect(await patchAccount(nodes, accountId, { status: "closed" }, actor)).toMatchObject({
      status: "closed",
    });
    expect((await revokeToken(nodes, root.record.tokenId, actor)).revokedAtMs).toBeGreaterThan(0);
    expect(await findToken(nodes, child.token)).toBeUndefined();
  } finally {
    await connection.redis.config("SET", "maxmemory", "64mb");
  }
  await expect(patchAccount(nodes, accountId, { status: "active" }, actor)).resolves.toMatchObject({
    status: "active",
  });
});

// Guarantee: during an incident the ledger can be checked, and what is wrong in it is found.
test("a full store's ledger is verified as any other's", async () => {
  const { redis } = connection;
  const accountId = randomId("acc");
  const partition = partitionOf(accountId, await partitionsOf(oneNode(redis)));
  const stage = createStage(connection, { clock: "redis", partition });
  const key = await stage.givenKey({ accountId, credits: 100 });
  const [held, bound] = [stage.request(key), stage.request(key)];
  await stage.admit(held);
  await stage.givenTask(bound);
  const whenFull = async () => {
    await redis.config("SET", "maxmemory", "1");
    try {
      return await verifyLedger(oneNode(redis), { accountIds: [accountId] });
    } finally {
      await redis.config("SET", "maxmemory", "64mb");
    }
  };
  expect(await whenFull()).toMatchObject({ ok: true, accounts: 1, entries: 2, violations: [] });
  await redis.zadd(key.names.done, 1, held.requestId);
  await redis.zadd(key.names.due, 1, bound.requestId);
  const { violations } = await whenFull();
  expect(violations.map(({ invariant, request_id }) => [invariant, request_id])).toEqual([
    ["requests", held.requestId],
    ["due", bound.requestId],
    ["due", bound.requestId],
  ]);
});
