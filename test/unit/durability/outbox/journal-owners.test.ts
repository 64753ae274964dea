import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { LastConfirmedFile } from "../../../../src/durability/losses/last-confirmed.ts";
import { openRecentEntries, readRecentEntries } from "../../../../src/durability/losses/recent-entries.ts";
import { type Journal, openJournal } from "../../../../src/durability/outbox/journal.ts";
import { FILE_BYTES_MAX, lineOf } from "../../../../src/durability/outbox/journal-lines.ts";
import type { Settlement } from "../../../../src/durability/outbox/outbox-queues.ts";
import { keyRef } from "../../../../src/records/names.ts";
import { createLogger } from "../../../../src/telemetry/log.ts";
import { soon } from "../../../support/soon.ts";

const OURS = "store-1";
const PROGRAM = join(import.meta.dirname, "journal-process.ts");
/** Process and network namespaces of its own, where this user may make them; else the process is one like any other. */
const APART = ["unshare", "-Urnpf", "--kill-child"];
const wayApart = spawnSync(APART[0]!, [...APART.slice(1), "true"]).status === 0 ? APART : [];

const givenFolder = (): string => mkdtempSync(join(tmpdir(), "tollgate-owners-"));
const named = (folder: string, suffix: string): string[] =>
  readdirSync(folder).filter((name) => name.endsWith(suffix));
const quiet = createLogger("error", { write: () => undefined });

const settlement = (requestId: string): Settlement => ({
  storeId: OURS,
  atMs: Date.now(),
  script: "void",
  call: { requestId, key: keyRef("k1", "a1", 1), idempotencyDigest: undefined, reason: "unsent" },
});

/** Makes a file look as if nobody had touched it for a minute. */
function silence(path: string): void {
  const atSeconds = Date.now() / 1000 - 60;
  utimesSync(path, atSeconds, atSeconds);
}

/** Another gateway on the folder. `look` takes over at once what it may. */
async function givenJournal(folder: string, log = quiet) {
  const journal: Journal = await openJournal(folder, log, { signOfLifeMs: 3_600_000 });
  onTestFinished(() => journal.close());
  const taken: string[] = [];
  await journal.watch({
    waiting: () => [],
    take: (settlements) => taken.push(...settlements.map(({ call }) => call.requestId)),
  });
  let looks = 0;
  return {
    journal,
    taken,
    async look(): Promise<void> {
      // Only another store has it look at once.
      await journal.attach(`other-${looks++}`);
      await journal.attach(OURS);
    },
  };
}

