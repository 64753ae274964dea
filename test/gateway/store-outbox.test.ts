import { expect, test } from "vitest";
import type { Journal } from "../../src/durability/outbox/journal.ts";
import { createOutbox, type OutboxSize } from "../../src/durability/outbox/outbox.ts";
import type { Settlement } from "../../src/durability/outbox/outbox-queues.ts";
import { keyRef } from "../../src/records/names.ts";
import { isRefusedByStore } from "../../src/redis/script-errors.ts";
import { ItemError, type Run } from "../../src/scripts/script-definition.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { memoryJournal } from "../support/memory-journal.ts";
import { bindBy, newTask } from "../support/store.ts";

const log = createLogger("silent");
/** The store's clock, hours from this machine's. */
const NOW_MS = Date.now() + 5 * 3_600_000;
const bind = (requestId: string, ageMs = 0): Settlement => ({
  atMs: NOW_MS - ageMs,
  script: "bind",
  call: {
    requestId,
    key: keyRef("key", "account", 1),
    price: 10,
    endpoint: "/",
    retentionMs: 3_600_000,
    task: newTask("task"),
  },
});

/** An error with which Redis answers. */
const saying = (message: string): Error => Object.assign(new Error(message), { name: "ReplyError" });

/** Errors of a command in a script while slots move, the cluster is down, or the server has lost its primary. */
const IN_MOVING_SLOTS = [
  "Script attempted to access a non local key in a cluster node",
  "Script attempted to access keys that do not hash to the same slot",
  "Script attempted to execute a command while the cluster is down",
  "Script attempted to execute a write command while the cluster is down and readonly",
  "Can not execute the command on a stale replica",
  "Script attempted to access a slot not served",
  "Unable to execute command 'DEL' in script because undeclared keys were accessed during rehashing of the slot",
];
/** The text that Redis appends to the error of a whole call. */
const OF_A_SCRIPT = " script: 5761a45384f9b7a2ff6ddb1cb9ed198f7c8fb626, on @user_script:2.";

/** An outbox whose store answers everything but for `failures`, which come first; and what the store has run. */
function givenOutbox(journal: Partial<Journal>) {
  const sent: string[] = [];
  const failures: Error[] = [];
  const bound = { settleWithinMs: 60_000 };
  const sizes: OutboxSize[] = [];
  const outbox = createOutbox({
    log,
    journal: { ...memoryJournal, ...journal },
    settleWithinMs: () => bound.settleWithinMs,
    changed: (size) => void sizes.push(size),
  });
  const run: Run = async (script, call) => {
    const failure = failures.shift();
    if (failure) throw failure;
    sent.push(script.name);
    return script.read(["bound", 0], call);
  };
  const flush = (storeId: string | undefined = "A") =>
    outbox.flush({ run, bind: bindBy(run), has: () => true, storeId, nowMs: () => NOW_MS });
  return { outbox, bound, sent, sizes, failures, flush };
}

// Guarantee: when the breaker closes, nothing waits; else a charge would lie there until the next outage.
test("a settlement that comes while the journal is being cleared is sent before flush ends", async () => {
  let clears = 0;
  const { outbox, sent, flush } = givenOutbox({
    async clear() {
      if (++clears === 1) await outbox.put(bind("late"));
    },
  });
  await outbox.put(bind("early"));
  await flush();
  expect(sent).toEqual(["bind", "bind"]);
  expect(outbox.size()).toBe(0);
});

// Guarantee: a charge outlives its gateway until the store has answered it.
test("the journal is not cleared of what came while the rest was sent", async () => {
  const unsentAtClear: number[] = [];
  const { outbox, sent } = givenOutbox({
    clear: async () => void unsentAtClear.push(outbox.sizeFor("A")),
  });
  await outbox.put({ ...bind("early"), storeId: "A" });
  const run: Run = async (script, call) => {
    sent.push(script.name);
    if (sent.length === 1) void outbox.put(bind("without a store"));
    return script.read(["bound", 0], call);
  };
  await outbox.flush({
    run,
    bind: bindBy(run),
    has: () => true,
    storeId: "A",
    nowMs: () => NOW_MS,
  });
  expect(sent).toEqual(["bind", "bind"]);
  expect(unsentAtClear).toEqual([0]);
});

