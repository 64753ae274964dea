import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { once } from "node:events";

/** A child process in its own group: the terminal's Ctrl-C does not reach it, so its parent decides the order of stopping. */
export interface GuardedChild {
  process: ChildProcess;
  pid: number;
  /** Settles when the process has ended; never rejects. */
  ended: Promise<string>;
  /** SIGTERM, then SIGKILL after `graceMs`. Safe to call more than once. */
  stop(graceMs: number): Promise<void>;
}

/**
 * Starts a child that does not outlive this process.
 * @throws when the program cannot be started at all
 */
export async function startChild(
  command: string,
  args: readonly string[],
  options: SpawnOptions,
): Promise<GuardedChild> {
  const child = spawn(command, args, { ...options, detached: true });
  const ended = new Promise<string>((resolve) => {
    child.once("exit", (code, signal) => resolve(signal ? `ended by ${signal}` : `exit code ${code}`));
    child.once("error", (error) => resolve(error.message));
  });
  await once(child, "spawn");
  const pid = child.pid!;
  const guard = startGuard(pid);
  void ended.then(() => stopGuard(guard));
  return { process: child, pid, ended, stop: (graceMs) => stopChild(child, ended, graceMs) };
}

async function stopChild(child: ChildProcess, ended: Promise<string>, graceMs: number): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), graceMs);
  await ended;
  clearTimeout(timer);
}

/**
 * A shell that waits for the end of a pipe which only this process holds open. When it crashes, even by SIGKILL, the pipe ends
 * and it stops the child; a detached child would otherwise stay behind and keep its port.
 */
function startGuard(pid: number): ChildProcess {
  const guard = spawn("sh", ["-c", 'cat >/dev/null; kill -TERM "$0" 2>/dev/null', String(pid)], {
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  // Without a shell there is no guard; an ordinary stop works all the same.
  guard.on("error", () => {});
  guard.stdin?.on("error", () => {});
  guard.unref();
  return guard;
}

/** By the group, for `cat` is a child of the shell; before the pipe ends, so that a reused pid is never hit. */
function stopGuard(guard: ChildProcess): void {
  if (guard.pid === undefined) return;
  try {
    process.kill(-guard.pid, "SIGKILL");
  } catch {
    // It is gone already.
  }
}
