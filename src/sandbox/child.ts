import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { once } from "node:events";

/** In its own group: the terminal's Ctrl-C does not reach it. */
export interface GuardedChild {
  process: ChildProcess;
  pid: number;
  ended: Promise<string>;
  stop(graceMs: number): Promise<void>;
}

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

/** A shell that waits for a pipe of this process and then stops the child, also after SIGKILL. */
function startGuard(pid: number): ChildProcess {
  const guard = spawn("sh", ["-c", 'cat >/dev/null; kill -TERM "$0" 2>/dev/null', String(pid)], {
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  // Without a shell an ordinary stop still works.
  guard.on("error", () => {});
  guard.stdin?.on("error", () => {});
  guard.unref();
  return guard;
}

/** Before the pipe ends, so that a reused pid is never hit. */
function stopGuard(guard: ChildProcess): void {
  if (guard.pid === undefined) return;
  try {
    process.kill(-guard.pid, "SIGKILL");
  } catch {
    // Already ended.
  }
}
