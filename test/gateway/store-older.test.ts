import { cp, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { grantCredits } from "../../src/store/accounts.ts";
import { readMarks } from "../../src/store/marks-file.ts";
import { META, partitionNames, partitionOf } from "../../src/store/names.ts";
import { runHere } from "../support/cli.ts";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
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
  gateway.redis.on("error", () => undefined).disconnect();
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
  return Number(await redis.client.hget(ledger, "balance"));
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
    return [...readMarks(folder).values()].some(({ marks }) => marks.get(ledger)?.id === entry);
  }, "the mark");

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
  await grantCredits(redis.client, granted.accountId, 500, "invoice 7");
  await learned(granted.accountId, await lastEntry(granted.accountId));
  expect((await generate(gateway, charged)).status).toBe(200);
  expect(await balance(charged.accountId)).toBe(1000 - PRICE);

  await restore(copy);
  await refused(gateway);
  expect(await balance(charged.accountId)).toBe(1000);
  expect(await readyz(gateway)).toBe(503);
  expect((await generate(gateway, charged)).status).toBe(503);
  expect(await gateway.metric("tollgate_store_older ")).toEqual(["tollgate_store_older 1"]);
  // One that has never met this store learns it from the store itself.
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
  expect(JSON.parse((await tollgate("store", "show")).stdout)).toMatchObject({ ok: true, missing: [] });
  const again = await tollgate("store", "accept");
  expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining("nothing to accept") });
  await rm(copy, { recursive: true });
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
  expect(await redis.client.hget(META, "epoch")).toBeNull();
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
  expect((await generate(gateway, key)).status).toBe(200);
  await redis.kill();
  await redis.startAgain();
  await ready(gateway);
  expect(gateway.logs.join("")).not.toContain("older than what it confirmed");
  expect(await redis.client.hget(META, "older")).toBeNull();
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
