import { hash } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { cliActor } from "../../src/records/actor.ts";
import { LEDGER_START, readLedger } from "../../src/records/ledger-entries.ts";
import {
  archiveNames,
  claimName,
  frozenName,
  indexName,
  type KeyRef,
  keyRef,
  META,
  partitionNames,
  requestName,
} from "../../src/records/names.ts";
import { createConnection } from "../../src/redis/connection.ts";
import {
  CHECKS_FROZEN,
  createScriptRunner,
  itemOf,
  type ScriptRunner,
} from "../../src/redis/script-runner.ts";
import { scriptSource } from "../../src/redis/script-source.ts";
import { frozenField } from "../../src/redis/topology/frozen-partitions.ts";
import { account, suspend } from "../../src/scripts/accounts.ts";
import { archived } from "../../src/scripts/archive.ts";
import { adjust, recharge, refund } from "../../src/scripts/credit-changes.ts";
import { bindClaimed, type Generation } from "../../src/scripts/holds.ts";
import { change, gather, issue, revoke } from "../../src/scripts/keys.ts";
import { rollup, trim } from "../../src/scripts/ledger.ts";
import type { Script } from "../../src/scripts/script-definition.ts";
import { refused } from "../../src/scripts/surveys.ts";
import { collect, dispute, lease } from "../../src/scripts/tasks.ts";
import { revokeToken, token } from "../../src/scripts/tokens.ts";
import { unclear } from "../../src/scripts/uncharged-holds.ts";
import { createSweeps } from "../../src/settlement/sweeps.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";
import { createClient } from "../support/client.ts";
import { NO_CLAIMS, startClusterNode } from "../support/cluster-node.ts";
import { soon } from "../support/soon.ts";
import {
  createStage,
  HOLD_MS,
  newTask,
  openConnection,
  openStore,
  randomId,
  type ScriptCall,
  type Stage,
  setAccountLimits,
  type TestConnection,
  taskOf,
  times,
} from "../support/store.ts";
import { plantForTest } from "./mutant-client.ts";
import { FROZEN_MUTANTS, MIGRATION_MUTANTS } from "./mutants.ts";
import { clear, contents, dump, restore } from "./stored.ts";

// A slot that migrates key by key: the node that has it refuses each command on a name that it does not have, new names
// included, also in the middle of a script. Two real nodes; the first has all slots.

/** No gateway looks for lost entries here, so a test may take names away. */
const PARTITION = 1_000_000;

let dir: string;
const nodes: Awaited<ReturnType<typeof startClusterNode>>[] = [];
let clients: Redis[] = [];
let connection: TestConnection;
let stage: Stage;
let slot: number;
let otherNodeId: string;
/** Scripts as on one server, which do not look for the mark of a frozen partition: they stop half-way. */
let unchecked: ScriptRunner;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "tollgate-migration-"));
  for (const name of ["first", "second"]) nodes.push(await startClusterNode(join(dir, name)));
  clients = nodes.map(({ url }) => createClient(url, 10_000));
  for (const client of clients) await client.connect();
  const [first, second] = clients as [Redis, Redis];
  await first.cluster("ADDSLOTSRANGE", 0, 16_383);
  const { port, busPort } = nodes[1]!;
  await first.call("CLUSTER", "MEET", "127.0.0.1", port, busPort);
  otherNodeId = String(await second.cluster("MYID"));
  await soon(async () => {
    expect(await first.cluster("INFO")).toContain("cluster_state:ok");
    expect(String(await first.call("CLUSTER", "NODES"))).toMatch(
      new RegExp(`^${otherNodeId} .* connected`, "m"),
    );
  });
  slot = Number(await first.cluster("KEYSLOT", partitionNames(PARTITION).done));
  connection = await openConnection(nodes[0]!.url);
  stage = createStage(connection, { partition: PARTITION });
  unchecked = createScriptRunner(clients[0]!);
});
afterEach(() => endMigration());
afterAll(async () => {
  await connection?.close();
  for (const client of clients) client.disconnect();
  for (const node of nodes) await node.stop();
  await rm(dir, { recursive: true, force: true });
});

