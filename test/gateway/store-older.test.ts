import { cp, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readLastConfirmed } from "../../src/durability/losses/last-confirmed.ts";
import { createOperatorSession } from "../../src/operations/access/operator-session.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { cliActor } from "../../src/records/actor.ts";
import { META, partitionNames, partitionOf } from "../../src/records/names.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { accountIn } from "../support/account-money.ts";
import { runHere } from "../support/cli.ts";
import { expectStatus, givenGateway, type TestGateway } from "../support/gateway.ts";
import {
  generate,
  givenKey,
  givenRedis,
  PRICE,
  ready,
  readyz,
  type TestRedis,
} from "../support/store-stage.ts";
import { until } from "../support/until.ts";

let redis: TestRedis;
let folder: string;
let gateways: TestGateway[];
beforeEach(async () => {
  redis = await givenRedis();
  folder = await mkdtemp(join(tmpdir(), "tollgate-older-"));
  gateways = [];
});
afterEach(async () => {
  for (const gateway of gateways) await gateway.stop();
  await redis.stop();
  await rm(folder, { recursive: true, force: true });
});

async function givenGatewayOn(journal: string): Promise<TestGateway> {
  const gateway = await givenGateway({ redisUrl: redis.url, config: { store: { journal } } });
  gateway.redis.disconnect();
  gateways.push(gateway);
  return gateway;
}

/** A copy of the append-only file as it is now. */
async function backup(): Promise<string> {
  await redis.end();
  const copy = await mkdtemp(join(tmpdir(), "tollgate-backup-"));
  await cp(join(redis.dir, "appendonlydir"), copy, { recursive: true });
  await redis.startAgain();
  return copy;
}

/** Redis comes back as it was at the backup, with the same id. */
async function restore(copy: string): Promise<void> {
  await redis.end();
  await rm(join(redis.dir, "appendonlydir"), { recursive: true });
  await cp(copy, join(redis.dir, "appendonlydir"), { recursive: true });
  await redis.startAgain();
}

const balance = async (accountId: string): Promise<number> => {
  const ledger = `tg:{p${String(partitionOf(accountId, 64)).padStart(2, "0")}}:account:${accountId}`;
  return Number((await accountIn(redis.client, ledger)).balance);
};

const refused = (gateway: TestGateway): Promise<void> =>
  until(() => gateway.logs.some((line) => line.includes("older than what it confirmed")), "the refusal");

/** Runs a command of the line against this Redis and journal folder. */
async function tollgate(...words: string[]) {
  const file = join(folder, "tollgate.yaml");
  await writeFile(file, `store:\n  journal: ${folder}\n`);
  return runHere([...words, "--json"], { REDIS_URL: redis.url, TOLLGATE_CONFIG: file });
}

/** Until the gateway on this folder has learned of the account's last entry. */
const learned = (accountId: string, entry: string): Promise<void> =>
  until(async () => {
    const { ledger } = partitionNames(partitionOf(accountId, 64));
    return [...readLastConfirmed(folder).values()].some(({ entries }) => entries.get(ledger)?.id === entry);
  }, "the last confirmed entry");

const lastEntry = async (accountId: string): Promise<string> => {
  const { ledger } = partitionNames(partitionOf(accountId, 64));
  return (await redis.client.xrevrange(ledger, "+", "-", "COUNT", 1))[0]![0];
};

