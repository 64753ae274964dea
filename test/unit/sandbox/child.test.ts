import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { isRunning } from "../../../src/durability/process-files.ts";
import { GUARD } from "../../../src/sandbox/child.ts";
import { until } from "../../support/until.ts";

const CHILD = join(import.meta.dirname, "../../../src/sandbox/child.ts");

/** Also not as a process that has ended and that nobody has waited for, as in a container without an init process. */
function isThere(pid: number): boolean {
  if (!isRunning(pid)) return false;
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return true;
  }
}

/** Starts children, ends the second of them, and says who they are. */
const STARTER = `
  const { startChild } = await import(${JSON.stringify(CHILD)});
  const sleeper = () => startChild("sleep", ["600"], { stdio: "ignore" });
  const children = [await sleeper(), await sleeper(), await sleeper()];
  await children[1].stop(1000);
  console.log(JSON.stringify(children.map(({ pid }) => pid)));
  setInterval(() => {}, 1000);
`;

// Guarantee: no server of a start, of a test or of a campaign outlives the process that started it.
test("children end with the process that started them, though that is killed", async () => {
  const args = ["--input-type=module", "--eval", STARTER];
  const starter = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(starter.stdout.setEncoding("utf8"), "data");
  const [first, ended, last] = JSON.parse(line) as [number, number, number];
  expect([first, ended, last].map(isThere)).toEqual([true, false, true]);
  starter.kill("SIGKILL");
  await until(() => !isThere(first) && !isThere(last), "the children to end");
});

test("a process with children that run may end by itself", async () => {
  const text = STARTER.replace(/setInterval.*/, "children[0].process.unref(); children[2].process.unref();");
  const args = ["--input-type=module", "--eval", text];
  const starter = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  const [[line], [code]] = await Promise.all([
    once(starter.stdout.setEncoding("utf8"), "data"),
    once(starter, "exit"),
  ]);
  expect(code).toBe(0);
  const [first, , last] = JSON.parse(line as string) as [number, number, number];
  await until(() => !isThere(first) && !isThere(last), "the children to end");
});

// Guarantee: a process that got the number of a child that has ended is left alone.
test("of children that have ended the guard knows nothing", async () => {
  const sleepers = [0, 1, 2].map(() => spawn("sleep", ["600"], { stdio: "ignore" }));
  const [first, second, third] = sleepers.map(({ pid }) => pid!) as [number, number, number];
  const guard = spawn("sh", ["-c", GUARD], { stdio: ["pipe", "ignore", "inherit"] });
  const events = [`started ${first}`, `started ${second}`, `started ${third}`, `ended ${second}`];
  guard.stdin.end(`${events.join("\n")}\n`);
  await once(guard, "exit");
  await until(() => !isThere(first) && !isThere(third), "the others to be ended");
  expect(isThere(second)).toBe(true);
  sleepers[1]!.kill();
});