/** As it is sent to nodes of a cluster. */
const BIND = hash("sha1", scriptSource(bindClaimed, { checksFrozen: true, crossesSlots: true }));
const beginMigration = () => clients[0]!.cluster("SETSLOT", slot, "MIGRATING", otherNodeId);
const endMigration = async () => void (await clients[0]!.cluster("SETSLOT", slot, "STABLE"));

// Guarantee: a charge is dropped only when its script would fail again.
test("a charge that meets a migrating slot is kept, and posted once the slot is stable", async () => {
  const key = await stage.givenKey({ credits: 100 });
  const store = openStore(connection);
  const generation = stage.request(key, { retentionMs: 3_600_000 });
  expect(await store.admit(generation, stage.tiers)).toMatchObject({ outcome: "admitted" });
  await beginMigration();
  const binds: PromiseSettledResult<unknown>[] = [];
  const send = connection.redis.sendCommand.bind(connection.redis);
  const sending = vi.spyOn(connection.redis, "sendCommand").mockImplementation((command) => {
    const isBind = command.args[0] === BIND;
    const reply = send(command);
    if (isBind) void Promise.allSettled([reply]).then(([result]) => binds.push(result));
    return reply;
  });
  expect(await store.bind(generation, newTask(taskOf(generation)))).toBeUndefined();
  // The request's own call, and the first one of the outbox.
  await soon(() => expect(binds[1]).toMatchObject({ status: "fulfilled" }));
  sending.mockRestore();
  await endMigration();
  expect(connection.breaker.isOpen, "for one partition").toBe(false);
  await soon(async () =>
    expect(await store.credits(key, stage.tiers)).toMatchObject({ balance: 90, totalUsed: 10 }),
  );
});

// Guarantee: an ADMIT that was answered 503 leaves no hold and no entry in the window behind.
test("an admission that meets a migrating slot is voided, and never runs later", async () => {
  const key = await stage.givenKey({ credits: 100 });
  const store = openStore(connection);
  const generation = stage.request(key);
  await beginMigration();
  const admitted = store.admit(generation, stage.tiers);
  await expect(admitted).rejects.toMatchObject({
    cause: { message: expect.stringContaining("non local key") },
    refusal: { name: "store_unavailable", retryAfterSeconds: expect.any(Number) },
  });
  expect(connection.breaker.isOpen, "for one partition").toBe(false);
  await endMigration();
  await soon(async () =>
    expect(await stage.requestRecord(generation)).toMatchObject({ state: "void", reason: "unsent" }),
  );
  expect(await store.admit(generation, stage.tiers)).toMatchObject({ outcome: "void" });
  expect(await store.credits(key, stage.tiers)).toMatchObject({ balance: 100, state: { active: 0 } });
});

// Guarantee: a slot that moves is no outage of its primary.
test("a plain command waits a moment for the slot of its name, and opens no breaker", async () => {
  const name = indexName("none");
  const moving = Number(await clients[0]!.cluster("KEYSLOT", name));
  const read = () => connection.command((redis) => redis.get(name));
  await clients[0]!.cluster("SETSLOT", moving, "MIGRATING", otherNodeId);
  await expect(read()).rejects.toMatchObject({ refusal: { name: "store_unavailable" } });
  const reading = read();
  await clients[0]!.cluster("SETSLOT", moving, "STABLE");
  expect(await reading).toBeNull();
  expect(connection.breaker.isOpen).toBe(false);
});

// Guarantee: one slot that stays between two nodes stops neither the accounts of its primary nor other charges.
test("a charge whose claim meets a migrating slot waits for it alone", async () => {
  const key = await stage.givenKey({ credits: 100 });
  const store = openStore(connection);
  const [waiting, other] = times(2, () => stage.request(key, { retentionMs: 3_600_000 }));
  for (const generation of [waiting!, other!])
    expect(await store.admit(generation, stage.tiers)).toMatchObject({ outcome: "admitted" });
  const moving = Number(await clients[0]!.cluster("KEYSLOT", claimName(taskOf(waiting!))));
  await clients[0]!.cluster("SETSLOT", moving, "MIGRATING", otherNodeId);
  const bound = [waiting!, other!].map((generation) => store.bind(generation, newTask(taskOf(generation))));
  expect(await Promise.all(bound)).toEqual([undefined, "bound"]);
  expect(connection.breaker.isOpen, "for one claim").toBe(false);
  expect(await store.credits(key, stage.tiers)).toMatchObject({ totalUsed: 10 });
  const polled = store.mayBeBoundSoon(key, taskOf(waiting!));
  await expect(polled).rejects.toMatchObject({ refusal: { name: "store_unavailable" } });
  await clients[0]!.cluster("SETSLOT", moving, "STABLE");
  await soon(async () =>
    expect(await store.credits(key, stage.tiers)).toMatchObject({ balance: 80, totalUsed: 20 }),
  );
  await store.settlements.close();
});