/** A gateway's journal in a process of its own, which has the settlement `r1` on disk. */
async function givenOtherProcess(folder: string) {
  const [command = process.execPath, ...args] = [...wayApart, process.execPath, PROGRAM, folder, OURS, "r1"];
  const child: ChildProcess = spawn(command, args, { stdio: ["pipe", "pipe", "ignore"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  let output = "";
  child.stdout!.on("data", (chunk: Buffer) => {
    output += chunk.toString();
  });
  await soon(() => expect(output).toContain("kept r1"));
  const pid = wayApart.length > 0 ? childOf(child.pid!) : child.pid!;
  return {
    signal: (name: NodeJS.Signals): boolean => process.kill(pid, name),
    ended: once(child, "exit"),
  };
}

const childOf = (pid: number): number =>
  Number(readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim());

// Guarantee: what a living gateway keeps is nobody else's, whatever namespaces it is in and however long it stalls.
test("the journal of a living process in other namespaces is left alone, and taken over at once when it is killed", async () => {
  const folder = givenFolder();
  const other = await givenOtherProcess(folder);
  const [theirs] = named(folder, ".ndjson");
  const mine = await givenJournal(folder);
  other.signal("SIGSTOP");
  silence(join(folder, theirs!));
  await mine.look();
  expect(mine.taken).toEqual([]);
  expect(readdirSync(folder)).toContain(theirs);
  other.signal("SIGKILL");
  await other.ended;
  await mine.look();
  expect(mine.taken).toEqual(["r1"]);
  expect(named(folder, ".lock"), "those of the living").toHaveLength(1);
});

test("a socket on another machine, or in another mount, says nothing: the file counts once it is silent", async () => {
  const folder = givenFolder();
  const other = await givenOtherProcess(folder);
  other.signal("SIGKILL");
  await other.ended;
  const forged = "host.0123456789ab.00000000";
  for (const suffix of [".ndjson", ".lock"])
    renameSync(join(folder, named(folder, suffix)[0]!), join(folder, forged + suffix));
  const mine = await givenJournal(folder);
  await mine.look();
  expect(mine.taken).toEqual([]);
  silence(join(folder, `${forged}.ndjson`));
  await mine.look();
  expect(mine.taken).toEqual(["r1"]);
});

test("a file whose writer has no socket counts once it is silent, and one that was closed at once", async () => {
  const folder = givenFolder();
  writeFileSync(join(folder, "host.unlocked.00000000.ndjson"), lineOf(settlement("r1")));
  writeFileSync(join(folder, "host.closed.00000000.ndjson"), lineOf(settlement("r2")));
  const mine = await givenJournal(folder);
  await mine.look();
  expect(mine.taken).toEqual(["r2"]);
  silence(join(folder, "host.unlocked.00000000.ndjson"));
  await mine.look();
  expect(mine.taken).toEqual(["r2", "r1"]);
});

test("what a gateway leaves when it stops is taken over at once", async () => {
  const folder = givenFolder();
  const first = await openJournal(folder, quiet);
  await first.append(settlement("r1"));
  await first.close();
  expect(named(folder, ".lock")).toEqual([]);
  const next = await givenJournal(folder);
  await next.look();
  expect(next.taken).toEqual(["r1"]);
});

// Guarantee: append resolves when the line is where others find it.
test("a gateway whose file was taken writes elsewhere what comes after that, before it says that it is kept", async () => {
  const folder = givenFolder();
  const { journal } = await givenJournal(folder);
  await journal.append(settlement("r1"));
  const [own] = named(folder, ".ndjson");
  renameSync(join(folder, own!), join(folder, "taken"));
  await journal.append(settlement("r2"));
  const text = named(folder, ".ndjson").map((name) => readFileSync(join(folder, name), "utf8"));
  expect(text.join("")).toContain('"requestId":"r2"');
});

test("a folder whose path is longer than the address of a socket may be has owners, too", async () => {
  const folder = join(givenFolder(), "a".repeat(200));
  mkdirSync(folder);
  const first = await givenJournal(folder);
  await first.journal.append(settlement("r1"));
  const second = await givenJournal(folder);
  await second.look();
  expect(second.taken).toEqual([]);
  expect(named(folder, ".lock")).toHaveLength(2);
});

test("sockets whose files are gone are removed", async () => {
  const folder = givenFolder();
  const other = await givenOtherProcess(folder);
  other.signal("SIGKILL");
  await other.ended;
  renameSync(join(folder, named(folder, ".ndjson")[0]!), join(folder, "elsewhere"));
  const [left] = named(folder, ".lock");
  const mine = await givenJournal(folder);
  await mine.look();
  expect(readdirSync(folder), "a file may be about to be made").toContain(left);
  silence(join(folder, left!));
  await mine.look();
  expect(readdirSync(folder)).not.toContain(left);
});

// Guarantee: nothing in the folder keeps a gateway from starting, or stops it for longer than a look takes.
test("pipes, folders, links and huge files in the folder are not opened, and what is beside them is taken over", async () => {
  const folder = givenFolder();
  const outside = join(givenFolder(), "outside");
  writeFileSync(outside, lineOf(settlement("outside")));
  const strange = ["host.closed.0000000", "host.1.0000000"];
  for (const [prefix, suffix] of [
    [strange[0], ".ndjson"],
    [strange[1], ".last-entries.json"],
    [strange[1], ".entries.jsonl"],
  ]) {
    const path = (at: number): string => join(folder, `${prefix}${at}${suffix}`);
    expect(spawnSync("mkfifo", [path(1)]).status).toBe(0);
    mkdirSync(path(2));
    symlinkSync(outside, path(3));
    writeFileSync(path(4), "");
    truncateSync(path(4), 2 ** 40);
    symlinkSync("/dev/zero", path(5));
  }
  writeFileSync(join(folder, "host.closed.00000009.ndjson"), lineOf(settlement("r1")));
  const lines: string[] = [];
  const log = createLogger("warn", { write: (line) => void lines.push(line) });
  const confirmed = new LastConfirmedFile(folder, log);
  confirmed.keep(OURS, "ledger", { id: "1-1", accountId: "a", kind: "grant", credits: 1, reference: "r" });
  await confirmed.save();
  const recent = openRecentEntries(folder, log);
  await recent.keep([{ storeId: OURS, acceptedAt: 0, ledger: "l", after: undefined, entries: [] }]);
  readRecentEntries(folder, OURS, 0);
  const mine = await givenJournal(folder, log);
  await mine.look();
  await mine.look();
  expect(mine.taken).toEqual(["r1"]);
  const logged = lines.map((line) => JSON.parse(line) as { file?: string; msg: string });
  for (const at of [1, 2, 3, 4, 5])
    expect(
      logged.filter(({ file }) => file?.endsWith(`0${at}.ndjson`)),
      `${at}`,
    ).toHaveLength(1);
  expect(logged.filter(({ file }) => file?.endsWith(".last-entries.json"))).toHaveLength(5);
});

test("a file does not become larger than what is read, which is said", async () => {
  const folder = givenFolder();
  const lines: string[] = [];
  const { journal } = await givenJournal(
    folder,
    createLogger("error", { write: (line) => void lines.push(line) }),
  );
  await journal.append(settlement("r1"));
  truncateSync(join(folder, named(folder, ".ndjson")[0]!), FILE_BYTES_MAX);
  await expect(journal.append(settlement("r2"))).rejects.toThrow("full");
  expect(lines.join("")).toContain("the journal cannot be kept: the journal file is full");
});
