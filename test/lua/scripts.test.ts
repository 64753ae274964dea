import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { tryScripts } from "../../src/redis/probes.ts";
import { readScript, scriptPaths, scriptSource } from "../../src/redis/script-source.ts";
import { SCRIPTS } from "../../src/scripts/all.ts";
import {
  createStage,
  openConnection,
  type ScriptCall,
  type Stage,
  type TestConnection,
} from "../support/store.ts";
import {
  boundOf,
  includesOf,
  LUA_FOLDER,
  liesOf,
  readHeader,
  secondValuesOf,
  undeclared,
} from "./headers.ts";

let connection: TestConnection;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());

const NAMES = SCRIPTS.map(({ name }) => name);
const namesIn = (folder: string): string[] =>
  readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ name }) => name.replace(/\.\w+$/, ""));

test("every file in Lua is of one script, and every definition is in the list of all", () => {
  const files = [...scriptPaths(LUA_FOLDER).keys()].filter((name) => !name.includes("/"));
  expect(files.sort()).toEqual([...NAMES, "batch"].sort());
  const definitions = join(import.meta.dirname, "../../src/scripts");
  const texts = namesIn(definitions).map((name) => readFileSync(join(definitions, `${name}.ts`), "utf8"));
  const defined = texts.flatMap((text) => [...text.matchAll(/^ {2}name: "([\w-]+)",$/gm)]);
  expect(defined.map(([, name]) => name).sort()).toEqual([...NAMES].sort());
});

test.each(NAMES)("the header of %s names exactly the arguments and outcomes of its body", (name) => {
  expect(liesOf(readScript(name))).toEqual([]);
});

// Guarantee: no call of any script holds Redis for long, however large an account is; test/lua/large-accounts.test.ts shows it.
test.each(NAMES)("the header of %s says how many steps a call takes at most", (name) => {
  const bound = boundOf(readScript(name));
  // A step is about a microsecond of Redis or less.
  expect(bound).toBeLessThanOrEqual(4000);
});

const BATCHED = SCRIPTS.filter(({ isBatched }) => isBatched).map(({ name }) => name);

// Guarantee: the gateway learns the store's clock from replies, and no reply of a batched script has anything else there.
test.each([...BATCHED, "include/reply"])(
  "the second value of every reply of %s is the store's clock",
  (file) => {
    expect(secondValuesOf(readScript(file))).toEqual(["now"]);
  },
);

test("a reply without the clock is found", () => {
  expect(secondValuesOf(readScript("recharge"))).toEqual(['"0"', "int"]);
  expect(secondValuesOf('return reply("void", price, now)\n')).toEqual(["price"]);
});

const INCLUDES = namesIn(join(LUA_FOLDER, "include"));

test("what is included is used, and each script includes just what it uses", () => {
  const files = [...NAMES, ...INCLUDES.map((name) => `include/${name}`)];
  const used = files.flatMap((name) => includesOf(readScript(name)));
  // The loader includes the check for frozen partitions.
  expect([...new Set([...used, "frozen"])].sort()).toEqual(INCLUDES.sort());
  for (const file of files) expect(undeclared(file), file).toEqual({ missing: [], unused: [] });
});

// Guarantee: on a Redis Cluster nothing changes a frozen partition; on one server the check costs nothing.
test("every script that writes to a partition stops if it is frozen, where partitions can be frozen", () => {
  // The names of the probe and of turns say nothing of an account.
  const writing = SCRIPTS.filter(({ name }) => !["probe", "work-lease"].includes(name)).filter(
    ({ name }) => !/^#!lua flags=no-writes\n/.test(readScript(name)),
  );
  for (const script of SCRIPTS) {
    const [plain, checked] = [false, true].map((checksFrozen) => scriptSource(script, { checksFrozen }));
    expect(plain, script.name).not.toMatch(/frozen/i);
    expect(checked?.split("require_not_frozen(").length, script.name).toBe(writing.includes(script) ? 3 : 1);
  }
});

test("a script is sent with each function that it uses once, behind those that it needs, and with no other", () => {
  const source = scriptSource(SCRIPTS.find(({ name }) => name === "observe")!);
  const names = [
    "store_now date_of month_of int by_of write_audit task_score add_event int name_in",
    "callback_of split_address delivery_of write_delivery new_delivery bring_forward count_bytes lacks_room answer_bytes",
    "queue_delivery count_waiting forget_queue queue_of_address drop_delivery",
    "unqueue_delivery remove_delivery endpoints_for make_room add_event money_words",
    "write_money has_extras stamp_at read_window read_counters change_counters terms_text",
    "read_terms tier_limits common_terms read_key refuses read_shared read_shared_use",
    "alert_credits post read_spent add_spent is_refunded post_refund tier_of reply_with reply",
    "read_request changed_request forget_at note_ended read_task task_text is_final run keep",
    "answer",
  ].flatMap((row) => row.split(" "));
  expect(source.match(/local function \w+/g)).toEqual(names.map((name) => `local function ${name}`));
});