// Guarantee: a store that has forgotten what it confirmed is not served from until an operator accepts it.
test("a Redis that comes back older is refused by every gateway, named, accepted, and sent the charges that are held", async () => {
  const gateway = await givenGatewayOn(folder);
  await ready(gateway);
  const granted = await givenKey(redis.client);
  const charged = await givenKey(redis.client);
  const copy = await backup();
  await ready(gateway);
  expect((await tollgate("store", "show")).code).toBe(0);
  await grantCredits(oneNode(redis.client), granted.accountId, 500, "invoice 7", cliActor());
  await learned(granted.accountId, await lastEntry(granted.accountId));
  expectStatus(await generate(gateway, charged), 200);
  expect(await balance(charged.accountId)).toBe(1000 - PRICE);

  await restore(copy);
  await refused(gateway);
  expect(await balance(charged.accountId)).toBe(1000);
  expect(await readyz(gateway)).toBe(503);
  expectStatus(await generate(gateway, charged), 503);
  expect(await gateway.metric("tollgate_store_older ")).toEqual(["tollgate_store_older 1"]);
  const session = createOperatorSession({ redisUrl: redis.url, partitions: 64, allowNoPersistence: true });
  const granting = session.write((nodes) =>
    grantCredits(nodes, charged.accountId, 5, "invoice 9", cliActor()),
  );
  await expect(granting, "an action of the console").rejects.toThrow("tollgate store accept");
  session.close();
  // A gateway that has never met this store learns it from the store itself.
  const stranger = await givenGatewayOn(await mkdtemp(join(tmpdir(), "tollgate-stranger-")));
  await refused(stranger);
  expect(await readyz(stranger)).toBe(503);

  const doctor = await tollgate("doctor");
  expect(JSON.parse(doctor.stdout).checks).toContainEqual(
    expect.objectContaining({ name: "history", ok: false }),
  );
  const accepted = await tollgate("store", "accept");
  expect(accepted.code).toBe(0);
  expect(JSON.parse(accepted.stdout)).toMatchObject({
    accepted: true,
    missing: expect.arrayContaining([
      expect.objectContaining({
        kind: "grant",
        account_id: granted.accountId,
        credits: 500,
        reference: "invoice 7",
      }),
    ]),
    sent_again: [{ account_id: charged.accountId, credits: PRICE }],
  });
  await ready(gateway);
  await ready(stranger);
  expect(await balance(charged.accountId)).toBe(1000 - PRICE);
  expect(await balance(granted.accountId)).toBe(1000);
  expect(await gateway.metric("tollgate_store_older ")).toEqual(["tollgate_store_older 0"]);
  // Charged once, also where it is counted.
  const consumed = `tollgate_credits_consumed_total ${PRICE}`;
  expect(await gateway.metric("tollgate_credits_consumed_total ")).toEqual([consumed]);
  expect(JSON.parse((await tollgate("store", "show")).stdout)).toMatchObject({ ok: true, missing: [] });
  const again = await tollgate("store", "accept");
  expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining("nothing to accept") });
  await rm(copy, { recursive: true });
});

/** Findings of `ledger verify`. */
const verified = async (): Promise<{ invariant: string }[]> =>
  (JSON.parse((await tollgate("ledger", "verify")).stdout) as { violations: { invariant: string }[] })
    .violations;

/** Output of `store show` or `store accept`. */
interface Listed {
  lost: {
    at: string;
    kind: string;
    account_id: string;
    credits: number;
    reference: string;
    request_id?: string;
    sent_again: boolean;
  }[];
  sent_again: { request_id: string }[];
  known_until: string;
  unknown_before?: string;
}

// Guarantee: an operator is told of each charge and grant that is known to be lost.
test("each lost entry is listed: what is sent again apart from what an operator has to repeat", async () => {
  const gateway = await givenGatewayOn(folder);
  await ready(gateway);
  const { accountId, key } = await givenKey(redis.client);
  await learned(accountId, await lastEntry(accountId));
  const copy = await backup();
  await ready(gateway);
  for (const reference of ["invoice 1", "invoice 2", "invoice 3"])
    await grantCredits(oneNode(redis.client), accountId, 50, reference, cliActor());
  // Of a gateway that is no more.
  const { ledger } = partitionNames(partitionOf(accountId, 64));
  const elsewhere = [
    "account_id",
    accountId,
    "type",
    "consume",
    "amount",
    "-7",
    "request_id",
    "req_elsewhere",
  ];
  await redis.client.xadd(ledger, "*", ...elsewhere);
  expectStatus(await generate(gateway, { key }), 200);
  await learned(accountId, await lastEntry(accountId));

  await restore(copy);
  await refused(gateway);
  const shown = await tollgate("store", "show");
  const { lost, sent_again, ...limits } = JSON.parse(shown.stdout) as Listed;
  expect(lost.filter(({ kind }) => kind === "grant").map(({ reference }) => reference)).toEqual([
    "invoice 1",
    "invoice 2",
    "invoice 3",
  ]);
  expect(lost.filter(({ kind }) => kind === "charge")).toEqual([
    expect.objectContaining({
      request_id: "req_elsewhere",
      account_id: accountId,
      credits: 7,
      sent_again: false,
    }),
    expect.objectContaining({ request_id: sent_again[0]!.request_id, credits: PRICE, sent_again: true }),
  ]);
  expect(limits).toMatchObject({ ok: false, known_until: lost.at(-1)!.at });
  expect(limits).not.toHaveProperty("unknown_before");
  const forGood = lost.filter(({ kind, sent_again }) => kind !== "refund" && !sent_again);
  expect(await verified()).toEqual(
    forGood.map(({ account_id, request_id }) =>
      expect.objectContaining({
        invariant: "lost",
        account_id,
        ...(request_id === undefined ? {} : { request_id }),
      }),
    ),
  );
  const accepted = await tollgate("store", "accept");
  expect((JSON.parse(accepted.stdout) as Listed).lost).toEqual(lost);
  await ready(gateway);
  expect(JSON.parse((await tollgate("store", "show")).stdout)).toMatchObject({ ok: true, lost: [] });
  expect(await verified()).toEqual([]);
  await rm(copy, { recursive: true });
});

