import { execFileSync } from "node:child_process";
import { openSync, writeFileSync } from "node:fs";
import { cpus, setPriority } from "node:os";
import { join } from "node:path";
import { type GuardedChild, startChild } from "../src/sandbox/child.ts";

/** The program under test has this core for itself. */
export const SUBJECT_CORE = "0";
/** Load, Redis, upstream and this program share the rest; with one core only there is no rest. */
export const OTHER_CORES = cpus().length < 2 ? "0" : cpus().length === 2 ? "1" : `1-${cpus().length - 1}`;

/** Where nginx and haproxy lie is not on everybody's path. */
export const SEARCHED = `${process.env.PATH ?? ""}:/usr/sbin:/sbin`;

const STOP_GRACE_MS = 10_000;
/** Of the processes that are started, where they go before others. */
const NICE = -15;

let first = false;

/** From now on what is started goes before other programs of this machine, as far as we may say so. */
export function goFirst(): void {
  first = true;
}

/** By its scheduling group, where the kernel makes one for each session, and by itself. */
export function prioritise(pid: number): void {
  if (!first) return;
  writeFileSync(`/proc/${pid}/autogroup`, String(NICE));
  setPriority(pid, NICE);
}

const living = new Set<GuardedChild>();

/** Moves this process to the cores of the load; whatever it starts begins there. */
export function leaveSubjectCore(): void {
  execFileSync("taskset", ["-acp", OTHER_CORES, String(process.pid)], { stdio: "ignore" });
}

export interface Started {
  pid: number;
  /** Settles in words when the process has ended. */
  ended: Promise<string>;
  stop(): Promise<void>;
}

export interface StartOptions {
  /** Where its output goes, `<name>.log`. */
  folder: string;
  name: string;
  cores?: string;
  cwd?: string;
  env?: NodeJS.ProcessEnv;
}

/** Starts a program that is ended with us, on the cores that are named. */
export async function startPinned(
  command: string,
  args: readonly string[],
  { folder, name, cores = SUBJECT_CORE, cwd = folder, env = {} }: StartOptions,
): Promise<Started> {
  const log = openSync(join(folder, `${name}.log`), "w");
  const child = await startChild("taskset", ["-c", cores, command, ...args], {
    cwd,
    env: { PATH: SEARCHED, ...env },
    stdio: ["ignore", log, log],
  });
  living.add(child);
  prioritise(child.pid);
  void child.ended.then(() => living.delete(child));
  return { pid: child.pid, ended: child.ended, stop: () => child.stop(STOP_GRACE_MS) };
}

/** Ends every process that was started here and lives still. */
export async function stopProcesses(): Promise<void> {
  await Promise.all([...living].map((child) => child.stop(STOP_GRACE_MS)));
}
