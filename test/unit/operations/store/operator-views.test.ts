import type { Redis } from "ioredis";
import { expect, test } from "vitest";
import { KEYS_LOOKED_AT_MAX, topKeysByUse } from "../../../../src/operations/keys/operator-keys.ts";
import { oneNode, type RedisNodes } from "../../../../src/redis/store-facts.ts";

const DAY_MS = 86_400_000;
const TIERS = { standard: { rate_limit: 20, max_concurrent: 3, daily_limit: 500 } };

/** As ZSCAN answers them. */
const scored = (members: readonly string[]): string[] => members.flatMap((member) => [member, "0"]);

/**
 * A Redis of two partitions that answers what these reads ask, and cuts every scan into pieces of two: with lists as
 * large as that, a real one would take minutes to fill.
 */
function givenRedis(accounts: string[][], keysOf: (accountId: string) => string[]): RedisNodes {
  const answers = {
    zscan: (name: string) => ["0", scored(keysOf(name.split(":").at(-1) ?? ""))],
    hgetall: () => ({ money: "100 10 5 1 -" }),
    hmget: (name: string) => [
      ...["acme", "standard"],
      `0 0 ${Math.floor(Date.now() / DAY_MS)} ${name.split("_").at(-1) ?? ""}`,
      ...[null, null, null],
    ],
  };
  const redis = {
    hget: async () => "2",
    hmget: async () => ["2", "1"],
    time: async () => [String(Math.floor(Date.now() / 1000)), "0"],
    async zscan(name: string, cursor: string) {
      const members = accounts[name.includes("{p01}") ? 1 : 0] ?? [];
      const next = Number(cursor) + 2;
      return [next < members.length ? String(next) : "0", scored(members.slice(Number(cursor), next))];
    },
    pipeline() {
      const results: [null, unknown][] = [];
      const queue = (command: keyof typeof answers) => (name: string) =>
        results.push([null, answers[command](name)]);
      const [zscan, hgetall, hmget] = [queue("zscan"), queue("hgetall"), queue("hmget")];
      return { zscan, hgetall, hmget, exec: async () => results };
    },
    // INSPECT takes several items in a call, and so answers a list of replies, as JSON.
    sendCommand: async () => JSON.stringify([["known", 0, 20, 12, 0, 3, 2, "standard"]]),
  };
  return oneNode(redis as unknown as Redis);
}

test("the most used keys come from a bounded number, and that there were more is said", async () => {
  const many = (count: number) =>
    givenRedis([["acme"]], () => Array.from({ length: count }, (_, n) => `key_${n + 1}`));
  const cut = await topKeysByUse(many(KEYS_LOOKED_AT_MAX + 700), TIERS, 2);
  expect(cut).toMatchObject({ keysLookedAt: KEYS_LOOKED_AT_MAX, complete: false });
  expect(cut.keys.map(({ use }) => use.day_count)).toEqual([KEYS_LOOKED_AT_MAX, KEYS_LOOKED_AT_MAX - 1]);
  const whole = await topKeysByUse(many(700), TIERS, 1);
  expect(whole).toMatchObject({ keysLookedAt: 700, complete: true });
  expect(whole.keys).toEqual([
    {
      keyId: "key_700",
      accountId: "acme",
      tier: "standard",
      partition: 0,
      use: {
        window_used: null,
        rate_limit: null,
        active: null,
        max_concurrent: null,
        day_count: 700,
        daily_limit: 500,
      },
      now: { window_used: 8, rate_limit: 20, active: 2, max_concurrent: 3 },
    },
  ]);
});
