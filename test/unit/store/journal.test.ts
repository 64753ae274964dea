import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type Journal, openJournal } from "../../../src/store/journal.ts";
import type { Settlement } from "../../../src/store/outbox.ts";
import { createLogger } from "../../../src/telemetry/log.ts";

const bind: Settlement = { verb: "bind", keys: ["tg:{p01}:request:r"], args: ["", ";standard 1 1 1;", "r"] };
const givenFolder = (): string => mkdtempSync(join(tmpdir(), "tollgate-journal-"));
const textIn = (folder: string): string =>
  readdirSync(folder)
    .map((name) => readFileSync(join(folder, name), "utf8"))
    .join("");

function givenLog() {
  const lines: string[] = [];
  return { lines, log: createLogger("debug", { write: (line) => void lines.push(line) }) };
}

/** The id of a process that was and is no more. */
function endedProcess(): number {
  return spawnSync(process.execPath, ["--version"]).pid;
}

/** A file that an earlier process of this host left behind. */
function leave(folder: string, text: string, pid: number = endedProcess()): void {
  writeFileSync(join(folder, `${hostname()}.${pid}.0123abcd.ndjson`), text);
}

/** The requests whose settlements a journal hands over at once. */
async function adopted(journal: Journal): Promise<string[]> {
  const found: string[] = [];
  await journal.adopt((lines) => found.push(...lines.map(({ requestId }) => requestId)));
  return found;
}

const line = (requestId: string, ageMs = 0): string =>
  `${JSON.stringify({ ...bind, requestId, atMs: Date.now() - ageMs })}\n`;

describe("the journal", () => {
  test("has a settlement on disk once append resolves", async () => {
    const folder = givenFolder();
    const journal = await openJournal(folder, givenLog().log);
    await journal.append("r1", bind);
    expect(JSON.parse(textIn(folder))).toMatchObject({ requestId: "r1", verb: "bind", keys: bind.keys });
    await journal.close();
  });

  test("is taken over from a process that is no more, and only once", async () => {
    const folder = givenFolder();
    leave(folder, line("r1") + line("r2"));
    const journals = await Promise.all([
      openJournal(folder, givenLog().log),
      openJournal(folder, givenLog().log),
    ]);
    const found = await Promise.all(journals.map(adopted));
    expect(found.flat().sort()).toEqual(["r1", "r2"]);
    await Promise.all(journals.map((journal) => journal.close()));
  });

  test("is taken over from another host only once it has long been silent", async () => {
    const folder = givenFolder();
    const silentAtSeconds = Date.now() / 1000 - 60;
    writeFileSync(join(folder, "elsewhere.1.0123abcd.ndjson"), line("silent"));
    utimesSync(join(folder, "elsewhere.1.0123abcd.ndjson"), silentAtSeconds, silentAtSeconds);
    writeFileSync(join(folder, "elsewhere.1.0123abce.ndjson"), line("alive"));
    const journal = await openJournal(folder, givenLog().log);
    expect(await adopted(journal)).toEqual(["silent"]);
    await journal.close();
  });

  test("of an earlier container with the same host name and process id is taken over once silent", async () => {
    const folder = givenFolder();
    leave(folder, line("r1"), process.pid);
    const [name] = readdirSync(folder);
    const first = await openJournal(folder, givenLog().log);
    expect(await adopted(first)).toEqual([]);
    utimesSync(join(folder, name!), Date.now() / 1000 - 60, Date.now() / 1000 - 60);
    const second = await openJournal(folder, givenLog().log);
    expect(await adopted(second)).toEqual(["r1"]);
    await Promise.all([first.close(), second.close()]);
  });

  test("survives a second end before what was taken over is settled", async () => {
    const folder = givenFolder();
    leave(folder, line("r1"));
    const journal = await openJournal(folder, givenLog().log);
    await adopted(journal);
    // Everything that the process would need after another crash lies in its own file.
    expect(readdirSync(folder)).toHaveLength(1);
    expect(JSON.parse(textIn(folder))).toMatchObject({ requestId: "r1" });
    await journal.close();
  });

  test("is left alone while its process lives, here or under another process id", async () => {
    const folder = givenFolder();
    leave(folder, line("r1"), process.ppid);
    const first = await openJournal(folder, givenLog().log);
    await first.append("r2", bind);
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

  test("does not replay what the store may have forgotten, and says which request it was", async () => {
    const folder = givenFolder();
    leave(folder, line("old", 3_600_000) + line("new"));
    const { log, lines } = givenLog();
    const journal = await openJournal(folder, log);
    expect(await adopted(journal)).toEqual(["new"]);
    expect(lines.join("")).toContain('"request_id":"old"');
    await journal.close();
  });

  test("forgets what was settled, never what came after", async () => {
    const folder = givenFolder();
    const journal = await openJournal(folder, givenLog().log);
    const before = journal.append("r1", bind);
    const cleared = journal.clear();
    const after = journal.append("r2", bind);
    await Promise.all([before, cleared, after]);
    expect(textIn(folder).match(/"requestId":"r\d"/g)).toEqual(['"requestId":"r2"']);
    await journal.clear();
    await journal.close();
    expect(readdirSync(folder)).toEqual([]);
  });

  test("holds a hundred settlements that come at once, each whole", async () => {
    const folder = givenFolder();
    const journal = await openJournal(folder, givenLog().log);
    await Promise.all(Array.from({ length: 100 }, (_, at) => journal.append(`r${at}`, bind)));
    expect(
      textIn(folder)
        .trim()
        .split("\n")
        .map((text) => JSON.parse(text).requestId),
    ).toHaveLength(100);
    await journal.close();
  });
});