// Guarantee: while Redis is out of memory, what was admitted before is settled or waits, and polls go on.
test("a charge is made though its claim meets a primary without memory", async () => {
  const key = await stage.givenKey({ credits: 100 });
  const store = openStore(connection);
  const generation = stage.request(key, { retentionMs: 3_600_000 });
  expect(await store.admit(generation, stage.tiers)).toMatchObject({ outcome: "admitted" });
  await clients[0]!.config("SET", "maxmemory", "1");
  try {
    expect(await store.bind(generation, newTask(taskOf(generation)))).toBe("bound");
    expect(await store.credits(key, stage.tiers)).toMatchObject({ balance: 90, totalUsed: 10 });
  } finally {
    await clients[0]!.config("SET", "maxmemory", "0");
  }
  await store.settlements.close();
});

test("a charge whose claim is refused opens no breaker, and is posted once it is taken", async () => {
  const key = await stage.givenKey({ credits: 100 });
  const store = openStore(connection);
  const generation = stage.request(key, { retentionMs: 3_600_000 });
  expect(await store.admit(generation, stage.tiers)).toMatchObject({ outcome: "admitted" });
  await clients[0]!.call("ACL", "SETUSER", "default", ...NO_CLAIMS);
  try {
    expect(await store.bind(generation, newTask(taskOf(generation)))).toBeUndefined();
    expect(connection.breaker.isOpen, "for one claim").toBe(false);
    expect(await store.mayBeBoundSoon(key, taskOf(generation)), "its poll is not 404").toBe(true);
  } finally {
    await clients[0]!.call("ACL", "SETUSER", "default", "allkeys");
  }
  await soon(async () =>
    expect(await store.credits(key, stage.tiers)).toMatchObject({ balance: 90, totalUsed: 10 }),
  );
  await store.settlements.close();
});

// Guarantee: a frozen partition that moves stops no other, also at a gateway that starts meanwhile.
test("a gateway that confirms charges starts while the first partition of a primary moves", async () => {
  const [first] = clients as [Redis];
  const moving = Number(await first.cluster("KEYSLOT", partitionNames(0).done));
  await first.hset(META, frozenField(0), 1);
  await first.cluster("SETSLOT", moving, "MIGRATING", otherNodeId);
  const started = createConnection({
    redisUrl: nodes[0]!.url,
    commandTimeoutMs: 10_000,
    partitions: 64,
    allowNoPersistence: true,
    confirm: { replicas: 0, timeoutMs: 100 },
    log: createLogger("silent"),
    metrics: createMetrics(),
  });
  const { settlements } = openStore(started);
  try {
    await soon(() => expect(started.of(1).breaker).toMatchObject({ isOpen: false, wasUsable: true }));
  } finally {
    await first.cluster("SETSLOT", moving, "STABLE");
    await first.hdel(META, frozenField(0));
    await started.close();
    await settlements.close();
  }
});

