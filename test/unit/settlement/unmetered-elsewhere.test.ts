import { execFileSync } from "node:child_process";
import { appendFileSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { FILE_BYTES_MAX, lineOf } from "../../../src/durability/outbox/journal-lines.ts";
import type { Charge } from "../../../src/durability/outbox/outbox-queues.ts";
import { keyRef } from "../../../src/records/names.ts";
import { createUnmeteredElsewhere } from "../../../src/settlement/unmetered-elsewhere.ts";
import { newTask } from "../../support/store.ts";

let folder: string;
let other: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "tollgate-unmetered-"));
  other = join(folder, "host.1.00000000.ndjson");
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const line = (taskId: string, more: Partial<Charge["call"]> = {}, storeId = "A"): string => {
  const key = keyRef("key", "ann", 1);
  const task = newTask(taskId, { upstream: "tag", data: '{"näme":"ü"}' });
  const call = {
    requestId: `unmetered_${taskId}`,
    key,
    price: 0,
    endpoint: "/",
    retentionMs: 1,
    task,
    ...more,
  };
  return lineOf({ script: "bind", storeId, atMs: 1, call });
};
const given = () => createUnmeteredElsewhere(folder, () => "A");
const FOUND = { accountId: "ann", upstream: "tag" };

test("a task is found in a journal that grows, also one that is written in halves or cleared meanwhile", async () => {
  const { find } = given();
  expect(await find("task_1")).toBeUndefined();
  writeFileSync(other, line("task_1"));
  expect(await find("task_1")).toEqual(FOUND);
  const second = line("task_2");
  appendFileSync(other, second.slice(0, 90));
  expect(await find("task_2")).toBeUndefined();
  appendFileSync(other, second.slice(90));
  expect(await find("task_2")).toEqual(FOUND);
  // Cleared, and longer than it was before the next look.
  writeFileSync(other, ["task_3", "task_4", "task_5"].map((taskId) => line(taskId)).join(""));
  expect(await find("task_3")).toEqual(FOUND);
});

test("a line that is longer than what is read at a time is found, and so is what follows it", async () => {
  writeFileSync(other, `${"x".repeat(3_000_000)}\n${line("task_1")}`);
  expect(await given().find("task_1")).toEqual(FOUND);
});

// Guarantee: a look finds what was there when it was asked for, however many ask.
test("each of many polls at a time finds what was written before it", async () => {
  const { find } = given();
  const first = find("task_1");
  writeFileSync(other, line("task_1"));
  const second = find("task_1");
  await first;
  expect(await second).toEqual(FOUND);
});

test("charges, tasks of another store and lines that make no sense are none", async () => {
  const lines = [line("charged", { price: 10 }), line("elsewhere", {}, "B"), '{"price":0,\n', line("task_1")];
  writeFileSync(other, lines.join(""));
  const { find } = given();
  expect(await find("task_1")).toEqual(FOUND);
  expect(await find("charged")).toBeUndefined();
  expect(await find("elsewhere")).toBeUndefined();
});

// Guarantee: nothing in the folder makes a poll wait, or shows what is not a journal.
test("a pipe, a folder and a link in the journal folder are passed over", async () => {
  execFileSync("mkfifo", [join(folder, "host.2.00000000.ndjson")]);
  execFileSync("mkdir", [join(folder, "host.3.00000000.ndjson")]);
  const elsewhere = mkdtempSync(join(tmpdir(), "tollgate-linked-"));
  writeFileSync(join(elsewhere, "linked.ndjson"), line("linked"));
  symlinkSync(join(elsewhere, "linked.ndjson"), join(folder, "host.4.00000000.ndjson"));
  writeFileSync(other, line("task_1"));
  const { find } = given();
  expect(await find("task_1")).toEqual(FOUND);
  expect(await find("linked")).toBeUndefined();
  rmSync(elsewhere, { recursive: true });
});

// Guarantee: a file that no gateway takes over costs no poll anything.
test("a file that is larger than a journal becomes is passed over", async () => {
  const huge = join(folder, "host.2.00000000.ndjson");
  writeFileSync(huge, line("huge"));
  truncateSync(huge, FILE_BYTES_MAX + 1);
  writeFileSync(other, line("task_1"));
  const { find } = given();
  expect(await find("task_1")).toEqual(FOUND);
  expect(await find("huge")).toBeUndefined();
});

test("so many tasks are remembered, the latest ones", async () => {
  const { find } = given();
  const pattern = line("task_NTH");
  const lines = Array.from({ length: 100_001 }, (_, nth) => pattern.replaceAll("NTH", String(nth)));
  writeFileSync(other, lines.join(""));
  expect(await find("task_100000")).toEqual(FOUND);
  rmSync(other);
  expect(await find("task_1")).toEqual(FOUND);
  expect(await find("task_0")).toBeUndefined();
});
