import { rm } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { defaultConfig } from "../../src/config/config.ts";
import { toConfig } from "../../src/config/runtime-config.ts";
import { createTierUse } from "../../src/operator/tier-use.ts";
import { changeKey } from "../../src/store/change-key.ts";
import { issueKey } from "../../src/store/issue-key.ts";
import { findKey } from "../../src/store/keys.ts";
import { keyNames, keyRef, partitionNames, partitionOf } from "../../src/store/names.ts";
import { oneNode, type RedisNodes } from "../../src/store/nodes.ts";
import { revokeKey } from "../../src/store/revoke-key.ts";
import { rotateKey } from "../../src/store/rotate-key.ts";
import type { Run } from "../../src/store/script-definition.ts";
import { createScriptRunner } from "../../src/store/script-runner.ts";
import { change } from "../../src/store/scripts/change.ts";
import { issue } from "../../src/store/scripts/issue.ts";
import { tally } from "../../src/store/scripts/tally.ts";
import {
  createTierCounter,
  readTierCounts,
  type TierCounter,
  type TierCounts,
} from "../../src/store/tier-counts.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";
import { openConnection, randomId, type TestConnection, times } from "../support/store.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { type Mutant, plant, TIER_MUTANTS } from "./mutants.ts";

/** Keys by tier are those of a whole store: one that no other test writes to. */
let redis: TestRedis;
let nodes: RedisNodes;
let connection: TestConnection;
let counter: TierCounter;
beforeAll(async () => {
  redis = await givenRedis();
  nodes = oneNode(redis.client);
  connection = await openConnection(redis.url);
  counter = createTierCounter(connection);
});
afterAll(async () => {
  await connection.close();
  await redis.stop();
});

const counted = async () => (await counter.sum()).keys;
const never = (): boolean => false;

// Guarantee: how many keys use a tier is exact after each way in which a key comes, changes and goes.
test("keys are counted as they are made, moved to another tier, rotated and revoked", async () => {
  const before = await counted();
  expect(before).toEqual({});
  const keys = await Promise.all(
    times(3, () => issueKey(nodes, { tier: "gold", accountId: randomId("acc"), credits: 5 })),
  );
  const [first, second, third] = await Promise.all(keys.map(({ keyId }) => findKey(nodes, keyId)));
  expect(await counted()).toEqual({ gold: 3 });
  await changeKey(nodes, first!, { tier: "silver" });
  await changeKey(nodes, first!, { tier: "silver", rateLimit: 5 });
  await changeKey(nodes, second!, { rateLimit: 5 });
  expect(await counted()).toEqual({ gold: 2, silver: 1 });
  const { keyId } = await rotateKey(nodes, second!, 60_000);
  expect(await counted(), "the old key is good until the overlap ends").toEqual({ gold: 3, silver: 1 });
  for (const key of [second!, second!, third!, await findKey(nodes, keyId)]) await revokeKey(nodes, key);
  expect(await counted()).toEqual({ silver: 1 });
  await revokeKey(nodes, first!);
  expect(await counted()).toEqual({});
});

test("keys of an earlier release are counted once, however often they are gone through, and one gateway does it", async () => {
  const accountId = randomId("acc");
  const partition = partitionOf(accountId, 64);
  const { tiers } = partitionNames(partition);
  await Promise.all(times(7, () => issueKey(nodes, { tier: "old", accountId })));
  const gone = await issueKey(nodes, { tier: "old", accountId });
  await revokeKey(nodes, await findKey(nodes, gone.keyId));
  // As an earlier release leaves it: no key says where it is counted.
  const ids = await redis.client.zrange(
    `${partitionNames(partition).accounts.replace("accounts", "keys")}:${accountId}`,
    "0",
    "-1",
  );
  expect(ids).toHaveLength(8);
  for (const id of ids) await redis.client.hdel(keyNames(partition, id).key, "counted");
  await redis.client.del(tiers);
  const before = await counter.sum();
  expect(before.keys).toEqual({});
  expect(before.uncounted, "no partition was gone through").toBe(64);

  await redis.client.set("tg:tally-turn", "taken");
  await counter.countKeys(never);
  expect((await counter.sum()).uncounted, "another gateway counts").toBe(64);
  await redis.client.del("tg:tally-turn");
  await counter.countKeys(never);
  expect(await counter.sum()).toEqual({ keys: { old: 7 }, uncounted: 0, unread: 0 });
  expect(await readTierCounts(nodes)).toEqual({ keys: { old: 7 }, uncounted: 0, unread: 0 });

  // What an earlier release changed since is found by the next walk, a day later.
  const [one = ""] = ids.filter((id) => id !== gone.keyId);
  await redis.client.hset(keyNames(partition, one).key, "tier", "older");
  await redis.client.hset(tiers, "#counted_at", Date.now() - 23 * 3_600_000);
  await counter.sum();
  await counter.countKeys(never);
  expect(await counted()).toEqual({ old: 7 });
  await redis.client.hset(tiers, "#counted_at", Date.now() - 25 * 3_600_000);
  await counter.sum();
  await counter.countKeys(never);
  expect(await counted()).toEqual({ old: 6, older: 1 });
});

