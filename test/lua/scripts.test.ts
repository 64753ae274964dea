import { readdirSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Connection } from "../../src/store/connection.ts";
import { VERBS } from "../../src/store/scripts.ts";
import { createStage, openConnection, type ScriptCall, type Stage } from "../support/store.ts";
import { LUA_FOLDER, liesOf, numbersIn, readHeader, readScript } from "./headers.ts";

let connection: Connection;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());

test("every verb has its file and every file its verb", () => {
  const files = readdirSync(LUA_FOLDER).map((file) => file.replace(/\.lua$/, ""));
  expect(files.sort()).toEqual([...VERBS, "prelude", "batch"].sort());
});

test.each(VERBS)("the header of %s names exactly the KEYS, ARGV and outcomes of its body", (verb) => {
  expect(liesOf(readScript(verb))).toEqual([]);
  expect(readScript(verb)).toContain("store_now()");
});

test.each([
  ["a name left out", "bind", "6 task (string: who owns the task id)", "", "KEYS"],
  ["a name too many", "bind", "7 done (zset", "7 other (set)  10 done (zset", "KEYS"],
  ["an argument left out", "bind", "  8 task id  9 ms", "  9 ms", "ARGV"],
  ["an argument that nobody reads", "bind", "16 retention (ms)", "16 retention (ms)  18 more", "ARGV"],
  ["tiers called unused", "admit", "2 tiers  3", "2 tiers (unused)  3", "ARGV that are unused"],
  ["tiers called used", "bind", "2 tiers (unused)  3", "2 tiers  3", "ARGV that are unused"],
  ["an outcome left out", "bind", "--   late ", "--         late ", "RETURNS"],
  ["an outcome that never comes", "bind", "--   late ", "--   early  never\n--   late ", "RETURNS"],
  ["the outcome of the last line left out", "admit", "--   admitted ", "--         admitted ", "RETURNS"],
])("a header that lies is found: %s", (_, verb, truth, lie, what) => {
  const text = readScript(verb);
  expect(text).toContain(truth);
  expect(liesOf(text.replace(truth, lie)).map((found) => found.split(":")[0])).toEqual([what]);
});

test("the prelude reads no KEYS and no ARGV but the clock and the tiers", () => {
  const prelude = readScript("prelude");
  expect(numbersIn(prelude, "KEYS")).toEqual([]);
  expect(numbersIn(prelude, "ARGV")).toEqual([1, 2]);
});

test("what stands behind a verb reads no KEYS by number, and no ARGV but the clock, the tiers and the items", () => {
  const batch = readScript("batch");
  expect(numbersIn(batch, "KEYS")).toEqual([]);
  expect(numbersIn(batch, "ARGV")).toEqual([1, 2, 3]);
});

/** The calls of every operation, with and without what is optional. */
async function everyCall(stage: Stage): Promise<ScriptCall[]> {
  const key = await stage.givenKey();
  const plain = stage.request(key);
  const careful = stage.request(key, { idempotency: { digest: "d", fingerprint: "f" } });
  const operations = [
    ...[plain, careful].flatMap((generation) => [
      () => stage.admit(generation),
      () => stage.bind(generation),
      () => stage.store.giveBack(generation, stage.tiers),
    ]),
    () => stage.store.inspect(key, stage.tiers),
    () => stage.store.inspectTask(key, "task", 5000, stage.tiers),
    () => stage.observe(plain, "pending"),
    () => stage.observe(plain, "pending", { poller: key }),
    () => stage.credits(key),
    () => stage.sweeps.claim("polls", key.partition, 10),
  ];
  const calls: ScriptCall[] = [];
  for (const operation of operations) {
    const { calls: made, deferred } = await stage.unsent(operation);
    calls.push(...made, ...(deferred ? [deferred] : []));
  }
  return calls;
}

test("the operations pass as many KEYS and ARGV as the headers say", async () => {
  const calls = await everyCall(createStage(connection));
  const made = new Set(calls.map(({ verb }) => verb));
  expect([...made].sort()).toEqual(["admit", "bind", "claim", "credits", "inspect", "observe", "void"]);
  for (const verb of made) {
    const header = readHeader(verb);
    const keyCounts = calls.filter((call) => call.verb === verb).map(({ keys }) => keys.length);
    expect(Math.max(...keyCounts), verb).toBe(header.keys.length);
    const argCounts = calls.filter((call) => call.verb === verb).map(({ args }) => args.length);
    expect(new Set(argCounts), verb).toEqual(new Set([header.args.length]));
  }
});

// The record of a task spans all partitions; on Redis Cluster it is one inside the partition.
test("all names of a call share one hash tag", async () => {
  for (const { verb, keys } of await everyCall(createStage(connection))) {
    const tags = keys
      .filter((name) => !/^tg:(task|claim):/.test(name))
      .map((name) => /\{\w+\}/.exec(name)?.[0]);
    expect(new Set(tags).size, verb).toBe(1);
    expect(tags, verb).not.toContain(undefined);
  }
});
