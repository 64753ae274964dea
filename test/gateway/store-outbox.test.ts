import { expect, test } from "vitest";
import { type Journal, memoryJournal } from "../../src/store/journal.ts";
import { createOutbox, type Settlement } from "../../src/store/outbox.ts";
import type { Scripts } from "../../src/store/scripts.ts";
import { createLogger } from "../../src/telemetry/log.ts";

const log = createLogger("silent");
const bind = (requestId: string, ageMs = 0): Settlement => ({
  requestId,
  atMs: Date.now() - ageMs,
  verb: "bind",
  keys: [],
  args: [],
});

/** An outbox whose store answers everything, and what the store was sent. */
function givenOutbox(journal: Partial<Journal>) {
  const sent: string[] = [];
  const outbox = createOutbox({
    log,
    journal: { ...memoryJournal, ...journal },
    settleWithinMs: () => 60_000,
    changed: () => undefined,
  });
  const answer = (verb: string) => async () => {
    sent.push(verb);
    return ["bound", 0];
  };
  const scripts = { bind: answer("bind"), void: answer("void") } as Partial<Scripts> as Scripts;
  return { outbox, sent, flush: () => outbox.flush(scripts) };
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

test("a journal that cannot be cleared does not keep the store away", async () => {
  const { outbox, sent, flush } = givenOutbox({ clear: () => Promise.reject(new Error("ENOSPC")) });
  await outbox.put(bind("a"));
  await flush();
  expect(sent).toEqual(["bind"]);
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
