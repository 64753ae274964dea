import { mkdirSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { takeoversSince, withFurtherTakeovers } from "./takeovers.ts";

const AT = new Date(2026, 10, 27, 2, 2, 25, 251).getTime();

test("takeovers are read from the logs of Sentinels and nodes, those since the strike alone", async () => {
  const folder = await mkdtemp(join(tmpdir(), "tollgate-takeovers-"));
  for (const [name, line] of [
    ["sentinel-1", "7:X 27 Nov 2026 02:02:25.251 # +promoted-slave slave 127.0.0.1:2 @ tollgate 127.0.0.1 1"],
    ["sentinel-2", "8:X 27 Nov 2026 02:02:25.300 # +switch-master tollgate 127.0.0.1 1 127.0.0.1 2"],
    ["redis-5", "9:S 27 Nov 2026 02:02:24.000 * Failover election won: I'm the new master."],
    ["redis-6", "9:S 27 Nov 2026 02:02:27.059 * Failover election won: I'm the new master."],
  ] as const) {
    mkdirSync(join(folder, name));
    writeFileSync(join(folder, name, "redis.log"), `1:M 27 Nov 2026 02:00:00.000 * Ready\n${line}\n`);
  }
  expect(takeoversSince(folder, AT - 1000)).toEqual([AT, AT + 1808]);
  await rm(folder, { recursive: true });
});

test("the failover that was struck forgets no more than before; each further one does", () => {
  const forgets = [AT - 3000, AT - 1000] as const;
  const strike = { atMs: AT - 1500, forgets };
  const harmless = { atMs: AT - 1500, forgets: undefined };
  expect(withFurtherTakeovers("kill", strike, [AT])).toBe(forgets);
  expect(withFurtherTakeovers("kill", strike, [AT, AT + 1808])).toEqual([AT - 3000, AT + 2308]);
  expect(withFurtherTakeovers("kill", strike, [AT - 9000, AT])).toEqual([AT - 10_000, AT - 1000]);
  expect(withFurtherTakeovers("reset", harmless, [])).toBeUndefined();
  expect(withFurtherTakeovers("reset", harmless, [AT])).toEqual([AT - 1000, AT + 500]);
  expect(withFurtherTakeovers("loss", strike, [AT])).toEqual([AT - 3000, AT + 500]);
});
