import { randomUUID } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { connectArchive } from "../../src/archive/archive-connection.ts";
import { archiveLookUps } from "../../src/archive/archived-reads.ts";
import { restoreStore } from "../../src/archive/restore.ts";
import { restoreReferences } from "../../src/archive/restoring.ts";
import { verifyArchive } from "../../src/archive/verify-archive.ts";
import { correctCharges } from "../../src/ledger/corrections.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { listAccounts } from "../../src/operations/accounts/account-lists.ts";
import { readAccount } from "../../src/operations/accounts/accounts.ts";
import {
  createAccount,
  patchAccount,
  readAccountObject,
} from "../../src/operations/accounts/operator-accounts.ts";
import { entryIdOf } from "../../src/operations/credits/references.ts";
import { refundTask } from "../../src/operations/credits/refunds.ts";
import { changeKey, revokeKey, rotateKey } from "../../src/operations/keys/change-key.ts";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { findKey } from "../../src/operations/keys/keys.ts";
import { readTierCounts } from "../../src/operations/keys/tier-counts.ts";
import {
  deleteEndpoint,
  listEndpoints,
  patchEndpoint,
  registerEndpoint,
  resealSecrets,
  rotateSecret,
  type WebhookRules,
} from "../../src/operations/webhooks/endpoints.ts";
import { cliActor } from "../../src/records/actor.ts";
import { entryFields } from "../../src/records/ledger-entries.ts";
import {
  accountNames,
  claimName,
  claimText,
  endpointNames,
  keyNames,
  keyRef,
  partitionNames,
  partitionOf,
  REFERENCE_ACCOUNTS_MAX,
  requestName,
} from "../../src/records/names.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { startRedis } from "../../src/sandbox/redis.ts";
import { runHere } from "../support/cli.ts";
import { givenGateway, until } from "../support/gateway.ts";
import { createStage, ENDPOINT, openConnection, taskOf, times } from "../support/store.ts";
import { generate, ready } from "../support/store-stage.ts";
import { readRequest } from "../support/stored-requests.ts";
import { givenExample } from "./example.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS } from "./stage.ts";

let stage: ArchiveStage;
let empty: Awaited<ReturnType<typeof givenEmptyRedis>>;
beforeEach(async () => {
  stage = await givenArchiveStage();
  empty = await givenEmptyRedis();
});
afterEach(async () => {
  await empty.stop();
  await stage.stop();
});

