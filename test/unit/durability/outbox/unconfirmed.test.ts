import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import { createUnconfirmed } from "../../../../src/durability/outbox/confirming.ts";
import type { Journal, JournalOwner } from "../../../../src/durability/outbox/journal.ts";
import { lineOf, readJournalFile } from "../../../../src/durability/outbox/journal-lines.ts";
import { createOutbox } from "../../../../src/durability/outbox/outbox.ts";
import type { Charge, Settlement } from "../../../../src/durability/outbox/outbox-queues.ts";
import { keyRef } from "../../../../src/records/names.ts";
import type { Run } from "../../../../src/scripts/script-definition.ts";
import { createLogger } from "../../../../src/telemetry/log.ts";
import { memoryJournal } from "../../../support/memory-journal.ts";
import { bindBy, newTask } from "../../../support/store.ts";

const NOW_MS = 1_800_000_000_000;
const KEY = keyRef("key", "account", 1);
const chargeOf = (requestId: string, storeId = "A"): Charge => ({
  script: "bind",
  storeId,
  atMs: NOW_MS,
  call: { requestId, key: KEY, price: 10, endpoint: "/", retentionMs: 3_600_000, task: newTask("task") },
});

/** An outbox over a journal that only counts, and a store that answers everything. */
function givenOutbox(options: { confirms?: false; onDisk?: Promise<void> } = {}) {
  const seen = { clears: 0, lines: [] as Settlement[], drops: 0, size: 0, found: 0 };
  const sent: string[] = [];
  let owner: JournalOwner | undefined;
  const journal: Journal = {
    ...memoryJournal,
    async append(settlement) {
      seen.lines.push(settlement);
      await options.onDisk;
    },
    async clear() {
      seen.clears++;
      seen.lines = [];
    },
    async watch(one) {
      owner = one;
    },
  };
  const unconfirmed =
    options.confirms === false
      ? undefined
      : createUnconfirmed({
          changed: (size) => {
            seen.size = size;
          },
          dropped: () => void seen.drops++,
        });
  const outbox = createOutbox({
    log: createLogger("silent"),
    journal,
    settleWithinMs: () => 60_000,
    changed: () => undefined,
    unconfirmed,
  });
  void outbox.watch(() => void seen.found++);
  const run: Run = async (script, call) => {
    sent.push((call as Charge["call"]).requestId);
    return script.read(["bound", 0], call);
  };
  const target = (runId: string, storeId = "A") => ({
    run,
    bind: bindBy(run),
    storeId,
    runId,
    has: ({ call }: Settlement) => call.key.partition === KEY.partition,
    nowMs: () => NOW_MS,
  });
  const take = (settlements: readonly Settlement[]): void => owner!.take(settlements);
  return { outbox, unconfirmed: unconfirmed!, seen, sent, target, take, owner: () => owner! };
}

test("a settlement that is sent from the journal keeps its line until replicas have it", async () => {
  const { outbox, unconfirmed, seen, sent, target } = givenOutbox();
  await outbox.put(chargeOf("r1"));
  await outbox.flush(target("run 1"));
  expect(sent).toEqual(["r1"]);
  expect([outbox.size(), seen.size, seen.clears]).toEqual([0, 1, 0]);
  // It owes nothing to this run of the primary, so the next probe does not send it.
  await outbox.flush(target("run 1"));
  expect(sent).toEqual(["r1"]);
  unconfirmed.remove(unconfirmed.answeredBy("run 1"));
  await outbox.clearJournal("A");
  expect([seen.size, seen.clears]).toEqual([0, 1]);
});

// Guarantee: no charge is counted by two gateways, as long as its line is left.
test("a charge that was sent from the journal is a repeat for the gateway that finds its lines", async () => {
  const { outbox, seen, target } = givenOutbox();
  await outbox.put(chargeOf("r1"));
  await outbox.flush(target("run 1"));
  const next = givenOutbox();
  next.take(seen.lines);
  expect([next.seen.found, next.outbox.size()]).toEqual([0, 0]);
  expect(next.unconfirmed.all()).toMatchObject([{ replay: true, call: { requestId: "r1" } }]);
});

