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
  guardChild(pid);
  void ended.then(() => forgetChild(pid));
  return { process: child, pid, ended, stop: (graceMs) => stopChild(child, ended, graceMs) };
}

async function stopChild(child: ChildProcess, ended: Promise<string>, graceMs: number): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), graceMs);
  await ended;
  clearTimeout(timer);
}

/** Ends what still runs once its standard input ends, be it by SIGKILL: only this process holds the pipe open. */
export const GUARD = `while read -r what pid; do
  rest=
  for other in $pids; do [ "$other" = "$pid" ] || rest="$rest $other"; done
  [ "$what" = ended ] || rest="$rest $pid"
  pids=$rest
done
[ -z "$pids" ] || kill -TERM $pids`;

/** One for all children: a large process takes long to start another. */
let guard: ChildProcess | undefined;
const running = new Set<number>();

function guardChild(pid: number): void {
  running.add(pid);
  if (guard) tellGuard("started", pid);
  else startGuard();
}

function startGuard(): void {
  guard = spawn("sh", ["-c", GUARD], { detached: true, stdio: ["pipe", "ignore", "ignore"] });
  // Without a shell an ordinary stop still works.
  guard.on("error", () => {});
  guard.on("exit", () => {
    guard = undefined;
  });
  guard.stdin?.on("error", () => {});
  guard.unref();
  for (const one of running) tellGuard("started", one);
}

/** At once, so that a reused pid is never hit. */
function forgetChild(pid: number): void {
  running.delete(pid);
  tellGuard("ended", pid);
}

const tellGuard = (what: "started" | "ended", pid: number): void =>
  void guard?.stdin?.write(`${what} ${pid}\n`);
