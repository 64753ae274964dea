import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { open } from "node:fs/promises";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { diskReason, type Journal, openJournal } from "../../../../src/durability/outbox/journal.ts";
import { lineOf, readJournalFile } from "../../../../src/durability/outbox/journal-lines.ts";
import type { Settlement } from "../../../../src/durability/outbox/outbox-queues.ts";
import { keyRef } from "../../../../src/records/names.ts";
import { createLogger } from "../../../../src/telemetry/log.ts";
import { EXTREME_NUMBERS, NO_NUMBERS } from "../../../support/extreme-numbers.ts";
import { soon } from "../../../support/soon.ts";

const givenFolder = (): string => mkdtempSync(join(tmpdir(), "tollgate-journal-"));
/** Beside them lie the sockets of those that are open. */
const journalsIn = (folder: string): string[] =>
  readdirSync(folder).filter((name) => name.endsWith(".ndjson"));
const textIn = (folder: string): string =>
  journalsIn(folder)
    .map((name) => readFileSync(join(folder, name), "utf8"))
    .join("");

function givenLog() {
  const lines: string[] = [];
  return { lines, log: createLogger("debug", { write: (line) => void lines.push(line) }) };
}

describe("the reason why a folder cannot be used", () => {
  test.each([
    ["ENOSPC", "the disk is full"],
    ["EROFS", "the disk is read-only"],
    ["EACCES", "this user may not write there"],
    ["EBUSY", "EBUSY: what Node says"],
  ])("%s is said as: %s", (code, reason) => {
    expect(diskReason(Object.assign(new Error(`${code}: what Node says`), { code }))).toBe(reason);
  });
});

const OF_ENDED = `${hostname()}.closed`;

/** A file that an ended gateway has left behind. */
function leave(folder: string, text: string, name = `${OF_ENDED}.0123abcd.ndjson`): void {
  writeFileSync(join(folder, name), text);
}

const settlement = (requestId: string, storeId?: string): Settlement => ({
  storeId,
  atMs: Date.now(),
  script: "bind",
  call: {
    requestId,
    key: keyRef("k1", "a1", 1),
    price: 10,
    endpoint: "/api/v1/gen2/text-to-video",
    retentionMs: 3_600_000,
    idempotency: { digest: "d1", fingerprint: "f1" },
    task: { taskId: "t1", data: '{"task_id":"t1"}', pollMs: 1000, maxAgeMs: 7200, upstream: "u1" },
  },
});
const line = (requestId: string, store?: string): string => lineOf(settlement(requestId, store));

/** The id of the store of these journals. */
const OURS = "store-1";

/** The requests whose settlements a journal hands over at once; those of later looks follow. */
async function adopted(journal: Journal, store = OURS): Promise<string[]> {
  const found: string[] = [];
  const waiting: Settlement[] = [];
  function take(taken: readonly Settlement[]): void {
    waiting.push(...taken);
    found.push(...taken.map(({ call }) => call.requestId));
  }
  await journal.attach(store);
  await journal.watch({ waiting: () => waiting, take });
  return found;
}

/** Makes a file look as if nobody had touched it for a minute. */
function silence(path: string): void {
  const atSeconds = Date.now() / 1000 - 60;
  utimesSync(path, atSeconds, atSeconds);
}

/** A journal that is watched. `look` resolves after the next look. */
async function givenWatched(waiting: Settlement[] = []) {
  const folder = givenFolder();
  const { log, lines } = givenLog();
  const states: boolean[] = [];
  const changed = (usable: boolean): void => void states.push(usable);
  const journal = await openJournal(folder, log, { signOfLifeMs: 3_600_000, changed });
  await journal.watch({ waiting: () => waiting, take: () => undefined });
  let stores = 0;
  const look = (): Promise<void> => journal.attach(`store-${++stores}`);
  return { folder, journal, states, lines, look };
}

