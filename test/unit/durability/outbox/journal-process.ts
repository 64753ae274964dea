import { openJournal } from "../../../../src/durability/outbox/journal.ts";
import type { Settlement } from "../../../../src/durability/outbox/outbox-queues.ts";
import { keyRef } from "../../../../src/records/names.ts";
import { createLogger } from "../../../../src/telemetry/log.ts";

// A journal in a process of its own, whose limits a test can change. Says on stdout what becomes of it, until stdin ends.
const [folder = "", storeId = "", kept] = process.argv.slice(2);
const log = createLogger("warn", { write: (line) => void process.stderr.write(line) });
const say = (what: string): void => void process.stdout.write(`${what}\n`);
const journal = await openJournal(folder, log, {
  signOfLifeMs: 50,
  changed: (usable) => say(String(usable)),
});
const waiting: Settlement[] = [];
await journal.attach(storeId);
await journal.watch({
  waiting: () => waiting,
  take(settlements) {
    for (const { call } of settlements) say(`taken ${call.requestId}`);
    waiting.push(...settlements);
  },
});
if (kept !== undefined) {
  const key = keyRef("k1", "a1", 1);
  const call = { requestId: kept, key, idempotencyDigest: undefined, reason: "unsent" as const };
  await journal.append({ storeId, atMs: Date.now(), script: "void", call });
  say(`kept ${kept}`);
}
process.stdin.on("end", () => void journal.close().then(() => process.exit(0))).resume();
