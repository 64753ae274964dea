import { mkdtempSync, rmSync, statSync, utimesSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { lockCursorFile } from "../../../src/commands/ledger-cursor.ts";
import { until } from "../../support/until.ts";

// Guarantee: another machine, which cannot see our process, does not take a living export's lock away.
test("the lock of a long export is touched until it is let go", async () => {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-lock-"));
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
  onTestFinished(() => {
    vi.useRealTimers();
    rmSync(folder, { recursive: true });
  });
  const cursorFile = join(folder, "ledger.cursor");
  const unlock = lockCursorFile(cursorFile);
  utimesSync(`${cursorFile}.lock`, 0, 0);
  vi.advanceTimersByTime(10_000);
  await until(() => statSync(`${cursorFile}.lock`).mtimeMs > Date.now() - 60_000, "the touch");
  unlock();
  expect(statSync(`${cursorFile}.lock`, { throwIfNoEntry: false })).toBeUndefined();
  expect(vi.getTimerCount()).toBe(0);
});