/** Names that do not expire: those that probes write come and go. */
async function lastingNames(): Promise<string[]> {
  const names = (await redis.client.keys("*")).sort();
  const expiries = await Promise.all(names.map((name) => redis.client.pexpiretime(name)));
  return names.filter((_, at) => expiries[at] === -1);
}

// Guarantee: nothing is written to a store that may yet be replaced by a newer copy.
test("nothing is granted, made, changed or ended in an older store until it is accepted", async () => {
  const gateway = await givenGatewayOn(folder);
  await ready(gateway);
  const { accountId } = await givenKey(redis.client);
  await learned(accountId, await lastEntry(accountId));
  await gateways.pop()!.stop();
  const { ledger } = partitionNames(partitionOf(accountId, 64));
  await redis.client.xtrim(ledger, "MAXLEN", 0);
  const { stdout } = await tollgate("keys", "list");
  const keyId = JSON.parse(stdout).keys[0].key_id;
  const before = await lastingNames();
  for (const words of [
    ["credits", "grant", accountId, "5", "--reference", "invoice 8"],
    ["keys", "create"],
    ["keys", "import", "sk_of_another_system"],
    ["keys", "set", keyId, "--rate-limit", "7"],
    ["keys", "rotate", keyId],
    ["keys", "revoke", keyId],
    ["tasks", "release", "req_any"],
  ]) {
    const refusal = { code: 1, stderr: expect.stringContaining("tollgate store accept") };
    expect(await tollgate(...words), words.join(" ")).toMatchObject(refusal);
  }
  expect(await lastingNames()).toEqual(before);
  expect((await tollgate("credits", "show", accountId)).code).toBe(0);
  expect((await tollgate("store", "accept")).code).toBe(0);
  expect((await tollgate("credits", "grant", accountId, "5", "--reference", "invoice 8")).code).toBe(0);
});

test("a gateway that starts remembers what the store confirmed to the one before, also after an acceptance that is lost too", async () => {
  const first = await givenGatewayOn(folder);
  await ready(first);
  const copy = await backup();
  await ready(first);
  const { accountId } = await givenKey(redis.client);
  await learned(accountId, await lastEntry(accountId));
  await gateways.pop()!.stop();

  await restore(copy);
  const second = await givenGatewayOn(folder);
  await refused(second);
  expect((await tollgate("store", "accept")).code).toBe(0);
  await ready(second);
  await gateways.pop()!.stop();

  await restore(copy);
  expect(await redis.client.hget(META, "accepted_at")).toBeNull();
  const third = await givenGatewayOn(folder);
  await refused(third);
  expect((await tollgate("store", "accept")).code).toBe(0);
  await ready(third);
  expect((await readdir(folder)).filter((name) => name.endsWith(".tmp"))).toEqual([]);
  await rm(copy, { recursive: true });
});

test("a Redis that is killed and comes back with all it confirmed is used at once", async () => {
  const gateway = await givenGatewayOn(folder);
  await ready(gateway);
  const key = await givenKey(redis.client);
  expectStatus(await generate(gateway, key), 200);
  await redis.kill();
  await redis.startAgain();
  await ready(gateway);
  expect(gateway.logs.join("")).not.toContain("older than what it confirmed");
  expect(await redis.client.hget(META, "loss")).toBeNull();
});

// A proxy, or a managed Redis, may put another server behind a connection that stays open.
test("a Redis that loses its ledger behind an open connection is refused within a moment", async () => {
  const gateway = await givenGatewayOn(folder);
  await ready(gateway);
  const { accountId } = await givenKey(redis.client);
  await learned(accountId, await lastEntry(accountId));
  await redis.client.xtrim(partitionNames(partitionOf(accountId, 64)).ledger, "MAXLEN", 0);
  await refused(gateway);
  expect(await readyz(gateway)).toBe(503);
});
