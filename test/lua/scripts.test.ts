import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Connection } from "../../src/store/connection.ts";
import { VERBS } from "../../src/store/scripts.ts";
import { createStage, openConnection, type ScriptCall, type Stage } from "../support/store.ts";
import { LUA_FOLDER, readHeader } from "./headers.ts";

let connection: Connection;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());

const sorted = (numbers: Iterable<number>): number[] => [...new Set(numbers)].sort((a, b) => a - b);
const numbersIn = (body: string, name: string): number[] => [
  ...sorted([...body.matchAll(new RegExp(`\\b${name}\\[(\\d+)\\]`, "g"))].map(([, n]) => Number(n))),
];

/** Every outcome that a body can answer: the literals where a reply names its outcome, or sets the variable for it. */
function outcomesOf(body: string): string[] {
  const places = [
    ...body.matchAll(/\b(?:reply|answer)\(([^,)]*)/g),
    ...body.matchAll(/\breturn \{ ([^,}]*)/g),
    ...body.matchAll(/\boutcome = ([^\n]*)/g),
  ].map(([, expression]) => expression ?? "");
  const literals = places.flatMap((expression) => [...expression.matchAll(/(==|~=)? ?"(\w+)"/g)]);
  return [...new Set(literals.flatMap(([, compared, literal]) => (compared ? [] : (literal ?? []))))].sort();
}

test("every verb has its file and every file its verb", () => {
  const files = readdirSync(LUA_FOLDER).map((file) => file.replace(/\.lua$/, ""));
  expect(files.sort()).toEqual([...VERBS, "prelude"].sort());
});

test.each(VERBS)("the header of %s names exactly the KEYS, ARGV and outcomes of its body", (verb) => {
  const { keys, args, open, unused, outcomes, body } = readHeader(verb);
  expect(keys).toEqual(numbersIn(body, "KEYS"));
  // ARGV 1 and 2 are the prelude's: the clock, and the tiers for whoever reads a key.
  const used = [1, 2, ...numbersIn(body, "ARGV")];
  const rest = /unpack\(ARGV, (\d+)\)/.exec(body)?.[1];
  expect(open).toBe(rest !== undefined);
  expect(args).toEqual(sorted(rest ? [...used, Number(rest)] : used));
  expect(body).toContain("store_now()");
  expect(unused).toEqual(body.includes("read_key(") ? [] : [2]);
  expect([...outcomes].sort()).toEqual(outcomesOf(body));
});

test("the prelude reads no KEYS and no ARGV but the clock and the tiers", () => {
  const prelude = readFileSync(join(LUA_FOLDER, "prelude.lua"), "utf8");
  expect(numbersIn(prelude, "KEYS")).toEqual([]);
  expect(numbersIn(prelude, "ARGV")).toEqual([1, 2]);
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
    () => stage.sweeps.claim(key.partition, 10),
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
    for (const { args } of calls.filter((call) => call.verb === verb)) {
      // INSPECT without a task, like any verb, may get more than it needs; it may never get less.
      expect(args.length, verb).toBe(header.args.length);
    }
  }
});

// The claim of a task id spans all partitions; on Redis Cluster its place is taken by one inside the partition.
test("all names of a call share one hash tag", async () => {
  for (const { verb, keys } of await everyCall(createStage(connection))) {
    const tags = keys
      .filter((name) => !name.startsWith("tg:claim:"))
      .map((name) => /\{\w+\}/.exec(name)?.[0]);
    expect(new Set(tags).size, verb).toBe(1);
    expect(tags, verb).not.toContain(undefined);
  }
});