// Guarantee: a primary that may lack an answered charge is sent it before the breaker closes.
test("another run of the primary is sent what the one before has answered, and another store is not", async () => {
  const { outbox, unconfirmed, sent, target } = givenOutbox();
  await outbox.keepAnswered(chargeOf("r1"), "run 1");
  await outbox.keepAnswered(chargeOf("of another store", "B"), "run 1");
  await outbox.flush(target("run 2"));
  expect(sent).toEqual(["r1"]);
  expect(unconfirmed.answeredBy("run 2").map(({ call }) => call.requestId)).toEqual(["r1"]);
  expect(unconfirmed.answeredBy("run 1").map(({ storeId }) => storeId)).toEqual(["B"]);
});

test("an answered charge of a gateway that ended opens no breaker, and is sent once more", async () => {
  const { outbox, seen, sent, target, take } = givenOutbox();
  take([{ ...chargeOf("r1"), replay: true, acknowledged: true }]);
  expect([seen.found, outbox.sizeFor("A"), seen.size]).toEqual([0, 0, 1]);
  await outbox.sendMissed(target("run 1"));
  expect(sent).toEqual(["r1"]);
  take([chargeOf("r2")]);
  expect([seen.found, outbox.sizeFor("A")]).toEqual([1, 1]);
});

test("without confirmation it waits as any other, is sent once more and done", async () => {
  const { outbox, seen, sent, target, take } = givenOutbox({ confirms: false });
  take([{ ...chargeOf("r1"), replay: true, acknowledged: true }]);
  expect(seen.found).toBe(1);
  await outbox.flush(target("run 1"));
  expect([sent, outbox.size(), seen.clears]).toEqual([["r1"], 0, 1]);
});

// Guarantee: a crash right after an answer loses no charge, and the next gateway counts none twice.
test("a charge is on disk before its request goes on, and the line of an answered one says so", async () => {
  const onDisk = Promise.withResolvers<void>();
  const { outbox, seen } = givenOutbox({ onDisk: onDisk.promise });
  const goesOn = vi.fn();
  const all = [outbox.put(chargeOf("waits")), outbox.keepAnswered(chargeOf("answered"), "run 1")];
  const ended = all.map((one) => one.then(goesOn));
  await setImmediate();
  expect(goesOn).not.toHaveBeenCalled();
  onDisk.resolve();
  await Promise.all(ended);
  expect(await all[1]).toBe(true);
  const [waits, answered] = seen.lines;
  expect(waits).toEqual({ ...chargeOf("waits"), untilMs: NOW_MS + 60_000 });
  const states = { replay: true, acknowledged: true, untilMs: NOW_MS + 60_000 };
  expect(answered).toEqual({ ...chargeOf("answered"), ...states });
});

test("an answered charge that the disk does not take is kept in memory, and said to be only there", async () => {
  const full = Promise.reject(new Error("ENOSPC"));
  full.catch(() => undefined);
  const { outbox, seen } = givenOutbox({ onDisk: full });
  expect(await outbox.keepAnswered(chargeOf("r1"), "run 1")).toBe(false);
  expect(seen.size).toBe(1);
});

test("lines that vanished from the disk are written again, answered charges too", async () => {
  const { outbox, owner } = givenOutbox();
  await outbox.put(chargeOf("waits"));
  await outbox.keepAnswered(chargeOf("answered"), "run 1");
  expect([...owner().waiting()].map(({ call }) => call.requestId)).toEqual(["waits", "answered"]);
});

// Guarantee: replicas that stay away fill neither the memory nor the disk.
test("the newest 50,000 are kept, in memory and in a file of at most 100,000 lines; what is dropped is said once", async () => {
  const { outbox, seen } = givenOutbox();
  for (let at = 0; at < 100_000; at++) await outbox.keepAnswered(chargeOf(`r${at}`), "run 1");
  expect([seen.size, seen.drops, seen.clears]).toEqual([50_000, 1, 1]);
  expect(seen.lines.length).toBe(50_000);
  expect(seen.lines.at(-1)?.call.requestId).toBe("r99999");
  expect(new Set(seen.lines.map(({ call }) => call.requestId)).size).toBe(50_000);
});

test("the line of an answered charge says so", () => {
  const states = { replay: true, unpaid: true, acknowledged: true };
  const line = lineOf({ ...chargeOf("r1"), ...states });
  expect(JSON.parse(line)).toMatchObject({ format: 1, script: "bind", ...states });
  const path = join(mkdtempSync(join(tmpdir(), "tollgate-lines-")), "lines");
  writeFileSync(path, line + lineOf(chargeOf("r2")));
  const [answered, waiting] = readJournalFile(path).settlements;
  expect(answered).toMatchObject({ ...states, call: { requestId: "r1" } });
  expect(waiting?.acknowledged).toBeUndefined();
});