test("a journal that cannot be cleared does not keep the store away", async () => {
  const { outbox, sent, flush } = givenOutbox({ clear: () => Promise.reject(new Error("ENOSPC")) });
  await outbox.put(bind("a"));
  await flush();
  expect(sent).toEqual(["bind"]);
  expect(outbox.size()).toBe(0);
});

// Guarantee: a charge is dropped only when its script would fail again, not for what is the matter with the server.
test.each([
  new Error("Connection is closed."),
  new Error("Command timed out"),
  saying("LOADING Redis is loading the dataset in memory"),
  saying("READONLY You can't write against a read only replica."),
  saying("NOREPLICAS Not enough good replicas to write."),
  saying("OOM command not allowed when used memory > 'maxmemory'."),
  saying("NOAUTH Authentication required."),
  saying("NOPERM this user has no permissions to access one of the keys used as arguments"),
  saying("ERR The user executing the script can't run this command or subcommand"),
  saying("ERRAND a word that no server says today"),
  // Of a proxy or a managed front, or of Redis about the whole call: the settlement's script has not run.
  saying("ERR unknown command 'evalsha', with args beginning with:"),
  saying("ERR max number of clients reached"),
  saying("ERR Server closed the connection"),
  saying("ERR Connection timed out"),
  saying("upstream failure"),
  saying("no upstream host"),
  ...IN_MOVING_SLOTS.flatMap((text) => [new ItemError(`ERR ${text}`), saying(`ERR ${text}${OF_A_SCRIPT}`)]),
  // Of one item, but an operator can mend it.
  new ItemError("ERR The user executing the script can't run this command or subcommand"),
  new ItemError("ERR ACL failure in script: User tollgate has no permissions to run the 'xadd' command"),
  new ItemError("ERR ACL failure in script: No permissions to access a key"),
  new ItemError("ERR Unknown Redis command called from script"),
  new ItemError("ERR Unknown command called from script"),
  new ItemError("NEWCODE a word that no server says today"),
])("a settlement that the store did not take waits for the next flush: %s", async (failure) => {
  let clears = 0;
  const { outbox, sent, failures, flush } = givenOutbox({
    async clear() {
      clears++;
    },
  });
  await outbox.put(bind("a"));
  await outbox.put(bind("b"));
  failures.push(failure);
  await expect(flush()).rejects.toBe(failure);
  expect({ sent, size: outbox.size(), clears }).toEqual({ sent: ["bind"], size: 1, clears: 0 });
  await flush();
  expect({ sent, size: outbox.size(), clears }).toEqual({ sent: ["bind", "bind"], size: 0, clears: 1 });
});

test.each([
  "WRONGTYPE Operation against a key holding the wrong kind of value",
  "ERR user_script:31: attempt to index a nil value",
])("a settlement whose script would fail again is given up, and keeps no other back: %s", async (words) => {
  const { outbox, sent, failures, flush } = givenOutbox({});
  await outbox.put(bind("a"));
  await outbox.put(bind("b"));
  failures.push(new ItemError(words));
  await flush();
  expect({ sent, size: outbox.size() }).toEqual({ sent: ["bind"], size: 0 });
});