// Guarantee: a partition that moves without a freeze does not keep its primary from use, either.
test("a primary whose connection closes while a partition moves is used again at once", async () => {
  const [first] = clients as [Redis];
  const moved = createStage(connection, { partition: 3 });
  const key = await moved.givenKey({ credits: 100 });
  const store = openStore(connection);
  const generation = moved.request(key, { retentionMs: 3_600_000 });
  expect(await store.admit(generation, moved.tiers)).toMatchObject({ outcome: "admitted" });
  expect(await store.bind(generation, newTask(taskOf(generation)))).toBe("bound");
  const name = requestName(3, generation.requestId);
  const record = await first.get(name);
  const moving = Number(await first.cluster("KEYSLOT", name));
  await first.del(name);
  await first.cluster("SETSLOT", moving, "MIGRATING", otherNodeId);
  try {
    connection.redis.disconnect(true);
    await soon(() => expect(connection.breaker.isOpen).toBe(true));
    await soon(() => expect(connection.breaker.isOpen).toBe(false));
  } finally {
    await first.cluster("SETSLOT", moving, "STABLE");
    await first.set(name, record!);
    await store.settlements.close();
  }
});

// Guarantee: a partition that moves without a freeze stops no other, neither the holds and tasks of others.
test("what is due in other partitions of a primary is found while one moves", async () => {
  const [first] = clients as [Redis];
  const [moving, other] = [partitionNames(3).due, partitionNames(5).due];
  const slotOfMoving = Number(await first.cluster("KEYSLOT", moving));
  await first.zadd(other, 1, "due long since");
  await first.cluster("SETSLOT", slotOfMoving, "MIGRATING", otherNodeId);
  try {
    expect(await first.exists(other), "has not moved").toBe(1);
    const { due } = createSweeps(connection, () => 1000);
    await soon(async () => expect((await due()).holds).toContain(5));
  } finally {
    await first.cluster("SETSLOT", slotOfMoving, "STABLE");
    await first.zrem(other, "due long since");
  }
});

/** A call of a script for one request of an account, all of whose names exist. */
interface Given {
  call: ScriptCall;
  requestId: string;
}

/** True if accounts have limits over all their keys. */
let hasLimits = false;
async function ofLimited<T>(given: () => Promise<T>): Promise<T> {
  hasLimits = true;
  return given().finally(() => {
    hasLimits = false;
  });
}

/** An account with a held request, one whose task runs and one that has ended, each admitted at another ms. */
async function givenAccount(): Promise<KeyRef> {
  const key = await stage.givenKey();
  if (hasLimits) await setAccountLimits(stage, key, { rate_limit: 99, max_concurrent: 99, daily_limit: 99 });
  const requests = times(3, () => stage.request(key));
  for (const [at, request] of requests.entries()) {
    stage.clock.nowMs++;
    await stage.admit(request);
    if (at > 0) await stage.bind(request);
  }
  await stage.observe(requests[2]!, "completed");
  stage.clock.nowMs++;
  return key;
}

async function givenHeld(): Promise<Generation> {
  const idempotency = { digest: randomId("digest"), fingerprint: "f" };
  const generation = stage.request(await givenAccount(), { idempotency });
  await stage.admit(generation);
  return generation;
}

async function givenBound(): Promise<Generation> {
  const generation = await givenHeld();
  await stage.bind(generation);
  return generation;
}

async function voiding(reason: "refused" | "unsent" | "due"): Promise<Given> {
  const generation = await givenHeld();
  if (reason === "due") stage.clock.nowMs += HOLD_MS;
  return { call: stage.voiding(generation, reason), requestId: generation.requestId };
}

async function observing(status: "completed" | "failed" | "gone"): Promise<Given> {
  const generation = await givenBound();
  const call = await stage.onItsWay(() => stage.observe(generation, status));
  return { call, requestId: generation.requestId };
}

async function admitting(): Promise<Given> {
  const generation = stage.request(await givenAccount());
  const call = await stage.onItsWay(() => stage.admit(generation));
  return { call, requestId: generation.requestId };
}

/** On a cluster the claim is taken first, so the call is made here. */
async function binding(isLate: boolean): Promise<Given> {
  const generation = await givenHeld();
  if (isLate) {
    stage.clock.nowMs += HOLD_MS;
    await stage.void(generation, "due");
  }
  const call = { ...generation, task: newTask(taskOf(generation)) };
  const item = itemOf(bindClaimed, call, String(stage.clock.nowMs));
  return { call: { script: bindClaimed, item }, requestId: generation.requestId };
}