// Guarantee: an account without webhook endpoints does not pay for the functions that send to them.
test("what only a function that is seldom called needs is made in its call", () => {
  for (const name of ["bind", "observe"]) {
    const source = scriptSource(SCRIPTS.find((script) => script.name === name)!);
    expect(source.match(/^ *local function (?:make_room|add_event)\b/gm)).toEqual([
      "local function add_event",
      "  local function make_room",
      "  local function add_event",
    ]);
  }
});

test.each([
  ["a name that nobody reads", "void", "slots due", "slots other due", "KEYS"],
  ["a name by number", "bind", "local outcome,", "local outcome = KEYS[1]\nlocal outcome,", "BODY"],
  ["an argument that nobody reads", "bind", " poll_ms response", " poll_ms unread response", "ARGV"],
  ["the clock left out", "bind", "--@args now request_id", "--@args request_id", "ARGV"],
  ["tiers that nobody reads", "collect", "now request_id", "now tiers request_id", "ARGV"],
  ["an outcome left out", "bind", "--   late ", "--         late ", "RETURNS"],
  ["an outcome that never comes", "bind", "--   late ", "--   early  never\n--   late ", "RETURNS"],
  ["the outcome of the last line left out", "admit", "--   admitted ", "--         admitted ", "RETURNS"],
])("a header that lies is found: %s", (_, script, truth, lie, what) => {
  const text = readScript(script);
  expect(text).toContain(truth);
  expect(liesOf(text.replace(truth, lie)).map((found) => found.split(":")[0])).toEqual([what]);
});

test.each(INCLUDES)("what is included reads no KEYS and no ARGV by itself: %s", (name) => {
  expect(readScript(`include/${name}`).replaceAll(/--.*/g, "")).not.toMatch(/\b(KEYS|ARGV)\b/);
});

// Guarantee: a name that a script reads and its header has not fails at once, and is no nil.
test("a script reads no name that its header has not", async () => {
  const source = scriptSource(SCRIPTS.find(({ name }) => name === "work-lease")!)
    .replace("tiers, lease, who", "tiers, who")
    .replace('"sss"', '"ss"');
  const reply = await connection.redis.eval(source, 1, "lease", "", "a\0b\0");
  expect(reply).toMatch(/nonexistent global variable 'lease'/);
});

// Guarantee: a gateway that checks its store goes on with its requests: between two scripts the event loop turns.
test("putting all scripts together gives way after each", async () => {
  let turns = 0;
  let turnsBefore: number | undefined;
  const turn = (): void => {
    turns++;
    if (turnsBefore === undefined) setImmediate(turn);
  };
  const { redis } = connection;
  const script = vi.spyOn(redis, "script").mockImplementation(async () => {
    turnsBefore ??= turns;
    return SCRIPTS.map(() => 1);
  });
  turn();
  await tryScripts(redis, 0).finally(() => script.mockRestore());
  expect(turnsBefore).toBeGreaterThanOrEqual(SCRIPTS.length);
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
      () => stage.store.voidHold(generation, stage.tiers),
    ]),
    () => stage.store.inspect(key, stage.tiers),
    () => stage.store.inspectTask(key, "task", 5000, stage.tiers),
    () => stage.observe(plain, "pending"),
    () => stage.observe(plain, "pending", { poller: key }),
    () => stage.credits(key),
    () => stage.sweeps.lease("polls", key.partition, 10),
  ];
  const calls: ScriptCall[] = [];
  for (const operation of operations) {
    calls.push(...(await stage.unsent(operation)).calls);
  }
  return calls;
}

test("the operations pass as many KEYS and ARGV as the headers say", async () => {
  const calls = await everyCall(createStage(connection));
  const made = new Set(calls.map(({ script }) => script.name));
  expect([...made].sort()).toEqual(["admit", "bind", "credits", "inspect", "lease", "observe", "void"]);
  for (const name of made) {
    const header = readHeader(name);
    const items = calls.filter(({ script }) => script.name === name).map(({ item }) => item);
    expect(Math.max(...items.map(({ keys }) => keys.length)), name).toBe(header.keys.length);
    const argCounts = items.map(({ shared, args }) => shared.length + args.length);
    expect(new Set(argCounts), name).toEqual(new Set([header.args.length]));
  }
});

// A claim spans all partitions; on a Redis Cluster the gateway takes it by itself.
test("all names of a call share one hash tag", async () => {
  for (const { script, item } of await everyCall(createStage(connection))) {
    const tags = item.keys
      .filter((name) => !name.startsWith("tg:claim:"))
      .map((name) => /\{\w+\}/.exec(name)?.[0]);
    expect(new Set(tags).size, script.name).toBe(1);
    expect(tags, script.name).not.toContain(undefined);
  }
});
