import { appendFile, mkdtemp, readdir, rm, stat, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
  type LedgerPage,
  openRecentEntries,
  readRecentEntries,
} from "../../../../src/durability/losses/recent-entries.ts";
import { createLogger } from "../../../../src/telemetry/log.ts";

const LEDGER = "tg:{p00}:ledger";
const BYTES_MAX = 2000;
const log = createLogger("silent");

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "tollgate-entries-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const entry = (id: string) => ({
  id,
  accountId: "a",
  kind: "charge",
  credits: 1,
  reference: "",
  requestId: "r",
});
const page = (after: string | undefined, ids: string[], more: Partial<LedgerPage> = {}): LedgerPage => ({
  storeId: "store",
  acceptedAt: 0,
  ledger: LEDGER,
  after,
  entries: ids.map(entry),
  ...more,
});
const known = (acceptedAt = 0) =>
  [...(readRecentEntries(folder, "store", acceptedAt).get(LEDGER)?.values() ?? [])].map(({ id, after }) => [
    id,
    after,
  ]);

// Guarantee: the entries that a store confirmed lately are on disk, and take no more of it than they may.
test("entries are appended, and cut by putting a file aside", async () => {
  const recent = openRecentEntries(folder, log, BYTES_MAX);
  for (let ms = 1; ms <= 200; ms++) await recent.keep([page(`${ms - 1}-0`, [`${ms}-0`])]);
  const names = await readdir(folder);
  expect(names).toHaveLength(2);
  for (const name of names) expect((await stat(join(folder, name))).size).toBeLessThan(BYTES_MAX + 300);
  const ids = known().map(([id]) => id);
  expect(ids.length).toBeGreaterThan(BYTES_MAX / 300);
  expect(ids.length).toBeLessThan(40);
  expect(ids).toContain("200-0");
});

test("what a folder holds is bounded: the oldest files of ended processes are removed", async () => {
  for (let at = 1; at <= 10; at++) {
    const path = join(folder, `ended.${at}.entries.jsonl`);
    await writeFile(path, Buffer.alloc(10 * 2 ** 20, "\n"));
    await utimes(path, at, at);
  }
  await openRecentEntries(folder, log).keep([page(undefined, ["1-0"])]);
  const left = (await readdir(folder)).filter((name) => name.startsWith("ended")).sort();
  expect(left).toEqual(["10", "5", "6", "7", "8", "9"].map((at) => `ended.${at}.entries.jsonl`));
});

test("what several processes know is one list; half a line, other stores and what was accepted before are passed over", async () => {
  const [one, two] = [openRecentEntries(folder, log), openRecentEntries(folder, log)];
  await one.keep([page("1-0", ["2-0", "3-0"]), page("0-0", ["9-0"], { storeId: "another" })]);
  await two.keep([page(undefined, ["3-0"]), page("3-0", ["4-0"]), page("4-0", ["5-0"], { acceptedAt: 7 })]);
  const [name] = await readdir(folder);
  await appendFile(join(folder, name!), '{"format":1,"store":"store","acce');
  expect(known().sort()).toEqual([
    ["2-0", "1-0"],
    ["3-0", "2-0"],
    ["4-0", "3-0"],
    ["5-0", "4-0"],
  ]);
  expect(known(7)).toEqual([["5-0", "4-0"]]);
});

test("a folder that cannot be written is said once, and what comes after it is kept again", async () => {
  const lines: string[] = [];
  const blocked = join(folder, "file");
  await writeFile(blocked, "");
  const recent = openRecentEntries(
    blocked,
    createLogger("info", { write: (line: string) => void lines.push(line) }),
  );
  await recent.keep([page("1-0", ["2-0"])]);
  await recent.keep([page("2-0", ["3-0"])]);
  expect(lines).toHaveLength(1);
  await rm(blocked);
  await recent.keep([page("3-0", ["4-0"])]);
  const kept = readRecentEntries(blocked, "store", 0).get(LEDGER);
  expect(kept?.get("4-0")?.after).toBe("3-0");
});