const PLAIN_CALLS: Record<string, () => Promise<Given>> = {
  ADMIT: () => admitting(),
  BIND: () => binding(false),
  "BIND late": () => binding(true),
  "VOID refused": () => voiding("refused"),
  "VOID unsent": () => voiding("unsent"),
  "VOID due": () => voiding("due"),
  "OBSERVE completed": () => observing("completed"),
  "OBSERVE failed": () => observing("failed"),
  "OBSERVE gone": () => observing("gone"),
};
const CALLS: Record<string, () => Promise<Given>> = {
  ...PLAIN_CALLS,
  ...Object.fromEntries(
    Object.entries(PLAIN_CALLS).map(([name, given]) => [
      `${name} of an account with limits`,
      () => ofLimited(given),
    ]),
  ),
};

/**
 * Runs a call while one of its names has moved away, then again once the slot is stable: each name in turn.
 * @returns what is not as if the call had run once
 */
async function interrupted({ call, requestId }: Given, scripts: ScriptRunner): Promise<string[]> {
  const [redis] = clients as [Redis];
  const isDone = async (): Promise<boolean> => {
    const [reply] = await scripts.send(call.script, [call.item]).catch((error: Error) => [error]);
    return !(reply instanceof Error);
  };
  const isWhole = async () => isDeepStrictEqual(await contents(redis, PARTITION), whole);
  const isUntouched = async () => isDeepStrictEqual(await contents(redis, PARTITION), untouched);
  const { due } = partitionNames(PARTITION);
  const isListed = async () => (await redis.zscore(due, requestId)) !== null;
  const before = await dump(redis, PARTITION);
  const untouched = await contents(redis, PARTITION);
  expect(await isDone()).toBe(true);
  const whole = await contents(redis, PARTITION);
  const found: string[] = [];
  for (const [name, moved] of before) {
    await clear(redis, PARTITION);
    await restore(redis, before);
    await redis.del(name);
    await beginMigration();
    const ranAll = await isDone();
    await endMigration();
    if (ranAll) continue;
    await restore(redis, new Map([[name, moved]]));
    if (!(await isListed()) && !(await isWhole()) && !(await isUntouched()))
      found.push(`${name}: the sweeper does not come back to it`);
    if (!(await isDone())) found.push(`${name}: the second call fails`);
    if (!(await isWhole())) found.push(`${name}: another result`);
  }
  return found;
}

// Guarantee: a call that stops half-way moves no money twice, and none is lost, once it is sent again.
test.each(Object.entries(CALLS))(
  "%s may stop at any name that has moved, and is sent again",
  async (_, given) => {
    await clear(clients[0]!, PARTITION);
    expect(await interrupted(await given(), unchecked)).toEqual([]);
  },
);

test.each(MIGRATION_MUTANTS)("a mistake in the scripts shows: $what", async (mutant) => {
  const folder = await plantForTest(mutant);
  const client = createClient(nodes[0]!.url, 10_000);
  try {
    await client.connect();
    const scripts = createScriptRunner(client, { folder });
    const found: string[] = [];
    for (const [name, given] of Object.entries(CALLS)) {
      if (found.length > 0 || !name.startsWith(mutant.file.toUpperCase())) continue;
      await clear(client, PARTITION);
      found.push(...(await interrupted(await given(), scripts)));
    }
    expect(found).not.toEqual([]);
  } finally {
    client.disconnect();
  }
});

const itemFor = <Call>(script: Script<Call, unknown>, call: Call): ScriptCall => ({
  script,
  item: itemOf(script, call, String(stage.clock.nowMs)),
});

