import { afterAll, beforeAll, expect, test } from "vitest";
import { defaultConfig } from "../../src/config/config.ts";
import { toConfig } from "../../src/config/runtime-config.ts";
import { createTierUse } from "../../src/jobs/tier-use.ts";
import { changeKey, revokeKey, rotateKey } from "../../src/operations/keys/change-key.ts";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { findKey } from "../../src/operations/keys/keys.ts";
import {
  createTierCounter,
  readTierCounts,
  type TierCounter,
  type TierCounts,
} from "../../src/operations/keys/tier-counts.ts";
import { cliActor } from "../../src/records/actor.ts";
import { keyRef, partitionNames } from "../../src/records/names.ts";
import { createScriptRunner } from "../../src/redis/script-runner.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { change, issue } from "../../src/scripts/keys.ts";
import type { Run } from "../../src/scripts/script-definition.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";
import { openConnection, randomId, type TestConnection, times } from "../support/store.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { plantForTest } from "./mutant-client.ts";
import { inShare, type Mutant, TIER_MUTANTS } from "./mutants.ts";

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

// Guarantee: how many keys use a tier is exact after each way in which a key comes, changes and goes.
test("keys are counted as they are made, moved to another tier, rotated and revoked", async () => {
  const before = await counted();
  expect(before).toEqual({});
  const keys = await Promise.all(
    times(3, () => issueKey(nodes, { tier: "gold", accountId: randomId("acc"), credits: 5 }, cliActor())),
  );
  const [first, second, third] = await Promise.all(keys.map(({ keyId }) => findKey(nodes, keyId)));
  expect(await counted()).toEqual({ gold: 3 });
  await changeKey(nodes, first!, { tier: "silver" }, cliActor());
  await changeKey(nodes, first!, { tier: "silver", limits: { rate_limit: 5 } }, cliActor());
  await changeKey(nodes, second!, { limits: { rate_limit: 5 } }, cliActor());
  expect(await counted()).toEqual({ gold: 2, silver: 1 });
  const { keyId } = await rotateKey(nodes, second!, 60_000, cliActor());
  expect(await counted(), "the old key is good until the overlap ends").toEqual({ gold: 3, silver: 1 });
  for (const key of [second!, second!, third!, await findKey(nodes, keyId)])
    await revokeKey(nodes, key, cliActor());
  expect(await counted()).toEqual({ silver: 1 });
  await revokeKey(nodes, first!, cliActor());
  expect(await counted()).toEqual({});
});

test("reading the counts of a store that was never used writes nothing", async () => {
  const fresh = await givenRedis();
  try {
    expect(await readTierCounts(oneNode(fresh.client))).toEqual({ keys: {}, unread: 0 });
    expect(await fresh.client.dbsize()).toBe(0);
  } finally {
    await fresh.stop();
  }
});

/** A counter that says what a test wants. */
const saying = (sum: Awaited<ReturnType<TierCounter["sum"]>> | undefined): TierCounter => ({
  ...counter,
  lease: async () => false,
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
    metrics,
    log,
  });
  return { use, lines, configWith, config, metrics };
}

const GOLD = { standard: {}, gold: {} };

// Guarantee: a tier that keys still use cannot vanish silently.
test("a configuration that drops or renames a tier in use is refused, one that keeps it as deprecated is not", async () => {
  const { use, configWith, config } = givenUse({ keys: { gold: 12, standard: 3 }, unread: 0 }, GOLD);
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
  const { use, configWith, config } = givenUse({ keys: { gold: 12 }, unread: 0 });
  await use.look();
  expect(use.refuses(configWith({ standard: {}, silver: {} }), config)).toEqual([]);
});

test.each([
  ["nothing was read yet", undefined, {}],
  ["a primary is away", { keys: {}, unread: 21 }, { unread_partitions: 21 }],
])("what is not known keeps no configuration back, and is said: %s", async (_, sum, warning) => {
  const { use, configWith, config, lines } = givenUse(sum, GOLD);
  await use.look();
  expect(use.refuses(configWith({ standard: {} }), config)).toEqual([]);
  expect(lines.at(-1)).toMatchObject({ level: "warn", dropped: ["gold"], ...warning });
});

test("a gateway that could not read a primary does not replace the sum of one that had read it", async () => {
  const whole = { keys: { gold: 12 }, unread: 0 };
  const published: unknown[] = [];
  const looks = async (sum: TierCounts, before: TierCounts | undefined) => {
    const { use } = givenUse(before, GOLD, {
      lease: async () => true,
      sum: async () => sum,
      publish: async (counts) => void published.push(counts),
    });
    await use.look();
  };
  const partial = { keys: {}, unread: 21 };
  await looks(partial, whole);
  expect(published).toEqual([]);
  await looks(partial, undefined);
  await looks(whole, partial);
  expect(published).toEqual([partial, whole]);
});

test("a gateway whose configuration lacks a tier in use says so once, and in a metric", async () => {
  const { use, lines, metrics } = givenUse({
    keys: { gold: 12, silver: 1, standard: 4 },

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
test.each(inShare(TIER_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const good = await countsAfterAll();
  expect(good).toEqual({ b: "1", made: '{"a":"2","b":"1"}' });
  expect(await countsAfterAll(mutant)).not.toEqual(good);
});

/** Makes, moves and revokes keys of a partition of its own. @returns its counts */
async function countsAfterAll(mutant?: Mutant): Promise<Record<string, string>> {
  const folder = mutant && (await plantForTest(mutant));
  const other = await givenRedis();
  try {
    const scripts = createScriptRunner(other.client, folder === undefined ? {} : { folder });
    const run: Run = scripts.run;
    const at = (keyId: string) => keyRef(keyId, "acc", 0);
    const make = (keyId: string, tier: string) =>
      run(issue, {
        actor: cliActor(),
        key: at(keyId),
        tier,
        digest: keyId,
        limits: {},
        credits: 0,
        reference: keyId,
      });
    await make("k1", "a");
    await make("k1", "a");
    await make("k2", "b");
    await make("k3", "a");
    const made = await other.client.hgetall(partitionNames(0).tiers);
    await run(change, { actor: cliActor(), ...at("k1"), fields: { tier: "b" } });
    await run(change, { actor: cliActor(), ...at("k2"), fields: { revoked_at: 5 } });
    await run(change, { actor: cliActor(), ...at("k3"), fields: { revoked_at: 5 } });
    // Counted once, however often it is written.
    await run(change, { actor: cliActor(), ...at("k1"), fields: { label: "same tier" } });
    return { ...(await other.client.hgetall(partitionNames(0).tiers)), made: JSON.stringify(made) };
  } finally {
    await other.stop();
  }
}
