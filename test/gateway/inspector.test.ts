import { readFileSync } from "node:fs";
import { expect, inject, test } from "vitest";
import { ROOT } from "../support/cli.ts";
import { until } from "../support/gateway.ts";
import { startGatewayProcess } from "../support/processes.ts";

/** Processes that a process has started, on Linux. */
const childrenOf = (pid: number): number[] =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);

/** True if SIGUSR1 is blocked or ignored, so that no handler of Node takes it; on Linux. */
function ignoresSigusr1(pid: number): boolean {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const caught = /^SigCgt:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? "0";
  return (BigInt(`0x${caught}`) & (1n << 9n)) === 0n;
}

// Guarantee: no signal opens a debugger, in the supervisor, in a worker, or in a gateway that is one process.
test.each([1, 2])("SIGUSR1 opens no inspector with %i processes", async (workers) => {
  const gateway = await startGatewayProcess({
    redisUrl: inject("redisUrl"),
    upstreamUrl: "http://127.0.0.1:1",
    config: { server: { workers } },
  });
  const pids = [gateway.pid, ...(workers > 1 ? childrenOf(gateway.pid) : [])];
  expect(pids).toHaveLength(workers > 1 ? workers + 1 : 1);
  expect(pids.map(ignoresSigusr1)).toEqual(pids.map(() => true));
  for (const pid of pids) process.kill(pid, "SIGUSR1");
  await until(async () => (await fetch(`${gateway.adminUrl}/livez`)).status === 200, "a live gateway");
  await gateway.stop();
  const { stdout, stderr } = await gateway.ended();
  expect(stdout + stderr).not.toContain("Debugger");
});

test("every npm script that starts one of our programs ignores SIGUSR1", () => {
  const { scripts } = JSON.parse(readFileSync(`${ROOT}/package.json`, "utf8"));
  // It looks which Node it is and ends, so that one without the option says more than "bad option".
  const check = "node src/node-version.js";
  const programs = Object.values<string>(scripts).filter(
    (line) => /node .*src\//.test(line) && line !== check,
  );
  expect(programs).toHaveLength(4);
  expect(programs.filter((line) => !line.includes("--disable-sigusr1"))).toEqual([]);
});