/** A Redis that nobody has used. */
async function givenEmptyRedis() {
  const dir = await mkdtemp(join(tmpdir(), "tollgate-restore-"));
  const server = await startRedis({ dir, persistent: false });
  const redis = new Redis(server.url);
  return {
    dir,
    url: server.url,
    redis,
    nodes: oneNode(redis),
    async stop(): Promise<void> {
      redis.disconnect();
      await server.stop();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

const DAY_MS = 86_400_000;
const TASKS = { maxAgeMs: DAY_MS, retentionMs: 7 * DAY_MS };
const FOR_EVER_MS = 100 * 366 * 86_400_000;

/** Everything of the store in a database, then a restore of it. */
async function restored(keepMs = FOR_EVER_MS) {
  await (await stage.copier()).copy();
  const archive = connectArchive(stage.url);
  try {
    return await restoreStore(archive, empty.nodes, { partitions: PARTITIONS, keepMs, tasks: TASKS });
  } finally {
    archive.close();
  }
}

/** Seals nothing, so that the test sees what is where. */
const PLAIN_RULES: WebhookRules = {
  endpointsMax: 10,
  newSecret: () => `whsec_${randomUUID()}`,
  seal: (secret) => `sealed ${secret}`,
  unseal: (sealed) => sealed.slice(7),
  isCurrent: () => true,
  checkAddress: (url) => ({ ok: true, url }),
};

const accountOf = (redis: Redis, accountId: string): Promise<Record<string, string>> =>
  redis.hgetall(accountNames(partitionOf(accountId, PARTITIONS), accountId).account);

describe("a restored store", () => {
  // Guarantee: a restore of many accounts is not given up while Redis takes them.
  test("is whole, however long Redis keeps the archive waiting between two statements", async () => {
    await givenExample(stage);
    await (await stage.copier()).copy();
    const archive = connectArchive(stage.url, { idleMs: 100 });
    const stall = (): void => void empty.redis.client("PAUSE", 400, "ALL");
    const options = { partitions: PARTITIONS, keepMs: FOR_EVER_MS, tasks: TASKS, seen: stall };
    const { entries } = await restoreStore(archive, empty.nodes, options).finally(archive.close);
    expect(entries).toBe((await stage.entries()).length);
  });

  test("has the accounts, balances, references and transactions of the lost one, and its ledger is right", async () => {
    await givenExample(stage);
    const result = await restored();
    expect(result).toMatchObject({
      accounts: 2,
      keys: 3,
      entries: 22,
      tasks: 0,
      balance: 640,
      partitions: PARTITIONS,
    });
    expect(result.newestEntryMs).toBe(Date.parse("2025-11-06T12:00:13Z"));
    expect(result.copiedUntilMs).toBeGreaterThan(Date.now() - 60_000);
    expect(await empty.redis.hgetall("tg:meta")).toEqual(await stage.redis.hgetall("tg:meta"));
    for (const accountId of ["acme", "globex"]) {
      expect(await readAccount(empty.nodes, accountId)).toEqual(await readAccount(stage.nodes, accountId));
      const { collected_until: _, ...account } = await accountOf(empty.redis, accountId);
      expect(account).toEqual(await accountOf(stage.redis, accountId));
      const partition = partitionOf(accountId, PARTITIONS);
      const { references, keys: ofAccount } = accountNames(partition, accountId);
      expect(await empty.redis.hgetall(references)).toEqual(await stage.redis.hgetall(references));
      expect(await empty.redis.zrange(ofAccount, "0", "-1", "WITHSCORES")).toEqual(
        await stage.redis.zrange(ofAccount, "0", "-1", "WITHSCORES"),
      );
      const { ledger } = partitionNames(partition);
      expect(await fieldsOf(empty.redis, ledger)).toEqual(await fieldsOf(stage.redis, ledger));
    }
    const verification = await verifyLedger(empty.nodes);
    expect(verification).toMatchObject({ ok: true, accounts: 2, entries: 22, violations: [] });
  });

  // Guarantee: accounts are told of keys that end soon, also after a disaster.
  test("knows which keys end, and when their accounts are told, as the lost one did", async () => {
    await givenExample(stage);
    const expiresAtMs = Date.now() + 30 * DAY_MS;
    const [, revoked] = await Promise.all(
      times(2, () => issueKey(stage.nodes, { accountId: "acme", expiresAtMs }, cliActor())),
    );
    await revokeKey(stage.nodes, await findKey(stage.nodes, revoked!.keyId), cliActor());
    await restored();
    const expiring = (redis: Redis) =>
      redis.zrange(partitionNames(partitionOf("acme", PARTITIONS)).expiring, "0", "-1", "WITHSCORES");
    const lost = await expiring(stage.redis);
    lost.splice(lost.indexOf(revoked!.keyId), 2);
    expect(lost.length).toBeGreaterThan(0);
    expect(await expiring(empty.redis)).toEqual(lost);
  });

  // Guarantee: a restore gives no key more than it had.
  test("has the endpoints and addresses of keys as the lost one did", async () => {
    const restrictions = { endpoints: ["gen2/text-to-video" as const], addresses: ["10.0.0.0/8"] };
    const { keyId } = await issueKey(stage.nodes, { accountId: "acme", restrictions }, cliActor());
    const heir = await rotateKey(stage.nodes, await findKey(stage.nodes, keyId), 60_000, cliActor());
    await restored();
    for (const id of [keyId, heir.keyId])
      expect((await findKey(empty.nodes, id)).restrictions).toEqual(restrictions);
    await stage.redis.hset(
      keyNames(partitionOf("acme", PARTITIONS), keyId).key,
      "restrictions",
      "addresses=::/0",
    );
    const archive = connectArchive(stage.url);
    const { violations } = await verifyArchive(stage.nodes, archive.query).finally(archive.close);
    expect(JSON.stringify(violations)).toMatch(/restrictions/);
  });

  // Guarantee: a configuration cannot drop a tier that a restored key uses.
  test("counts keys by tier as the lost one did, and goes on counting", async () => {
    await givenExample(stage);
    const accountId = "acme";
    const [kept, revoked] = await Promise.all(
      times(2, () => issueKey(stage.nodes, { accountId, tier: "gold" }, cliActor())),
    );
    await revokeKey(stage.nodes, await findKey(stage.nodes, revoked!.keyId), cliActor());
    const lost = await readTierCounts(stage.nodes);
    expect(lost.keys).toMatchObject({ gold: 1 });
    await restored();
    expect(await readTierCounts(empty.nodes)).toEqual(lost);
    await changeKey(empty.nodes, await findKey(empty.nodes, kept!.keyId), { tier: "silver" }, cliActor());
    const { gold: _, ...others } = lost.keys;
    expect((await readTierCounts(empty.nodes)).keys).toEqual({ ...others, silver: 1 });
  });

  test("lists accounts by id, label and status as the lost one did", async () => {
    await givenExample(stage);
    const actor = { by: "test", requestId: "" };
    const metadata = { plan: "é b", seats: 5, trial: false, tags: ["x"], 'odd "name"': 1 };
    await patchAccount(stage.nodes, "acme", { label: "ACME Ünited", status: "suspended", metadata }, actor);
    await createAccount(
      stage.nodes,
      { accountId: "empty", label: "Nobody", metadata: { plan: "é b" } },
      actor,
    );
    await restored();
    const queries = [
      {},
      { label: "acme" },
      { label: "n" },
      { status: "suspended" },
      { status: "closed" },
      { metadata: { plan: "é b" } },
      { metadata: { seats: "5" }, status: "suspended" },
    ] as const;
    for (const query of queries) {
      const lost = await listAccounts(stage.nodes, { ...query, limit: 10 });
      expect((await listAccounts(empty.nodes, { ...query, limit: 10 })).accounts).toEqual(lost.accounts);
    }
    expect((await listAccounts(empty.nodes, { label: "acme Ü", limit: 10 })).accounts).toHaveLength(1);
    const plan = { metadata: { plan: "é b" }, limit: 10 };
    expect((await listAccounts(empty.nodes, plan)).accounts).toHaveLength(2);
    for (const { metadata } of times(PARTITIONS, partitionNames))
      expect(await empty.redis.zrange(metadata, "0", "-1")).toEqual(
        await stage.redis.zrange(metadata, "0", "-1"),
      );
    await patchAccount(empty.nodes, "acme", { metadata: null }, actor);
    const members = times(PARTITIONS, (at) => empty.redis.zrange(partitionNames(at).metadata, "0", "-1"));
    expect((await Promise.all(members)).flat()).toEqual([expect.stringMatching(/ empty$/)]);
  });

  // Guarantee: customers need not register their endpoints again, nor learn another secret.
  test("has the webhook endpoints of the lost one, with their sealed secrets", async () => {
    await givenExample(stage);
    const actor = { by: "test", requestId: "" };
    const register = (url: string) =>
      registerEndpoint(stage.nodes, "acme", { url, label: "shop" }, actor, PLAIN_RULES);
    const [kept, disabled, deleted] = [await register("u1"), await register("u2"), await register("u3")];
    const change = { rules: PLAIN_RULES };
    await patchEndpoint(stage.nodes, disabled.endpoint, { status: "disabled" }, actor, change);
    await deleteEndpoint(stage.nodes, deleted.endpoint, actor);
    await rotateSecret(stage.nodes, kept.endpoint, 1000, actor, PLAIN_RULES);
    await restored();
    const endpoints = await listEndpoints(stage.nodes, "acme");
    expect(endpoints).toHaveLength(2);
    expect(await listEndpoints(empty.nodes, "acme")).toEqual(endpoints);
    const name = endpointNames(kept.endpoint.partition, kept.endpoint.endpointId).endpoint;
    expect(await empty.redis.hgetall(name)).toEqual(await stage.redis.hgetall(name));
    expect((await accountOf(empty.redis, "acme")).webhooks).toBe(
      (await accountOf(stage.redis, "acme")).webhooks,
    );
    expect((await accountOf(empty.redis, "acme")).money).toMatch(/ \+$/);
    expect((await resealSecrets(empty.nodes, actor, { ...PLAIN_RULES, isCurrent: () => false })).looked).toBe(
      2,
    );
  });

  test("has no more ledger entries than any store with an archive: the older ones are in checkpoints", async () => {
    const keys = await givenExample(stage);
    const { partition } = keys.get("acme/web")!;
    expect(await restored(0)).toMatchObject({ accounts: 2, entries: 22, balance: 640 });
    expect(await empty.redis.xlen(partitionNames(partition).ledger)).toBe(1);
    for (const accountId of ["acme", "globex"]) {
      // A checkpoint has of an entry what customers see.
      const { entries: _, ...lost } = await readAccount(stage.nodes, accountId);
      const { entries: __, ...account } = await readAccount(empty.nodes, accountId);
      expect(account).toEqual(lost);
    }
    expect(await verifyLedger(empty.nodes)).toMatchObject({
      ok: true,
      accounts: 2,
      entries: 22,
      violations: [],
    });
    expect(await empty.redis.hget("tg:meta", "layout")).toBe("1");
    const archive = connectArchive(stage.url);
    try {
      expect(await verifyArchive(empty.nodes, archive.query)).toMatchObject({ ok: true, violations: [] });
    } finally {
      archive.close();
    }
  });

  test("keeps the charge of a task that goes on in the ledger, and refunds it if the task fails", async () => {
    const key = await stage.givenKey("acme");
    const { generation } = await stage.ended(key, "bound");
    await stage.ended(key, "completed");
    expect(await restored(0)).toMatchObject({ tasks: 1, entries: 3 });
    const { requestId, key: of } = generation;
    const claim = await empty.redis.get(claimName(taskOf(generation)));
    expect(claim).toBe(claimText(requestId, of.partition));
    expect(await verifyLedger(empty.nodes)).toMatchObject({ ok: true, violations: [] });
    const connection = await openConnection(empty.url);
    try {
      const own = createStage(connection, { clock: "redis", partition: generation.key.partition });
      expect(await own.observe(generation, "failed")).toMatchObject({ refunded: 10 });
      expect((await readAccount(empty.nodes, "acme")).balance).toBe(990);
    } finally {
      await connection.close();
    }
    expect(await verifyLedger(empty.nodes)).toMatchObject({ ok: true, entries: 4, violations: [] });
  });

  // Guarantee: what passed for nothing while Redis was away keeps no customer from generating after a disaster.
  test("gives no slot to a running task that passed while Redis was away", async () => {
    const key = await stage.givenKey("acme");
    const { stage: own, generation } = await stage.ended(key);
    const passed = { ...generation, requestId: "unmetered_1", price: 0, admittedAtMs: Date.now() };
    expect(await own.bind(passed, "task_unmetered")).toBe("bound");
    const { partition } = generation.key;
    const { slots } = keyNames(partition, key.keyId);
    expect(await stage.redis.smembers(slots)).toEqual([]);
    expect((await restored()).tasks).toBe(1);
    expect(await empty.redis.smembers(slots)).toEqual([]);
    const record = await readRequest(empty.redis, requestName(partition, "unmetered_1"));
    expect(record).toMatchObject({ state: "bound", price: "0", unmetered: "1" });
    expect(await verifyLedger(empty.nodes)).toMatchObject({ ok: true, violations: [] });
  });

  // Guarantee: what has ended is not polled and refunded once more, and what was never sent is no request.
  test("a task that failed and was not refunded has ended, and what was never sent does not count", async () => {
    const key = await stage.givenKey("acme");
    const { stage: own, generation } = await stage.ended(key, "bound");
    await own.observe(generation, "failed", { refundFailed: false });
    const refunded = await stage.ended(key, "failed");
    const unsent = own.request(generation.key);
    await own.admit(unsent);
    await own.void(unsent, "unsent");
    await (await stage.copier()).copy();
    // As if its entries had been copied, and its record not yet.
    await stage.database.query(
      `DELETE FROM tollgate.request_rows WHERE request_id = '${refunded.requestId}'`,
    );
    expect((await restored()).tasks).toBe(0);
    const account = await readAccount(stage.nodes, "acme");
    expect(account).toMatchObject({ totalRequests: 2, balance: 990 });
    expect(await readAccount(empty.nodes, "acme")).toEqual(account);
  });

  // Guarantee: nobody gets back what a task cost that ended long ago.
  test.each([
    ["collected before there was an archive", "9 days", "1 day", 0],
    ["collected while the archive was given up", "9.5 days", "90 days", 0],
    ["running when there was an archive", "6 days", "1 day", 1],
    ["running at the end of its time", "2 days", "90 days", 1],
  ])("a charge of a request that was %s", async (_, charged, began, tasks) => {
    const key = await stage.givenKey("acme");
    const { requestId, partition } = await stage.ended(key, "bound");
    // As COLLECT leaves it.
    await stage.redis.del(requestName(partition, requestId));
    await (await stage.copier()).copy();
    await stage.database.query(
      `UPDATE tollgate.ledger_rows SET at = at - interval '${charged}' WHERE type = 'consume'`,
    );
    await stage.database.query(`UPDATE tollgate.archive SET since = since - interval '${began}'`);
    expect((await restored()).tasks).toBe(tasks);
    expect(await empty.redis.zcard(partitionNames(partition).due)).toBe(tasks);
  });

  // Guarantee: a disaster is no way out of what operators have set.
  test("an account keeps its status and its limits, and its running tasks have their slots", async () => {
    const key = await stage.givenKey("acme");
    await stage.ended(key, "bound");
    const barred = { status: "suspended", limits: { max_concurrent: 1 } } as const;
    await patchAccount(stage.nodes, "acme", barred, cliActor("ann"));
    expect(await restored()).toMatchObject({ tasks: 1 });
    const { status, limits } = await readAccountObject(empty.nodes, "acme");
    expect({ status, limits }).toMatchObject({ status: "suspended", limits: { max_concurrent: 1 } });
    expect(await verifyLedger(empty.nodes)).toMatchObject({ ok: true, violations: [] });
    const connection = await openConnection(empty.url);
    try {
      const own = createStage(connection, { clock: "redis", partition: partitionOf("acme", PARTITIONS) });
      const ref = keyRef(key.keyId, "acme", own.partition);
      expect(await own.admit(own.request(ref))).toMatchObject({ outcome: "account_suspended" });
      await patchAccount(empty.nodes, "acme", { status: "active" }, cliActor("ann"));
      expect(await own.admit(own.request(ref))).toMatchObject({
        outcome: "concurrency_limited",
        limitOf: "account",
      });
    } finally {
      await connection.close();
    }
  });

  // Guarantee: a cap holds through a disaster; keys that replaced each other have spent what all of them had.
  test("keys have spent what they had this month, without what was refunded", async () => {
    const [key, idle] = [await stage.givenKey("acme"), await stage.givenKey("acme")];
    await stage.ended(key, "completed");
    await stage.ended(key, "bound");
    await stage.ended(key, "failed");
    await (await stage.expired(key)).reclaim();
    const line = [key];
    for (const _ of times(2, () => undefined)) {
      const old = await findKey(stage.nodes, line.at(-1)!.keyId);
      line.push(await rotateKey(stage.nodes, old, 3_600_000, cliActor()));
      await stage.ended(line.at(-1)!, "completed");
    }
    const spentOf = async (nodes: RedisNodes) =>
      Promise.all([...line, idle].map(async ({ keyId }) => (await findKey(nodes, keyId)).spentThisMonth));
    expect(await spentOf(stage.nodes)).toEqual([50, 50, 50, 0]);
    await restored();
    expect(await spentOf(empty.nodes)).toEqual([50, 50, 50, 0]);
    expect(await verifyLedger(empty.nodes)).toMatchObject({ ok: true, violations: [] });
  });

  test("keys have not spent this month what they were charged in an earlier one", async () => {
    const key = await stage.givenKey("acme");
    const { requestId } = await stage.ended(key);
    await stage.ended(key);
    await (await stage.copier()).copy();
    await stage.database.query(
      "UPDATE tollgate.ledger_rows SET at = at - interval '40 days' WHERE request_id = $1",
      [requestId],
    );
    await restored();
    expect((await findKey(empty.nodes, key.keyId)).spentThisMonth).toBe(10);
  });

  // Guarantee: nobody loses credits because their account had not been copied yet.
  test("has an account of which the archive knows its entries alone, as old as the first of them", async () => {
    await givenExample(stage);
    await (await stage.copier()).copy();
    await stage.database.query("DELETE FROM tollgate.account_versions WHERE account_id = 'acme'");
    expect(await restored()).toMatchObject({ accounts: 2, balance: 640 });
    expect((await readAccount(empty.nodes, "acme")).balance).toBe(570);
    const { created_at } = await accountOf(empty.redis, "acme");
    expect(created_at).toBe(String(Date.parse("2025-09-03T12:00:00Z")));
    expect(await verifyLedger(empty.nodes)).toMatchObject({ ok: true, violations: [] });
  });

  test("finds the entry of a reference that more accounts share than are listed under it", async () => {
    const accountIds = times(100, (at) => `acc_${at}`)
      .filter((accountId) => partitionOf(accountId, PARTITIONS) === 0)
      .slice(0, REFERENCE_ACCOUNTS_MAX + 1);
    for (const accountId of accountIds) await stage.grant(await stage.givenKey(accountId), "welcome");
    await restored();
    const placesIn = (redis: Redis) =>
      Promise.all(accountIds.map((accountId) => entryIdOf(redis, 0, accountId, "welcome")));
    const places = await placesIn(stage.redis);
    expect(new Set(places).size).toBe(REFERENCE_ACCOUNTS_MAX + 1);
    expect(await placesIn(empty.redis)).toEqual(places);
    // In a large ledger they are pages apart.
    await empty.redis.flushall();
    for (const entry of await stage.entries()) await restoreReferences(empty.nodes, [entry]);
    expect(await placesIn(empty.redis)).toEqual(places);
  });

  // Guarantee: who got back what a wrong price was too much does not get it again after a disaster.
  test("neither corrects nor refunds a charge that was corrected before", async () => {
    const { requestId } = await stage.ended(await stage.givenKey("acme"));
    const correct = (nodes: RedisNodes, reference: string) => {
      const period = { fromMs: Date.now() - DAY_MS, toMs: Date.now() + DAY_MS };
      const prices = [{ endpoint: ENDPOINT, charged: 10, correct: 4 }];
      const terms = { ...period, prices, reference, reason: "wrong price", isDryRun: false };
      return correctCharges(nodes, terms, cliActor(), archiveLookUps(stage.url));
    };
    expect(await correct(stage.nodes, "oops")).toMatchObject({ corrected: 1, credits: 6 });
    await restored();
    expect(await correct(empty.nodes, "other")).toMatchObject({ corrected: 0, refunded: 1 });
    const terms = { reason: "black", reference: "f-1" };
    const refund = refundTask(empty.nodes, requestId, terms, cliActor(), archiveLookUps(stage.url));
    await expect(refund).rejects.toMatchObject({ problem: "already_refunded" });
    expect((await readAccount(empty.nodes, "acme")).balance).toBe(996);
  });

  test("takes a grant once: a reference of before counts", async () => {
    await givenExample(stage);
    await restored();
    const grant = ["credits", "grant", "acme", "200", "--reference", "order-1040", "--json"];
    const again = await runHere(grant, { REDIS_URL: empty.url });
    expect(JSON.parse(again.stdout)).toMatchObject({ outcome: "duplicate", balance: 570 });
  });

  test("customers' keys work on a gateway, and tasks that were running go on to their end", async () => {
    const key = await stage.givenKey("acme");
    const other = await stage.givenKey("acme");
    const revoked = await stage.givenKey("globex");
    const env = { REDIS_URL: `redis://127.0.0.1:${stage.redis.options.port}` };
    expect((await runHere(["keys", "revoke", revoked.keyId], env)).code).toBe(0);
    const running = await stage.ended(key, "bound");
    await stage.ended(key, "completed");
    const result = await restored();
    expect(result).toMatchObject({ accounts: 2, keys: 3, tasks: 1 });
    expect(await verifyLedger(empty.nodes)).toMatchObject({ ok: true, violations: [] });
    const gateway = await givenGateway({ redisUrl: empty.url });
    try {
      await ready(gateway);
      expect((await generate(gateway, key)).status).toBe(200);
      expect((await generate(gateway, other)).status).toBe(200);
      expect((await generate(gateway, revoked)).status).toBe(401);
      const { redis } = empty;
      const record = `tg:{p0${running.partition}}:request:${running.requestId}`;
      // The sandbox upstream does not know the task, so it ends as gone, and is refunded.
      await until(async () => (await readRequest(redis, record)).state === "bound", "the task to be there");
      expect(await redis.zscore(partitionNames(running.partition).due, running.requestId)).not.toBeNull();
    } finally {
      await gateway.stop();
    }
    expect(await verifyLedger(empty.nodes)).toMatchObject({ ok: true, violations: [] });
  });

  test("goes on with the same archive, without a fork and without anything twice", async () => {
    await givenExample(stage);
    await restored();
    const before = await stage.archived();
    expect(
      (
        await runHere(["credits", "grant", "acme", "7", "--reference", "order-2000"], {
          REDIS_URL: empty.url,
        })
      ).code,
    ).toBe(0);
    const copier = await stage.copier({ redisUrl: empty.url });
    await copier.copy();
    expect(await stage.archived()).toHaveLength(before.length + 1);
    expect(await stage.database.query("SELECT * FROM tollgate.ledger_forks")).toEqual([]);
  });

  test("a charge that a journal still has, and that the archive has, is not made twice", async () => {
    const key = await stage.givenKey("acme");
    const { generation } = await stage.ended(key, "completed");
    await restored();
    const connection = await openConnection(empty.url);
    const own = createStage(connection, { clock: "redis", partition: generation.key.partition });
    try {
      expect(await own.bind(generation)).toBe("forgotten");
      const later = own.request(generation.key);
      await own.admit(later);
      expect(await own.bind(later)).toBe("bound");
    } finally {
      await connection.close();
    }
    expect(await verifyLedger(empty.nodes)).toMatchObject({ ok: true, entries: 3 });
  });
});

// Guarantee: no charge that a journal still has is made twice, though the clock was set back between an account's entries.
test("an account's charges up to its latest entry are refused, and that need not be its last one", async () => {
  await givenExample(stage);
  await (await stage.copier()).copy();
  const latest = "2026-02-03T04:05:06Z";
  await stage.database.query(
    `UPDATE tollgate.ledger_rows SET at = '${latest}' WHERE reference = 'order-1040'`,
  );
  await restored();
  expect((await accountOf(empty.redis, "acme")).collected_until).toBe(String(Date.parse(latest)));
});

test("a ledger with a gap is refused, also where the balances say nothing of it", async () => {
  await givenExample(stage);
  await (await stage.copier()).copy();
  await stage.database.query(
    `DELETE FROM tollgate.ledger_rows WHERE account_id = 'acme' AND request_id = (
      SELECT request_id FROM tollgate.ledger_rows WHERE account_id = 'acme' AND reason = 'refund' LIMIT 1)`,
  );
  await expect(restored()).rejects.toThrow("does not add up");
});

/** All entries of a ledger, each with its fields by name. */
async function fieldsOf(
  redis: Redis,
  ledger: string,
): Promise<[id: string, fields: Record<string, string>][]> {
  const entries = await redis.xrange(ledger, "-", "+");
  return entries.map(([id, fields]) => [id, entryFields(fields)]);
}

describe("tollgate archive restore", () => {
  test("says what it has written and from when on things may be missing", async () => {
    await givenExample(stage);
    await (await stage.copier()).copy();
    const env = await environment();
    const { code, stdout } = await runHere(["archive", "restore"], env);
    expect(code).toBe(0);
    expect(stdout).toContain(
      "Restored: 2 accounts with 640 credits, 3 keys, 22 ledger entries, 0 running tasks.",
    );
    expect(stdout).toMatch(
      /Gateways copied up to 20\d\d-\S+Z; the newest entry is of 2025-11-06T12:00:13.000Z./,
    );
  });

  test("refuses a Redis that is not empty, and changes nothing in it", async () => {
    await givenExample(stage);
    await (await stage.copier()).copy();
    await empty.redis.set("something", "else");
    const { code, stderr } = await runHere(["archive", "restore"], await environment());
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: expect.stringContaining("not empty (1 names), and nothing is changed"),
    });
    expect(await empty.redis.keys("*")).toEqual(["something"]);
  });

  test("refuses a Redis that may evict money, and changes nothing in it", async () => {
    await givenExample(stage);
    await (await stage.copier()).copy();
    await empty.redis.config("SET", "maxmemory-policy", "allkeys-lru");
    const { stderr } = await runHere(["archive", "restore"], await environment());
    expect(stderr).toContain("maxmemory-policy allkeys-lru");
    expect(await empty.redis.dbsize()).toBe(0);
  });

  test("refuses an archive that belongs to no store", async () => {
    const { stderr } = await runHere(["archive", "restore"], await environment());
    expect(stderr).toContain("it belongs to no store yet");
    expect(await empty.redis.dbsize()).toBe(0);
  });

  test("refuses another number of partitions", async () => {
    await givenExample(stage);
    await (await stage.copier()).copy();
    const { stderr } = await runHere(["archive", "restore"], await environment(7));
    expect(stderr).toMatch(/had not 7 partitions, and nothing is changed; set store.partitions/);
    expect(await empty.redis.dbsize()).toBe(0);
  });

  test("an interrupted restore is used by nobody, and is no empty Redis", async () => {
    await givenExample(stage);
    await (await stage.copier()).copy();
    await stage.database.query(
      "UPDATE tollgate.ledger_rows SET balance_after = 1 WHERE reference = 'order-1040'",
    );
    const env = await environment();
    const first = await runHere(["archive", "restore"], env);
    expect(first.stderr).toContain("does not add up");
    const verify = await runHere(["ledger", "verify"], env);
    expect(verify).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("being restored from the archive"),
    });
    const again = await runHere(["archive", "restore"], env);
    expect(again.stderr).toContain("a restore that was interrupted");
  });
});

/** Of the command: the archive, the empty Redis, and a configuration with that many partitions. */
async function environment(partitions = PARTITIONS): Promise<Record<string, string>> {
  const file = join(empty.dir, "tollgate.yaml");
  await writeFile(file, JSON.stringify({ store: { partitions } }));
  return { ARCHIVE_URL: stage.url, REDIS_URL: empty.url, TOLLGATE_CONFIG: file };
}
