import { mkdtemp, readdir, rm, stat, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { LastConfirmedFile, readLastConfirmed } from "../../../../src/durability/losses/last-confirmed.ts";
import { createLogger } from "../../../../src/telemetry/log.ts";

const LEDGER = "tg:{p00}:ledger";
const OLD = new Date(0);

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "tollgate-confirmed-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const entryOf = (id: string) => ({ id, accountId: "a", kind: "charge", credits: 1, reference: "" });

/** The file of a process that has long been silent. */
async function givenFile(name: string, entry: string, format = 1): Promise<void> {
  const path = join(folder, `${name}.last-entries.json`);
  const stores = { store: { acceptedAt: 0, entries: { [LEDGER]: entryOf(entry) }, terms: {} } };
  await writeFile(path, JSON.stringify({ format, stores }));
  await utimes(path, OLD, OLD);
}

// Guarantee: what a store has confirmed is forgotten by no gateway that has not learned it.
test("only files of silent processes that were read, and have not changed since, are replaced", async () => {
  await givenFile("ended", "5-0");
  await givenFile("later-release", "9-0", 2);
  await givenFile("woke-up", "6-0");
  await givenFile("running", "4-0");
  await utimes(join(folder, "running.last-entries.json"), OLD, new Date());
  await writeFile(join(folder, "cut.last-entries.json"), '{"format":1,"stor');
  await utimes(join(folder, "cut.last-entries.json"), OLD, OLD);
  const file = new LastConfirmedFile(folder, createLogger("silent"));
  await givenFile("woke-up", "8-0");
  await utimes(join(folder, "woke-up.last-entries.json"), OLD, new Date(1000));
  file.keep("store", LEDGER, entryOf("7-0"));
  await file.save();
  const left = (await readdir(folder)).map((name) => name.split(".")[0]);
  expect(left).toEqual(expect.arrayContaining(["later-release", "woke-up", "running", "cut"]));
  expect(left).not.toContain("ended");
  expect(readLastConfirmed(folder).get("store")?.entries.get(LEDGER)?.id).toBe("8-0");
});

test("a folder that cannot be written is said once, and what came meanwhile is written once it can be", async () => {
  const lines: string[] = [];
  const log = createLogger("info", { write: (line) => void lines.push(line) });
  const file = new LastConfirmedFile(folder, log);
  await rm(folder, { recursive: true });
  await writeFile(folder, "in its place");
  for (let at = 1; at <= 3; at++) {
    file.keep("store", LEDGER, entryOf(`${at}-0`));
    await file.save();
  }
  expect(lines.filter((line) => line.includes("cannot be written"))).toHaveLength(1);
  await rm(folder);
  await file.save();
  expect(readLastConfirmed(folder).get("store")?.entries.get(LEDGER)?.id).toBe("3-0");
  await rm(folder, { recursive: true });
  await writeFile(folder, "in its place again");
  file.keep("store", LEDGER, entryOf("4-0"));
  await file.save();
  expect(lines.filter((line) => line.includes("cannot be written"))).toHaveLength(2);
});

// Guarantee: an acceptance survives the gateway that has read it, and what changes nothing writes nothing: it is asked each second.
test("an acceptance is written, and what is known already is not written again", async () => {
  const file = new LastConfirmedFile(folder, createLogger("silent"));
  expect(file.of("store")).toEqual({ acceptedAt: 0, entries: new Map() });
  file.keep("store", LEDGER, entryOf("1-0"));
  file.keepTerm("store", "t", termOf(1, "r"));
  await file.save();
  const [name] = await readdir(folder);
  const { ino } = await stat(join(folder, name!));
  file.keep("store", LEDGER, entryOf("1-0"));
  file.keepTerm("store", "t", termOf(1, "r"));
  await file.save();
  expect((await stat(join(folder, name!))).ino).toBe(ino);
  file.accept("store", 7);
  await file.save();
  expect(readLastConfirmed(folder).get("store")).toEqual({ acceptedAt: 7, entries: new Map() });
});

const termOf = (term: number, replid: string) => ({ term, replid, at: { host: "h", port: term } });

// Guarantee: entries that an operator has accepted as lost are asked for by no gateway that reads the folder later.
test.each([
  ["before", ["a", "b"]],
  ["after", ["b", "a"]],
])("the latest acceptance counts, read %s what was confirmed until then", async (_, [first, second]) => {
  const write = (name: string | undefined, content: object) =>
    writeFile(
      join(folder, `${name}.last-entries.json`),
      JSON.stringify({ format: 1, stores: { store: content } }),
    );
  await write(first, { acceptedAt: 7, entries: { [LEDGER]: entryOf("3-0") }, terms: { t: termOf(2, "r") } });
  await write(second, { acceptedAt: 0, entries: { [LEDGER]: entryOf("9-0") }, terms: { t: termOf(3, "s") } });
  const file = new LastConfirmedFile(folder, createLogger("silent"));
  expect(file.of("store")).toEqual({ acceptedAt: 7, entries: new Map([[LEDGER, entryOf("3-0")]]) });
  expect(file.term("store", "t")).toEqual(termOf(3, "s"));
});

// Guarantee: no gateway goes back to a primary whose term was over.
test("a term is replaced by a later one, and by another server's of the same number, and survives a restart", async () => {
  const file = new LastConfirmedFile(folder, createLogger("silent"));
  for (const [term, replid, kept] of [
    [2, "r", 2],
    [1, "s", 2],
    [2, "s", 2],
    [3, "r", 3],
  ] as const) {
    file.keepTerm("store", "t", termOf(term, replid));
    expect(file.term("store", "t")).toEqual(termOf(kept, term === 1 ? "r" : replid));
  }
  await file.save();
  expect(new LastConfirmedFile(folder, createLogger("silent")).term("store", "t")).toEqual(termOf(3, "r"));
});

test("eight stores are remembered; the one known longest is forgotten with its terms", async () => {
  const file = new LastConfirmedFile(folder, createLogger("silent"));
  for (let at = 1; at <= 9; at++) {
    file.keep(`store ${at}`, LEDGER, entryOf("1-0"));
    file.keepTerm(`store ${at}`, "t", termOf(1, "r"));
    if (at === 8) expect(file.term("store 1", "t")).toBeDefined();
  }
  await file.save();
  expect([...readLastConfirmed(folder).keys()]).toEqual(
    Array.from({ length: 8 }, (_, at) => `store ${at + 2}`),
  );
  expect(file.term("store 1", "t")).toBeUndefined();
});