// Guarantee: a master without its replicas counts as away; nothing that it refuses is refused for good.
test.each([
  ["NOREPLICAS Not enough good replicas to write.", false],
  ["MISCONF Redis is configured to save RDB snapshots, but it is unable to persist to disk", false],
  ["MOVED 15343 127.0.0.1:7001", false],
  ["ASK 15343 127.0.0.1:7001", false],
  ["TRYAGAIN Multiple keys request during rehashing of slot", false],
  ["CLUSTERDOWN The cluster is down", false],
  ["MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", false],
  ["BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", false],
  ["NOSCRIPT No matching script. Please use EVAL.", false],
  ["EXECABORT Transaction discarded because of previous errors.", false],
  ...IN_MOVING_SLOTS.map((text): [string, boolean] => [`ERR ${text}${OF_A_SCRIPT}`, false]),
  ["OOM command not allowed when used memory > 'maxmemory'.", true],
  ["NOPERM this user has no permissions to run the 'evalsha' command", true],
  ["WRONGTYPE Operation against a key holding the wrong kind of value", true],
  [`ERR Script killed by user with SCRIPT KILL...${OF_A_SCRIPT}`, true],
  // A proxy's words: behind it an ADMIT may still run, and has to be taken back.
  ["ERR Server closed the connection", false],
  ["upstream failure", false],
])("whether the store has the last word: %s %s", (words, final) => {
  expect(isRefusedByStore(saying(words))).toBe(final);
});

// Guarantee: an ADMIT that may have run, or may yet, is voided: its item's error is no last word either.
test.each(IN_MOVING_SLOTS)("an item of a call does not have the last word while slots move: %s", (text) => {
  expect(isRefusedByStore(new ItemError(`ERR ${text}`))).toBe(false);
});

test("what a full outbox gives up is named in the log", async () => {
  const lines: string[] = [];
  const outbox = createOutbox({
    log: createLogger("error", { write: (line) => void lines.push(line) }),
    journal: memoryJournal,
    settleWithinMs: () => 60_000,
    changed: () => undefined,
  });
  for (let nth = 0; nth <= 50_000; nth++) await outbox.put(bind(`r${nth}`));
  expect(outbox.size()).toBe(50_000);
  expect(lines.map((line) => JSON.parse(line))).toEqual([
    expect.objectContaining({ request_id: "r0", script: "bind" }),
  ]);
});

const unmetered = (requestId: string): Settlement => {
  const settlement = bind(requestId) as Extract<Settlement, { script: "bind" }>;
  return { ...settlement, call: { ...settlement.call, price: 0 } };
};

// Guarantee: an outage under `allow` pushes no charge out of the outbox, and does not fill the memory.
test("unmetered tasks take no room from charges, are sent behind them, and further ones are named in the log", async () => {
  const lines: string[] = [];
  const outbox = createOutbox({
    log: createLogger("error", { write: (line) => void lines.push(line) }),
    journal: memoryJournal,
    settleWithinMs: () => 60_000,
    changed: () => undefined,
  });
  for (let nth = 0; nth < 20_100; nth++) await outbox.put(unmetered(`u${nth}`));
  expect(outbox.size()).toBe(20_000);
  expect(lines.map((line) => JSON.parse(line))).toEqual([
    expect.objectContaining({ request_id: "u20000", msg: expect.stringContaining("more unmetered tasks") }),
  ]);
  for (let nth = 0; nth < 50_000; nth++) await outbox.put(bind(`r${nth}`));
  expect(outbox.size()).toBe(70_000);
  expect(lines).toHaveLength(1);
  await outbox.put(bind("one more"));
  expect(JSON.parse(lines[1]!)).toMatchObject({ request_id: "r0" });
  const sent: string[] = [];
  const run: Run = async (script, call) => {
    sent.push((call as { requestId: string }).requestId);
    return script.read(["bound", 0], call);
  };
  await outbox.flush({ run, bind: bindBy(run), has: () => true, storeId: "A", nowMs: () => NOW_MS });
  expect(sent.findIndex((id) => id.startsWith("u"))).toBe(50_000);
  expect(sent).toHaveLength(70_000);
  expect(outbox.size()).toBe(0);
});

// Guarantee: a request that the store has forgotten is never charged once more.
test("a settlement that has waited too long is given up, in memory as on disk", async () => {
  const { outbox, sent, flush } = givenOutbox({
    async watch({ take }) {
      take([bind("left by another", 61_000), bind("left a moment ago")]);
    },
  });
  await outbox.put(bind("waited", 61_000));
  await outbox.watch(() => undefined);
  await flush();
  expect(sent).toEqual(["bind"]);
  expect(outbox.size()).toBe(0);
});

