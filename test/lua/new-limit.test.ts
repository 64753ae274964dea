import { execFileSync } from "node:child_process";
import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createScriptRunner, itemOf } from "../../src/redis/script-runner.ts";
import { admit } from "../../src/scripts/holds.ts";
import { voidHold } from "../../src/scripts/uncharged-holds.ts";
import { changeAccount } from "../support/account-money.ts";
import { createStage, NOON_MS, openConnection, type TestConnection, TIERS } from "../support/store.ts";

const ROOT = join(import.meta.dirname, "../..");
const RECIPE = join(ROOT, "test/unit/house/recipes/limit.patch");
const HOUR_MS = 3_600_000;
/** As `packTiers` of the recipe writes them: two requests an hour. */
const PACKED = ";standard 20 3 500 2;";

let connection: TestConnection;
let folder: string;
beforeAll(async () => {
  connection = await openConnection();
  folder = await mkdtemp(join(tmpdir(), "tollgate-limit-"));
  await cp(join(ROOT, "lua"), join(folder, "lua"), { recursive: true });
  execFileSync("git", ["apply", "--include", "lua/*", RECIPE], { cwd: folder });
});
afterAll(async () => {
  await rm(folder, { recursive: true });
  await connection.close();
});

/** A key, and its requests to the scripts of the recipe. */
async function givenKey() {
  const { redis } = connection;
  const stage = createStage(connection);
  const key = await stage.givenKey();
  const scripts = createScriptRunner(redis, { folder: join(folder, "lua") });
  const at = (nowMs: number): string[] => [String(nowMs), PACKED];
  return {
    names: key.names,
    async submit(nowMs: number) {
      const generation = stage.request(key);
      const call = { generation, tiers: TIERS, notAfterMs: nowMs };
      const [reply] = await scripts.send(admit, [{ ...itemOf(admit, call), shared: at(nowMs) }]);
      return { requestId: generation.requestId, admission: admit.read(reply as never, call) };
    },
    async refuse(requestId: string, nowMs: number) {
      const call = { key, requestId, reason: "refused" as const };
      await scripts.send(voidHold, [{ ...itemOf(voidHold, call), shared: at(nowMs) }]);
    },
  };
}

// Guarantee: the recipe of CONTRIBUTING for a new limit is all that it takes; the scripts need no more.
describe("the hourly limit of the recipe", () => {
  test("refuses, comes back with a void request, and ends with its hour", async () => {
    const { submit, refuse } = await givenKey();
    const { requestId } = await submit(NOON_MS);
    await submit(NOON_MS + 1);
    const refused = (await submit(NOON_MS + 2)).admission;
    expect(refused).toMatchObject({ outcome: "rate_limited", limitOf: "key", retryAfterMs: HOUR_MS - 2 });
    await refuse(requestId, NOON_MS + 3);
    expect((await submit(NOON_MS + 4)).admission.outcome).toBe("admitted");
    expect((await submit(NOON_MS + 5)).admission.outcome).toBe("rate_limited");
    await refuse((await submit(NOON_MS + HOUR_MS)).requestId, NOON_MS + HOUR_MS);
    expect((await submit(NOON_MS + HOUR_MS)).admission.outcome).toBe("admitted");
  });

  test("refuses for all keys of an account that has it", async () => {
    const { submit, names } = await givenKey();
    await changeAccount(connection.redis, names.account, { limited: "1", hourly_limit: "1" });
    expect((await submit(NOON_MS)).admission.outcome).toBe("admitted");
    expect((await submit(NOON_MS)).admission).toMatchObject({ outcome: "rate_limited", limitOf: "account" });
    const counters = await connection.redis.hget(names.account, "counters");
    expect(counters?.split(" ").slice(-2)).toEqual([String(NOON_MS / HOUR_MS), "1"]);
  });
});