test("an account with many keys is counted in pieces", async () => {
  const accountId = randomId("acc");
  await Promise.all(times(250, () => issueKey(nodes, { tier: "many", accountId })));
  const { tiers } = partitionNames(partitionOf(accountId, 64));
  await redis.client.hset(tiers, "many", 1, "#counted_at", 1);
  for (const id of await redis.client.zrange(tiers.replace("tiers", `keys:${accountId}`), "0", "-1"))
    await redis.client.hdel(keyNames(partitionOf(accountId, 64), id).key, "counted");
  await redis.client.hdel(tiers, "many");
  await counter.sum();
  await counter.countKeys(never);
  expect((await counted()).many).toBe(250);
});

test("reading the counts of a store that was never used writes nothing", async () => {
  const fresh = await givenRedis();
  try {
    expect(await readTierCounts(oneNode(fresh.client))).toEqual({ keys: {}, uncounted: 0, unread: 0 });
    expect(await fresh.client.dbsize()).toBe(0);
  } finally {
    await fresh.stop();
  }
});

/** A counter that says what a test wants. */
const saying = (sum: Awaited<ReturnType<TierCounter["sum"]>> | undefined): TierCounter => ({
  ...counter,
  turn: async () => false,
  latest: async () => sum,
});

function givenUse(
  sum: Parameters<typeof saying>[0],
  tiers: Record<string, object> = { standard: {} },
  more: Partial<TierCounter> = {},
) {
  const lines: Record<string, unknown>[] = [];
  const log = createLogger("debug", { write: (line) => void lines.push(JSON.parse(line)) });
  const { settings, extras } = defaultConfig();
  const limits = { rate_limit: 1, max_concurrent: 1, daily_limit: 1 };
  const configWith = (named: Record<string, object>) =>
    toConfig(
      {
        ...settings,
        tiers: Object.fromEntries(
          Object.entries(named).map(([name, own]) => [name, { ...limits, ...own }]),
        ) as typeof settings.tiers,
      },
      extras,
    );
  const metrics = createMetrics();
  const config = configWith(tiers);
  const counterOf = { ...saying(sum), ...more };
  const use = createTierUse({
    counter: counterOf,
    config: () => config,
    file: "/etc/tollgate.yaml",
    countsKeys: false,
    metrics,
    log,
  });
  return { use, lines, configWith, config, metrics };
}

const GOLD = { standard: {}, gold: {} };

// Guarantee: a tier that keys still use cannot vanish silently.
test("a configuration that drops or renames a tier in use is refused, one that keeps it as deprecated is not", async () => {
  const { use, configWith, config } = givenUse(
    { keys: { gold: 12, standard: 3 }, uncounted: 0, unread: 0 },
    GOLD,
  );
  await use.look();
  expect(use.refuses(configWith({ standard: {} }), config)).toMatchObject([
    {
      file: "/etc/tollgate.yaml",
      path: "tiers.gold",
      message: expect.stringContaining("12 keys use tier gold"),
    },
  ]);
  const [renamed] = use.refuses(configWith({ standard: {}, golt: {} }), config);
  expect(renamed?.message).toContain("is golt a slip of it?");
  expect(use.refuses(configWith({ standard: {}, gold: { deprecated: true } }), config)).toEqual([]);
  expect(use.refuses(configWith({ ...GOLD, silver: {} }), config)).toEqual([]);
});

test("a tier that was missing before is no reason to refuse another change", async () => {
  const { use, configWith, config } = givenUse({ keys: { gold: 12 }, uncounted: 0, unread: 0 });
  await use.look();
  expect(use.refuses(configWith({ standard: {}, silver: {} }), config)).toEqual([]);
});