/** A process with a journal on this folder, none of whose files may grow until `lift`. */
function givenLimitedProcess(folder: string) {
  const program = join(import.meta.dirname, "journal-process.ts");
  const child = spawn(
    "sh",
    ["-c", 'ulimit -S -f 0; exec "$0" "$@"', process.execPath, program, folder, OURS],
    {
      stdio: ["pipe", "pipe", "pipe"],
    },
  );
  const text = { stdout: "", stderr: "" };
  for (const stream of ["stdout", "stderr"] as const)
    child[stream].on("data", (chunk: Buffer) => {
      text[stream] += chunk.toString();
    });
  const ended = once(child, "exit");
  return {
    lines: () => text.stdout.trim().split("\n"),
    errors: () => text.stderr,
    lift: () => spawnSync("prlimit", ["--pid", String(child.pid), "--fsize=unlimited"]),
    async stop() {
      child.stdin.end();
      await ended;
    },
  };
}

describe("the journal", () => {
  test("has a settlement on disk once append resolves", async () => {
    const folder = givenFolder();
    const journal = await openJournal(folder, givenLog().log);
    await journal.append(settlement("r1"));
    expect(JSON.parse(textIn(folder))).toMatchObject({
      script: "bind",
      call: { requestId: "r1", key: { keyId: "k1", accountId: "a1", partition: 1 } },
    });
    await journal.close();
  });

  test("is taken over from a process that is no more, and only once", async () => {
    const folder = givenFolder();
    leave(folder, line("r1") + line("r2"));
    const journals = await Promise.all([
      openJournal(folder, givenLog().log),
      openJournal(folder, givenLog().log),
    ]);
    const found = await Promise.all(journals.map((journal) => adopted(journal)));
    expect(found.flat().sort()).toEqual(["r1", "r2"]);
    await Promise.all(journals.map((journal) => journal.close()));
  });

  test("is taken over from another host only once it has long been silent", async () => {
    const folder = givenFolder();
    writeFileSync(join(folder, "elsewhere.0123456789ab.0123abcd.ndjson"), line("silent"));
    silence(join(folder, "elsewhere.0123456789ab.0123abcd.ndjson"));
    writeFileSync(join(folder, "elsewhere.0123456789ab.0123abce.ndjson"), line("alive"));
    const journal = await openJournal(folder, givenLog().log);
    expect(await adopted(journal)).toEqual(["silent"]);
    await journal.close();
  });

  test("survives a second end before what was taken over is settled, deadline and all", async () => {
    const folder = givenFolder();
    leave(folder, line("r1").replace("{", '{"untilMs":1234,'));
    const journal = await openJournal(folder, givenLog().log);
    await adopted(journal);
    // Everything that the process would need after another crash lies in its own file.
    expect(journalsIn(folder)).toHaveLength(1);
    expect(JSON.parse(textIn(folder))).toMatchObject({ call: { requestId: "r1" }, untilMs: 1234 });
    await journal.close();
  });

  // Guarantee: a charge reaches the store to which it is owed, or none.
  test("of another store is left as it is, and named once in the log", async () => {
    const folder = givenFolder();
    const theirs = `${OF_ENDED}.00000000.ndjson`;
    const text = line("r1", "store-2") + line("r2", "store-2").slice(0, 30);
    writeFileSync(join(folder, theirs), text);
    leave(folder, line("r3", OURS));
    const { log, lines } = givenLog();
    const journal = await openJournal(folder, log, { signOfLifeMs: 5 });
    const found = await adopted(journal);
    expect(found).toEqual(["r3"]);
    // Some looks later, and however long it is silent.
    silence(join(folder, theirs));
    leave(folder, line("r4", OURS));
    await soon(() => expect(found).toEqual(["r3", "r4"]));
    await journal.close();
    expect(readFileSync(join(folder, theirs), "utf8")).toBe(text);
    const warnings = lines
      .filter((each) => each.includes("of another store"))
      .map((each) => JSON.parse(each));
    expect(warnings).toMatchObject([{ level: "warn", file: theirs, store: "store-2", own_store: OURS }]);

    const right = await openJournal(folder, givenLog().log);
    expect(await adopted(right, "store-2")).toEqual(["r1"]);
    await right.close();
  });

  test("that two stores' gateways find at the same time goes to the right one", async () => {
    const folder = givenFolder();
    leave(folder, line("r1", OURS) + line("r2", OURS));
    const open = (): Promise<Journal> => openJournal(folder, givenLog().log);
    const journals = await Promise.all([open(), open(), open()]);
    const stores = ["store-2", OURS, "store-2"];
    expect(await Promise.all(journals.map((journal, at) => adopted(journal, stores[at])))).toEqual([
      [],
      ["r1", "r2"],
      [],
    ]);
    await Promise.all(journals.map((journal) => journal.close()));
  });

  test("with lines of two stores is left alone as a whole", async () => {
    const folder = givenFolder();
    leave(folder, line("r1", OURS) + line("r2", "store-2") + line("r3"));
    const journal = await openJournal(folder, givenLog().log);
    expect(await adopted(journal)).toEqual([]);
    await journal.close();
    expect(textIn(folder)).toContain('"requestId":"r3"');
  });

  test("is taken over only once the store is known, while its own file gives signs of life from the start", async () => {
    const folder = givenFolder();
    const journal = await openJournal(folder, givenLog().log, { signOfLifeMs: 5 });
    const [own] = journalsIn(folder);
    leave(folder, line("r1", OURS));
    const found: string[] = [];
    await journal.watch({
      waiting: () => [],
      take: (taken) => found.push(...taken.map(({ call }) => call.requestId)),
    });
    silence(join(folder, own!));
    await soon(() => expect(Date.now() - statSync(join(folder, own!)).mtimeMs).toBeLessThan(30_000));
    expect(found).toEqual([]);
    await journal.attach(OURS);
    expect(found).toEqual(["r1"]);
    expect(textIn(folder)).toContain(`"store":"${OURS}"`);
    await journal.close();
  });

  test("is left alone while another journal of this process has it open", async () => {
    const folder = givenFolder();
    const first = await openJournal(folder, givenLog().log);
    await first.append(settlement("r2"));
    silence(join(folder, journalsIn(folder)[0]!));
    const second = await openJournal(folder, givenLog().log);
    expect([await adopted(first), await adopted(second)]).toEqual([[], []]);
    await Promise.all([first.close(), second.close()]);
  });

  test("loses only the half line with which its writer ended", async () => {
    const folder = givenFolder();
    leave(folder, line("r1") + line("r2").slice(0, 30));
    const { log, lines } = givenLog();
    const journal = await openJournal(folder, log);
    expect(await adopted(journal)).toEqual(["r1"]);
    expect(lines.join("")).toContain("half a line");
    await journal.close();
  });

  // Guarantee: what append has promised is found again, also after a disk that was full for a moment.
  test("keeps a settlement whole that comes after one of which only half could be written", async () => {
    const folder = givenFolder();
    const journal = await openJournal(folder, givenLog().log);
    const handle = await open(join(folder, "probe"), "w");
    vi.spyOn(Object.getPrototypeOf(handle), "appendFile").mockImplementationOnce(async () => {
      const [name] = journalsIn(folder);
      appendFileSync(join(folder, name!), line("r1").slice(0, 30));
      throw new Error("ENOSPC: no space left on device");
    });
    await expect(journal.append(settlement("r1"))).rejects.toThrow("ENOSPC");
    await journal.append(settlement("r2"));
    await handle.close();
    const left = textIn(folder);
    await journal.close();
    vi.restoreAllMocks();

    const found = givenFolder();
    leave(found, left);
    const next = await openJournal(found, givenLog().log);
    expect(await adopted(next)).toEqual(["r2"]);
    await next.close();
  });

  // Guarantee: what is wrong with the file of one dead gateway does not lose the charges of the others.
  test("is taken over though another cannot be read, which is said once and tried again", async () => {
    const folder = givenFolder();
    const unreadable = `${OF_ENDED}.00000000.ndjson`;
    mkdirSync(join(folder, unreadable));
    leave(folder, line("r1"));
    const { log, lines } = givenLog();
    const journal = await openJournal(folder, log, { signOfLifeMs: 5 });
    const found = await adopted(journal);
    expect(found).toEqual(["r1"]);
    // Some looks later, it has its name, and one line in the log.
    leave(folder, line("r2"));
    await soon(() => expect(found).toEqual(["r1", "r2"]));
    expect(journalsIn(folder)).toContain(unreadable);
    expect(lines.filter((text) => text.includes(unreadable))).toHaveLength(1);
    rmdirSync(join(folder, unreadable));
    writeFileSync(join(folder, unreadable), line("r3"));
    await soon(() => expect(found).toEqual(["r1", "r2", "r3"]));
    await journal.close();
  });

  test("is taken over though another could not be kept on a disk that is full, which comes later", async () => {
    const folder = givenFolder();
    for (const at of [1, 2, 3]) leave(folder, line(`r${at}`), `${OF_ENDED}.0000000${at}.ndjson`);
    const journal = await openJournal(folder, givenLog().log, { signOfLifeMs: 5 });
    const handle = await open(join(folder, "probe"), "w");
    vi.spyOn(Object.getPrototypeOf(handle), "appendFile").mockRejectedValueOnce(new Error("ENOSPC"));
    expect(await adopted(journal)).toEqual(expect.arrayContaining(["r1", "r2", "r3"]));
    // All of it is in the journal's own file in the end.
    await soon(() => expect(journalsIn(folder)).toHaveLength(2));
    expect(new Set(textIn(folder).match(/"requestId":"r\d"/g)).size).toBe(3);
    await handle.close();
    await journal.close();
    vi.restoreAllMocks();
  });

  // Guarantee: a full disk beside what an ended gateway left trips no primary again and again, and counts no charge twice.
  test("hands over once what a full disk does not take, and removes the file once all that waits is on disk", async () => {
    const folder = givenFolder();
    leave(folder, line("r1", OURS) + line("r2", OURS));
    const handle = await open(join(givenFolder(), "any"), "w");
    onTestFinished(() => handle.close());
    const full = Object.assign(new Error("no space left on device"), { code: "ENOSPC" });
    const append = vi.spyOn(Object.getPrototypeOf(handle), "appendFile").mockRejectedValue(full);
    onTestFinished(() => append.mockRestore());
    const journal = await openJournal(folder, givenLog().log, { signOfLifeMs: 5 });
    await journal.attach(OURS);
    const taken: Settlement[] = [];
    let waiting: Settlement[] = [];
    await journal.watch({
      waiting: () => waiting,
      take(settlements) {
        taken.push(...settlements);
        waiting = [...settlements];
      },
    });
    const failures = append.mock.calls.length;
    await soon(() => expect(append.mock.calls.length).toBeGreaterThan(failures + 3));
    // One of the two is settled while the disk is full.
    waiting = waiting.slice(1);
    // A write that was under way has both.
    const settledAt = append.mock.calls.length;
    await soon(() => expect(append.mock.calls.length).toBeGreaterThan(settledAt + 1));
    append.mockRestore();
    await soon(() => expect(journalsIn(folder)).toHaveLength(1));
    expect(taken.map(({ call }) => call.requestId)).toEqual(["r1", "r2"]);
    expect(new Set(textIn(folder).match(/"requestId":"r\d"/g))).toEqual(new Set(['"requestId":"r2"']));
    await journal.close();
  });

  test("keeps what it has just taken over when an outbox that was empty clears it in the same moment", async () => {
    const folder = givenFolder();
    leave(folder, line("r1"));
    const journal = await openJournal(folder, givenLog().log);
    await journal.attach(OURS);
    let known = 0;
    const watched = journal.watch({ waiting: () => [], take: (taken) => (known += taken.length) });
    // As the first probe does: nothing waits as far as it knows, so it clears.
    while (known === 0) {
      await journal.clear(OURS);
      if (known === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    await watched;
    expect(textIn(folder)).toContain('"requestId":"r1"');
    await journal.close();
  });

  test("begins anew, with all that waits, when another gateway took its file while it was paused", async () => {
    const folder = givenFolder();
    const journal = await openJournal(folder, givenLog().log, { signOfLifeMs: 5 });
    await journal.attach(OURS);
    await journal.append(settlement("r1", OURS));
    await journal.watch({ waiting: () => [settlement("r1", OURS)], take: () => undefined });
    rmSync(join(folder, journalsIn(folder)[0]!));
    await soon(() => expect(textIn(folder)).toContain('"requestId":"r1"'));
    await journal.append(settlement("r2", OURS));
    expect(textIn(folder)).toContain('"requestId":"r2"');
    expect(textIn(folder).match(/"store":"store-1"/g)).toHaveLength(2);
    await journal.close();
  });

  test("survives that its folder goes away, says so, and comes back", async () => {
    const folder = givenFolder();
    const { log, lines } = givenLog();
    const journal = await openJournal(folder, log, { signOfLifeMs: 5 });
    await journal.append(settlement("r1"));
    await journal.watch({ waiting: () => [settlement("r1")], take: () => undefined });
    rmSync(folder, { recursive: true });
    await soon(() => expect(existsSync(folder) && textIn(folder)).toContain('"requestId":"r1"'));
    writeFileSync(join(folder, "elsewhere.0123456789ab.0123abcd.ndjson"), "");
    rmSync(folder, { recursive: true });
    writeFileSync(folder, "a file in its place");
    await soon(() => expect(lines.join("")).toContain("the journal cannot be kept"));
    await journal.close();
  });

  // Guarantee: a journal that could not keep a charge is noticed before there is one to keep.
  test("that vanishes while nothing waits is made again, which is said", async () => {
    const { folder, journal, states, lines, look } = await givenWatched();
    for (const remove of [
      () => rmSync(join(folder, journalsIn(folder)[0]!)),
      () => rmSync(folder, { recursive: true }),
    ]) {
      remove();
      await look();
      expect(journalsIn(folder)).toHaveLength(1);
    }
    expect(states).toEqual([true]);
    expect(lines.filter((each) => each.includes("were missing"))).toHaveLength(2);
    await journal.append(settlement("r1"));
    expect(textIn(folder)).toContain('"requestId":"r1"');
    await journal.close();
  });

  test("whose folder is a file now is unusable, which is said once, and recovers with all that waits", async () => {
    const waiting = [settlement("r1")];
    const { folder, journal, states, lines, look } = await givenWatched(waiting);
    await journal.append(waiting[0]!);
    rmSync(folder, { recursive: true });
    writeFileSync(folder, "in its place");
    for (let looks = 0; looks < 3; looks++) await look();
    expect(states).toEqual([true, false]);
    // A line that comes now cannot be kept, and is not reported as kept.
    await expect(journal.append(settlement("r2"))).rejects.toThrow();
    waiting.push(settlement("r2"));
    await look();
    expect(lines.filter((each) => each.includes("the journal cannot be kept"))).toHaveLength(1);
    expect(lines.join("")).toContain("a file is where the folder should be");
    rmSync(folder);
    await look();
    await look();
    expect(states).toEqual([true, false, true]);
    expect(textIn(folder).match(/"requestId":"r\d"/g)).toEqual(['"requestId":"r1"', '"requestId":"r2"']);
    expect(lines.filter((each) => each.includes("can be used again"))).toHaveLength(1);
    await journal.close();
  });

  test("that cannot grow is unusable while nothing waits, and takes over what ended gateways left all the same", async () => {
    const folder = givenFolder();
    leave(folder, line("left", OURS));
    const child = givenLimitedProcess(folder);
    await soon(() => expect(child.lines()).toEqual(["true", "false", "taken left"]));
    expect(child.errors()).toContain("the limit on the size of files (ulimit -f) is reached");
    child.lift();
    await soon(() => expect(child.lines()).toEqual(["true", "false", "taken left", "true"]));
    expect(textIn(folder)).toContain('"requestId":"left"');
    await child.stop();
  }, 60_000);

  test("writes again what a full disk did not take, once it has room", async () => {
    const waiting = [settlement("r1")];
    const { folder, journal, states, lines, look } = await givenWatched(waiting);
    const handle = await open(join(givenFolder(), "any"), "w");
    const full = Object.assign(new Error("no space left on device"), { code: "ENOSPC" });
    const datasync = vi.spyOn(Object.getPrototypeOf(handle), "datasync").mockRejectedValue(full);
    onTestFinished(() => datasync.mockRestore());
    await expect(journal.append(waiting[0]!)).rejects.toThrow("no space");
    expect(states, "at once, not at the next look").toEqual([true, false]);
    await look();
    expect(lines.filter((each) => each.includes("cannot be kept: the disk is full"))).toHaveLength(1);
    datasync.mockRestore();
    const [name] = journalsIn(folder);
    writeFileSync(join(folder, name!), "");
    await look();
    expect(states).toEqual([true, false, true]);
    expect(textIn(folder)).toContain('"requestId":"r1"');
    await handle.close();
    await journal.close();
  });

  test("is left by a look as it was, while settlements come", async () => {
    const { folder, journal, look } = await givenWatched();
    await journal.append(settlement("r1"));
    const before = textIn(folder);
    await Promise.all([look(), journal.append(settlement("r2")), look()]);
    expect(textIn(folder).startsWith(before)).toBe(true);
    expect(textIn(folder).trim().split("\n")).toHaveLength(2);
    await journal.clear(undefined);
    await look();
    await journal.close();
    expect(readdirSync(folder)).toEqual([]);
  });

  test("forgets what was settled, never what came after", async () => {
    const folder = givenFolder();
    const journal = await openJournal(folder, givenLog().log);
    const before = journal.append(settlement("r1"));
    const cleared = journal.clear(undefined);
    const after = journal.append(settlement("r2"));
    await Promise.all([before, cleared, after]);
    expect(textIn(folder).match(/"requestId":"r\d"/g)).toEqual(['"requestId":"r2"']);
    await journal.clear(undefined);
    await journal.close();
    expect(readdirSync(folder)).toEqual([]);
  });

  // Guarantee: what one store has answered is forgotten, and no line that another store is owed.
  test("keeps each store's settlements in a file of its own, and clears that of one store only", async () => {
    const folder = givenFolder();
    const journal = await openJournal(folder, givenLog().log);
    await Promise.all([
      journal.append(settlement("r1", "store-1")),
      journal.append(settlement("r2", "store-2")),
      journal.append(settlement("r3", "store-1")),
    ]);
    expect(journalsIn(folder)).toHaveLength(2);
    await journal.clear("store-1");
    expect(textIn(folder).match(/"requestId":"r\d"/g)).toEqual(['"requestId":"r2"']);
    // The file that is empty is the next store's.
    await journal.append(settlement("r4", "store-3"));
    expect(journalsIn(folder)).toHaveLength(2);
    await journal.clear("store-2");
    await journal.clear("store-3");
    await journal.close();
    expect(readdirSync(folder)).toEqual([]);
  });

  test("gives back what was put into it, charges and voids alike", async () => {
    const folder = givenFolder();
    const key = keyRef("k2", "a2", 63);
    const idempotencyDigest = "d2";
    const call = { key, requestId: "r2", idempotencyDigest, reason: "unsent" as const };
    const put: Settlement[] = [
      { ...settlement("r1", OURS), untilMs: 5000 },
      { script: "void", storeId: OURS, atMs: 1000, untilMs: 6000, call },
    ];
    leave(folder, put.map(lineOf).join(""));
    const taken: Settlement[] = [];
    const journal = await openJournal(folder, givenLog().log);
    await journal.attach(OURS);
    await journal.watch({ waiting: () => [], take: (settlements) => taken.push(...settlements) });
    expect(taken).toEqual(put);
    await journal.close();
  });

  test("is read past a line that makes no sense", async () => {
    const folder = givenFolder();
    leave(
      folder,
      `${line("r1", OURS)}{"format":1,"script":"bind"}\n{"requestId":"r2"}\nnull\n${line("r3", OURS)}`,
    );
    const { log, lines } = givenLog();
    const taken: Settlement[] = [];
    const journal = await openJournal(folder, log);
    await journal.attach(OURS);
    await journal.watch({ waiting: () => [], take: (settlements) => taken.push(...settlements) });
    const { call } = settlement("r1");
    expect(taken.map((each) => each.call)).toEqual([call, { ...call, requestId: "r3" }]);
    expect(lines.filter((each) => each.includes("makes no sense"))).toHaveLength(3);
    await journal.close();
  });

  test("says its format, and leaves a file of another format alone", async () => {
    const folder = givenFolder();
    const journal = await openJournal(folder, givenLog().log);
    await journal.append(settlement("r1", OURS));
    expect(JSON.parse(textIn(folder))).toMatchObject({ format: 1, store: OURS, call: { requestId: "r1" } });
    await journal.close();

    const later = givenFolder();
    const text = line("r1", OURS) + line("r2", OURS).replace('"format":1', '"format":2');
    leave(later, text);
    const { log, lines } = givenLog();
    const next = await openJournal(later, log);
    expect(await adopted(next)).toEqual([]);
    await next.close();
    expect(textIn(later)).toBe(text);
    expect(lines.filter((each) => each.includes("another version"))).toHaveLength(1);
  });

  test("holds a hundred settlements that come at once, each whole", async () => {
    const folder = givenFolder();
    const journal = await openJournal(folder, givenLog().log);
    await Promise.all(Array.from({ length: 100 }, (_, at) => journal.append(settlement(`r${at}`))));
    expect(
      textIn(folder)
        .trim()
        .split("\n")
        .map((text) => JSON.parse(text).requestId),
    ).toHaveLength(100);
    await journal.close();
  });
});

// A price of -10 credited an account, "10" and 1e308 became what Lua makes of them, and `null` kept the gateway from starting.
describe("a line whose settlement makes no sense is not sent", () => {
  const good = { ...JSON.parse(lineOf(settlement("good", OURS))) };
  const priced = (price: string): string =>
    JSON.stringify({ ...good, call: { ...good.call, price: 0 } }).replace('"price":0', `"price":${price}`);
  const texts = [...EXTREME_NUMBERS.map(([text]) => text), ...NO_NUMBERS, "null"];
  const isPrice = (text: string): boolean => {
    const whole = EXTREME_NUMBERS.find(([known]) => known === text)?.[1];
    return whole !== undefined && whole >= 0;
  };

  test.each(texts)("price %s", (text) => {
    const folder = givenFolder();
    const path = join(folder, "a.ndjson");
    writeFileSync(path, `${priced(text)}\n${lineOf(settlement("next", OURS))}`);
    const { log, lines } = givenLog();
    const found = readJournalFile(path, log).settlements.map(({ call }) => "price" in call && call.price);
    // JSON.parse takes a fraction beyond what a double holds for a whole number.
    if (isPrice(text) || found.length === 2) expect(found).toEqual([Number(text), 10]);
    else {
      expect(found).toEqual([10]);
      expect(lines.join()).toMatch(/makes no sense|half a line/);
    }
    expect(found.every((price) => Number.isSafeInteger(price) && Number(price) >= 0)).toBe(true);
  });

  test.each([
    "null",
    "5",
    "[]",
    '"bind"',
    "{}",
    '{"format":1}',
    '{"format":1,"call":null}',
    '{"format":1,"script":"bind","atMs":1,"call":{"key":{}}}',
    JSON.stringify({ ...good, format: 2 }),
    JSON.stringify({ ...good, script: "grant" }),
    JSON.stringify({ ...good, atMs: "soon" }),
    JSON.stringify({ ...good, call: { ...good.call, key: { ...good.call.key, partition: -1 } } }),
    JSON.stringify({ ...good, call: { ...good.call, task: null } }),
  ])("%s", (text) => {
    const path = join(givenFolder(), "a.ndjson");
    writeFileSync(path, `${text}\n${lineOf(settlement("next", OURS))}`);
    const { log, lines } = givenLog();
    expect(readJournalFile(path, log).settlements.map(({ call }) => call.requestId)).toEqual(["next"]);
    expect(lines.join()).toContain("makes no sense");
  });
});