/** The other scripts that write. */
const OTHERS: Record<string, () => Promise<ScriptCall>> = {
  UNCLEAR: async () => {
    const { key, requestId, idempotency } = await givenHeld();
    return itemFor(unclear, {
      key,
      requestId,
      idempotencyDigest: idempotency!.digest,
      unknown: "unclear",
      unknownMax: 1,
    });
  },
  LEASE: async () => {
    await givenHeld();
    stage.clock.nowMs += HOLD_MS;
    return itemFor(lease, { list: "holds", partition: PARTITION, most: 10, leaseMs: 1000 });
  },
  COLLECT: async () => {
    const generation = await givenBound();
    await stage.observe(generation, "completed");
    stage.clock.nowMs += 2 * generation.retentionMs;
    const { requestId } = generation;
    return itemFor(collect, { partition: PARTITION, requestId, taskId: taskOf(generation), retentionMs: 0 });
  },
  ISSUE: async () => {
    const key = { ...(await givenAccount()), keyId: randomId("key") };
    return itemFor(issue, {
      actor: cliActor(),
      key: keyRef(key.keyId, key.accountId, PARTITION),
      tier: "standard",
      digest: key.keyId,
      limits: {},
      credits: 5,
      reference: key.keyId,
    });
  },
  CHANGE: async () =>
    itemFor(change, { actor: cliActor(), ...(await givenAccount()), fields: { tier: "premium" } }),
  ACCOUNT: async () =>
    itemFor(account, {
      partition: PARTITION,
      accountId: (await givenAccount()).accountId,
      action: "account.patch",
      actor: cliActor("ann"),
      fields: { label: "Ann's" },
    }),
  SUSPEND: async () => {
    const { accountId } = await givenAccount();
    const call = { partition: PARTITION, accountId, status: "suspended" as const };
    return itemFor(suspend, { ...call, actor: cliActor("ann") });
  },
  REVOKE: async () => itemFor(revoke, { ...(await givenAccount()), actor: cliActor("ann") }),
  GATHER: async () => {
    const { accountId, keyId } = await ofLimited(givenAccount);
    return itemFor(gather, { partition: PARTITION, accountId, keyIds: [keyId] });
  },
  REFUSED: async () => {
    const { accountId } = await givenAccount();
    const refusal = { accountId, hour: "14", keyId: "key", outcome: "rate_limited", count: 1 };
    return itemFor(refused, { partition: PARTITION, day: "2030-01-31", refusals: [refusal] });
  },
  RECHARGE: async () => {
    const { accountId } = await givenAccount();
    return itemFor(recharge, {
      actor: cliActor(),
      partition: PARTITION,
      accountId,
      amount: 5,
      reference: "order",
    });
  },
  TOKEN: async () => {
    const tag = partitionNames(PARTITION).done.slice(0, -"done".length);
    const call = { tokenId: "tok_1", actor: cliActor("ann"), most: 9, familyMost: 9 };
    const { script, item } = itemFor(token, { ...call, fields: { label: "x", scopes: "y", sha256: "z" } });
    // All tokens are in partition 0; here in the one that moves.
    const keys = item.keys.map((name) => name.replace(/^.*?}:/, tag));
    await clients[0]!.zadd(keys[1]!, 1, "tok_0");
    await clients[0]!.hset(keys[2]!, "digest", "tok_0");
    return { script, item: { ...item, keys } };
  },
  "REVOKE-TOKEN": async () => {
    const tag = partitionNames(PARTITION).done.slice(0, -"done".length);
    const call = { tokenId: "tok_2", root: "tok_2", actor: cliActor("ann") };
    const { script, item } = itemFor(revokeToken, call);
    const keys = item.keys.map((name) => name.replace(/^.*?}:/, tag));
    await clients[0]!.hset(keys[0]!, "sha256", "digest");
    await clients[0]!.hset(keys[1]!, { digest: "tok_2", other: "tok_0" });
    await clients[0]!.zadd(keys[2]!, 1, "tok_0");
    await clients[0]!.zadd(keys[3]!, 1, "tok_0");
    await clients[0]!.zadd(keys[4]!, 1, "tok_0");
    return { script, item: { ...item, keys } };
  },
  ADJUST: async () => {
    const { accountId } = await givenAccount();
    const wanted = { amount: 5, reference: "r-1", reason: "sorry", actor: cliActor("ann") };
    return itemFor(adjust, { partition: PARTITION, accountId, ...wanted });
  },
  REFUND: async () => {
    const generation = await givenBound();
    await stage.observe(generation, "completed");
    const { key, requestId } = generation;
    const wanted = { reference: "r-1", reason: "late", actor: cliActor("ann") };
    return itemFor(refund, { partition: PARTITION, accountId: key.accountId, requestId, ...wanted });
  },
  DISPUTE: async () => {
    const { key, requestId } = await givenBound();
    const given = { taskId: `task_${requestId}`, partition: PARTITION, ownerId: requestId };
    return itemFor(dispute, { ...given, accountId: `${key.accountId}_2`, lifetimeMs: 1000 });
  },
  ARCHIVED: async () => {
    const generation = await givenBound();
    await stage.observe(generation, "completed");
    const { archive, changed } = archiveNames(PARTITION);
    await clients[0]!.hset(archive, "generation", "1", "writing", "0 after 0");
    await clients[0]!.hset(changed, "key k", "1");
    const requests = [{ requestId: generation.requestId, state: "finished" }];
    return itemFor(archived, {
      partition: PARTITION,
      generation: "1",
      newest: "1-0",
      batch: 0,
      noted: { newest: undefined, batch: 0 },
      lookedUntil: 1,
      requests,
      changed: [{ what: "key k", changes: "1" }],
    });
  },
  ROLLUP: async () => {
    const generation = await givenBound();
    await stage.observe(generation, "completed");
    return itemFor(rollup, { partition: PARTITION });
  },
  TRIM: async () => {
    const key = await givenAccount();
    await stage.recharge(key, 5, "order 1");
    await stage.recharge(key, 5, "order 2");
    const archivedTo = (await readLedger(clients[0]!, PARTITION, LEDGER_START)).at(-1)!;
    return itemFor(trim, { partition: PARTITION, archivedTo, keepMs: 0, most: 10, keepReferencesMs: 0 });
  },
};
const WRITES: Record<string, () => Promise<ScriptCall>> = {
  ...Object.fromEntries(
    Object.entries(CALLS).map(([name, given]) => [name, async () => (await given()).call]),
  ),
  ...OTHERS,
};