test.each([
  ["nothing was read yet", undefined, {}],
  ["a primary is away", { keys: {}, uncounted: 0, unread: 21 }, { unread_partitions: 21 }],
  ["keys are not counted yet", { keys: {}, uncounted: 3, unread: 0 }, { uncounted_partitions: 3 }],
])("what is not known keeps no configuration back, and is said: %s", async (_, sum, said) => {
  const { use, configWith, config, lines } = givenUse(sum, GOLD);
  await use.look();
  expect(use.refuses(configWith({ standard: {} }), config)).toEqual([]);
  expect(lines.at(-1)).toMatchObject({ level: "warn", dropped: ["gold"], ...said });
});

test("a gateway that could not read a primary does not replace the sum of one that had read it", async () => {
  const whole = { keys: { gold: 12 }, uncounted: 0, unread: 0 };
  const published: unknown[] = [];
  const looks = async (sum: TierCounts, before: TierCounts | undefined) => {
    const { use } = givenUse(before, GOLD, {
      turn: async () => true,
      sum: async () => sum,
      publish: async (counts) => void published.push(counts),
    });
    await use.look();
  };
  const partial = { keys: {}, uncounted: 0, unread: 21 };
  await looks(partial, whole);
  expect(published).toEqual([]);
  await looks(partial, undefined);
  await looks(whole, partial);
  expect(published).toEqual([partial, whole]);
});

test("a gateway whose configuration lacks a tier in use says so once, and in a metric", async () => {
  const { use, lines, metrics } = givenUse({
    keys: { gold: 12, silver: 1, standard: 4 },
    uncounted: 0,
    unread: 0,
  });
  await use.look();
  await use.look();
  const errors = lines.filter(({ level }) => level === "error");
  expect(errors).toMatchObject([{ keys_by_tier: { gold: 12, silver: 1 } }]);
  const { values } = await metrics.tierKeys.get();
  expect(values.map(({ labels, value }) => [labels.tier, value])).toEqual([
    ["other", 13],
    ["standard", 4],
  ]);
});

// Guarantee: a mistake in the counting shows.
test.each(TIER_MUTANTS)("the mistake is found: $what", async (mutant) => {
  const good = await countsAfterAll();
  expect(good).toEqual({ b: "1", made: '{"a":"2","b":"1"}', "#counted_at": "9000" });
  expect(await countsAfterAll(mutant)).not.toEqual(good);
});

/** Makes, moves, revokes and goes through keys of a partition of its own. @returns its counts */
async function countsAfterAll(mutant?: Mutant): Promise<Record<string, string>> {
  const folder = mutant && (await plant(mutant));
  const other = await givenRedis();
  try {
    const scripts = createScriptRunner(other.client, folder === undefined ? {} : { folder });
    const run: Run = scripts.run;
    const at = (keyId: string) => keyRef(keyId, "acc", 0);
    const make = (keyId: string, tier: string) =>
      run(issue, { key: at(keyId), tier, digest: keyId, limits: {}, credits: 0, reference: keyId });
    await make("k1", "a");
    await make("k1", "a");
    await make("k2", "b");
    await make("k3", "a");
    const made = await other.client.hgetall(partitionNames(0).tiers);
    await run(change, { ...at("k1"), fields: { tier: "b" } });
    await run(change, { ...at("k2"), unless: "revoked_at", fields: { revoked_at: 5 } });
    await run(change, { ...at("k3"), fields: { revoked_at: 5 } });
    await other.client.hdel(keyNames(0, "k1").key, "counted");
    await other.client.hincrby(partitionNames(0).tiers, "b", -1);
    await run(tally, { partition: 0, keyIds: ["k1", "k2", "k3", "nobody"], isLast: false });
    const early = await other.client.hexists(partitionNames(0).tiers, "#counted_at");
    await run(tally, { partition: 0, keyIds: ["k1"], isLast: true });
    const found = await other.client.hgetall(partitionNames(0).tiers);
    const isNow = Math.abs(Number(found["#counted_at"]) - Date.now()) < 60_000;
    const strays = await other.client.exists(keyNames(0, "nobody").key);
    return {
      ...found,
      made: JSON.stringify(made),
      "#counted_at": early || strays ? "early" : isNow ? "9000" : "odd",
    };
  } finally {
    await other.stop();
    if (folder !== undefined) await rm(folder, { recursive: true });
  }
}
