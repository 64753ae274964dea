import { readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { countersOf, countersText } from "../../src/records/packed-fields.ts";
import { createScriptRunner, itemOf, type ScriptRunner } from "../../src/redis/script-runner.ts";
import { admit } from "../../src/scripts/holds.ts";
import { change, revoke } from "../../src/scripts/keys.ts";
import { createStage, openConnection, type TestConnection, TIERS } from "../support/store.ts";
import { LUA_FOLDER } from "./headers.ts";
import { plantForTest } from "./mutant-client.ts";
import { inShare, TERMS_MUTANTS } from "./mutants.ts";

// A key's counters of requests, and the terms that operators fix, are one text each (decision 0004).

let connection: TestConnection;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());

const include = (name: string): string => readFileSync(join(LUA_FOLDER, `include/${name}.lua`), "utf8");

const count = fc.oneof(fc.constantFrom(0, 1, Number.MAX_SAFE_INTEGER), fc.maxSafeNat()).map(String);
const counters = fc.record(
  {
    ...{ clock_ms: count, spent: count, day: count, day_count: count },
    limits: fc.constantFrom("20 3 500", "0 0 0rcd", `9 ${Number.MAX_SAFE_INTEGER} 1 7d`),
  },
  { requiredKeys: [] },
);

// Guarantee: both languages read the same, whatever is not there, and neither loses a digit.
test("what is counted is the same in Lua as in TypeScript", async () => {
  const source = `local call = redis.call\n${["clock", "numbers", "unknown", "window", "limits"].map(include).join("")}
    local text = ARGV[1] ~= "" and ARGV[1] or nil
    if text then call("SET", KEYS[1], "") call("DEL", KEYS[1]) call("HSET", KEYS[1], "counters", text) end
    change_counters(KEYS[1], SPENT_WORD, ARGV[2])
    local changed = call("HGET", KEYS[1], "counters")
    call("DEL", KEYS[1])
    return { changed, read_counters(text) }`;
  const one = async (stored: object | undefined, spent: string): Promise<void> => {
    const text = stored && countersText(stored);
    const name = `packed-records:${process.pid}`;
    const reply = await connection.redis.eval(source, 1, name, text ?? "", spent);
    const [changed, ...words] = reply as string[];
    const read = { clock_ms: "0", spent: "0", day: "-1", day_count: "0", ...stored };
    expect(words).toEqual([read.clock_ms, read.spent, read.day, read.day_count]);
    expect(countersOf(changed)).toEqual({ ...read, spent });
    if (text) expect(countersOf(text)).toEqual(read);
  };
  await fc.assert(fc.asyncProperty(fc.option(counters, { nil: undefined }), count, one), { numRuns: 200 });
});

const ACTOR = { by: "cli test", requestId: "r" };

/** Results of requests while operators change and revoke their keys. */
async function lived(scripts: ScriptRunner = createScriptRunner(connection.redis)): Promise<unknown[]> {
  const stage = createStage(connection);
  const [one, two] = [await stage.givenKey(), await stage.givenKey()];
  const submitted = async (...keys: (typeof one)[]) => {
    const calls = keys.map((key) => ({
      generation: stage.request(key),
      tiers: TIERS,
      notAfterMs: stage.clock.nowMs,
    }));
    const items = calls.map((call) => itemOf(admit, call, String(stage.clock.nowMs)));
    const replies = await scripts.send(admit, items);
    return replies.map((reply) => (reply instanceof Error ? reply.message : [reply[0], reply[2]]));
  };
  const seen: unknown[] = [await submitted(one, two)];
  await scripts.run(change, { ...one, fields: { rate_limit: 7 }, actor: ACTOR });
  seen.push(await submitted(one, two, one));
  await scripts.run(revoke, { ...two, actor: ACTOR });
  return [...seen, await submitted(two, one)];
}

// Guarantee: what an operator changes of a key holds for its next request, and for no other key.
test("a change of a key holds from its next request on", async () => {
  const [before, changed, revoked] = (await lived()) as [string, number | string][][];
  expect(before!.map(([outcome]) => outcome)).toEqual(["admitted", "admitted"]);
  expect(changed!.map(([, limit]) => limit)).toEqual([7, before![1]![1], 7]);
  expect(revoked).toEqual([
    ["unknown_key", "0"],
    ["admitted", 7],
  ]);
});

test.each(inShare(TERMS_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const folder = await plantForTest(mutant);
  expect(await lived(createScriptRunner(connection.redis, { folder }))).not.toEqual(await lived());
});