/** Changes of a call although the partition is frozen, or one of its names has moved away: each name in turn. */
async function changed({ script, item }: ScriptCall, scripts: ScriptRunner): Promise<string[]> {
  const [redis] = clients as [Redis];
  const send = async (): Promise<string> => {
    const [reply] = await scripts.send(script, [item]).catch((error: Error) => [error]);
    return reply instanceof Error ? reply.message : "done";
  };
  const before = await dump(redis, PARTITION);
  const untouched = await contents(redis, PARTITION);
  const found: string[] = [];
  for (const [name, moved] of before) {
    await redis.del(name);
    const rest = await contents(redis, PARTITION);
    await beginMigration();
    const answer = await send();
    await endMigration();
    if (!answer.includes("non local key") && !/^(ASK|TRYAGAIN) /.test(answer))
      found.push(`${name}: ${answer}`);
    if (!isDeepStrictEqual(await contents(redis, PARTITION), rest)) found.push(`${name}: half done`);
    await restore(redis, new Map([[name, moved]]));
  }
  await redis.set(frozenName(PARTITION), "1");
  const answer = await send();
  await redis.del(frozenName(PARTITION));
  if (!answer.startsWith("FROZEN ")) found.push(`frozen: ${answer}`);
  if (!isDeepStrictEqual(await contents(redis, PARTITION), untouched)) found.push("frozen: changed");
  if ((await send()) !== "done") found.push("thawed: not done");
  return found;
}

// Guarantee: nothing changes a frozen partition, and on a cluster no call stops half-way, whatever has moved.
test.each(Object.entries(WRITES))(
  "%s does all or nothing in a partition that moves or is frozen",
  async (_, given) => {
    await clear(clients[0]!, PARTITION);
    expect(await changed(await given(), connection.scripts)).toEqual([]);
  },
);

test.each(FROZEN_MUTANTS)("a mistake shows: $what", async (mutant) => {
  const folder = await plantForTest(mutant);
  const scripts = createScriptRunner(clients[0]!, { folder, form: CHECKS_FROZEN });
  const isOfAll = mutant.file.startsWith("include/");
  const [, given] = Object.entries(WRITES).find(
    ([name]) => isOfAll || name.startsWith(mutant.file.toUpperCase()),
  )!;
  await clear(clients[0]!, PARTITION);
  expect(await changed(await given(), scripts)).not.toEqual([]);
});
