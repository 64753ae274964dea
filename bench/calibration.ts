import { type ChildProcess, execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { prioritise, SUBJECT_CORE } from "./processes.ts";

/** A fixed loop on the core of the program under test. */
export interface Calibration {
  /** How much longer the loop takes now than it did at its fastest in this run; 1 is undisturbed. */
  slowdown(): Promise<number>;
  stop(): void;
}

/** Starts the loop's process; it sleeps but for the moments in which it is asked. */
export async function startCalibration(): Promise<Calibration> {
  const child = fork(join(import.meta.dirname, "spin.ts"), { stdio: ["ignore", "ignore", "inherit", "ipc"] });
  await once(child, "spawn");
  execFileSync("taskset", ["-acp", SUBJECT_CORE, String(child.pid)], { stdio: "ignore" });
  prioritise(child.pid!);
  let fastestMs = Number.POSITIVE_INFINITY;
  const slowdown = async (): Promise<number> => {
    const ms = await spin(child);
    fastestMs = Math.min(fastestMs, ms);
    return ms / fastestMs;
  };
  for (let warmUp = 0; warmUp < 5; warmUp++) await slowdown();
  return { slowdown, stop: () => void child.kill() };
}

async function spin(child: ChildProcess): Promise<number> {
  const answer = once(child, "message");
  child.send("spin");
  const [{ ms }] = (await answer) as [{ ms: number }];
  return ms;
}