// Guarantee: what the store may have forgotten under the retention of its admission is not charged under another one, and
// what it still remembers is not given up.
test("no other retention moves the deadline of a settlement that waits", async () => {
  const lines: Settlement[] = [];
  const { outbox, bound, sent, flush } = givenOutbox({
    async append(settlement) {
      lines.push(settlement);
    },
  });
  const [waited, recent] = [bind("waited", 61_000), bind("recent", 30_000)];
  await outbox.put(waited);
  await outbox.put(recent);
  expect(lines.map(({ untilMs }) => untilMs)).toEqual([waited.atMs + 60_000, recent.atMs + 60_000]);
  bound.settleWithinMs = 7 * 24 * 3_600_000;
  await flush();
  expect({ sent, size: outbox.size() }).toEqual({ sent: ["bind"], size: 0 });
  await outbox.put(bind("under the longer one", 61_000));
  bound.settleWithinMs = 60_000;
  await flush();
  expect({ sent, size: outbox.size() }).toEqual({ sent: ["bind", "bind"], size: 0 });
});

test("a settlement that says how long it may be sent is held to that", async () => {
  const { outbox, sent, flush } = givenOutbox({});
  await outbox.put({ ...bind("over", 61_000), settleWithinMs: 60_000 });
  await outbox.put({ ...bind("not over", 61_000), settleWithinMs: 7 * 24 * 3_600_000 });
  await flush();
  expect({ sent, size: outbox.size() }).toEqual({ sent: ["bind"], size: 0 });
});

test("a settlement that another gateway put keeps the deadline of its line", async () => {
  const { outbox, sent, flush } = givenOutbox({
    async watch({ take }) {
      const over = { ...bind("over"), untilMs: NOW_MS - 1 };
      take([over, { ...bind("not over"), untilMs: NOW_MS + 30_000 }]);
    },
  });
  await outbox.watch(() => undefined);
  await flush();
  expect(sent).toEqual(["bind"]);
});

// Guarantee: no gateway's clock decides about money; the deadline is the store's, fixed when the settlement is put.
test("what waits is judged by the store's clock, however wrong the gateway's is", async () => {
  const { outbox, sent, flush } = givenOutbox({});
  await outbox.put(bind("fresh by the store's clock", 59_000));
  await outbox.put(bind("too old by the store's clock", 61_000));
  await flush();
  expect({ sent, size: outbox.size() }).toEqual({ sent: ["bind"], size: 0 });
});

// Guarantee: a charge reaches the store that admitted its request, or waits; no other store is sent it.
test("a flush passes over settlements of another store and clears nothing of theirs", async () => {
  const cleared: (string | undefined)[] = [];
  const { outbox, sent, sizes, flush } = givenOutbox({
    async clear(storeId) {
      cleared.push(storeId);
    },
  });
  await outbox.put({ ...bind("of A"), storeId: "A" });
  await outbox.put({ ...bind("of B"), storeId: "B" });
  await outbox.put(bind("of a store that had no id"));
  await flush("B");
  expect({ sent, cleared, size: outbox.size() }).toEqual({ sent: ["bind", "bind"], cleared: ["B"], size: 1 });
  expect(sizes.at(-1)).toEqual({ entries: 1, ofOtherStores: 1 });
  expect([outbox.sizeFor("A"), outbox.sizeFor("B"), outbox.sizeFor(undefined)]).toEqual([1, 0, 0]);
  await flush("A");
  expect({ sent, cleared }).toEqual({ sent: ["bind", "bind", "bind"], cleared: ["B", "A"] });
  expect(sizes.at(-1)).toEqual({ entries: 0, ofOtherStores: 0 });
});

test("a full outbox gives up the oldest of all stores", async () => {
  const { outbox } = givenOutbox({});
  await outbox.put({ ...bind("oldest", 2), storeId: "B" });
  for (let nth = 0; nth < 50_000; nth++) await outbox.put({ ...bind(`r${nth}`), storeId: "A" });
  expect([outbox.sizeFor("A"), outbox.sizeFor("B")]).toEqual([50_000, 0]);
});
