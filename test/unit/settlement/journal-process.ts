import { openJournal } from "../../../src/settlement/journal.ts";
import { createLogger } from "../../../src/telemetry/log.ts";

// A journal in a process of its own, whose limits a test can change. Says on stdout what becomes of it, until stdin ends.
const [folder = "", storeId = ""] = process.argv.slice(2);
const log = createLogger("warn", { write: (line) => void process.stderr.write(line) });
const say = (what: string): void => void process.stdout.write(`${what}\n`);
const journal = await openJournal(folder, log, {
  signOfLifeMs: 50,
  changed: (usable) => say(String(usable)),
});
const taken = new Set<string>();
await journal.attach(storeId);
await journal.watch({
  waiting: () => [],
  take(settlements) {
    for (const { call } of settlements) {
      const { requestId } = call;
      if (!taken.has(requestId)) say(`taken ${requestId}`);
      taken.add(requestId);
    }
  },
});
process.stdin.on("end", () => void journal.close().then(() => process.exit(0))).resume();
