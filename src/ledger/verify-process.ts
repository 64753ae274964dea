import { type ChildProcess, spawn } from "node:child_process";
import { constants, setPriority } from "node:os";
import { join } from "node:path";
import type { ArchiveVerification } from "./archive/verify-archive.ts";
import type { Verification } from "./verify-run.ts";

const CLI = join(import.meta.dirname, "../cli.ts");
const HEAP_MB = 512;
const OUTPUT_CHARS_MAX = 4 * 1024 * 1024;
/** Each step is a page or an account. A command that Redis does not answer ends the check by itself after 10 seconds. */
const STALLED_AFTER_MS = 5 * 60_000;

interface ChildOptions {
  /** Program that verifies; the command line unless a test names another. */
  program?: string;
  stalledAfterMs?: number;
  /** Called with each sign of progress, in words. */
  onProgress?: (where: string) => void;
}

/**
 * Verifies the ledger in a process of its own, with a bound on memory and at low priority: it reads every ledger from
 * its beginning, and no customer should wait for that. It may take as long as it makes progress; one without any is
 * ended.
 * @param signal ends it
 * @throws Error in the words of the command line when it could not be done
 */
export const verifyInChild = (
  redisUrl: string,
  signal: AbortSignal,
  options: ChildOptions = {},
): Promise<Verification> => runInChild(["ledger", "verify"], { REDIS_URL: redisUrl }, signal, options);

/** The same for the archive. */
export const verifyArchiveInChild = (
  redisUrl: string,
  archiveUrl: string,
  signal: AbortSignal,
): Promise<ArchiveVerification> =>
  runInChild(["archive", "verify"], { REDIS_URL: redisUrl, ARCHIVE_URL: archiveUrl }, signal);

async function runInChild<Result>(
  command: readonly string[],
  env: Readonly<Record<string, string>>,
  signal: AbortSignal,
  { program = CLI, stalledAfterMs = STALLED_AFTER_MS, onProgress }: ChildOptions = {},
): Promise<Result> {
  const child = spawn(
    process.execPath,
    ["--disable-sigusr1", `--max-old-space-size=${HEAP_MB}`, program, ...command, "--json"],
    { env: { ...process.env, ...env }, signal, stdio: ["ignore", "pipe", "pipe", "ipc"] },
  );
  lowerPriority(child.pid);
  const stall = watchProgress(stalledAfterMs, () => child.kill("SIGKILL"));
  child.on("message", (message) => {
    stall.progress(String(message));
    onProgress?.(String(message));
  });
  try {
    const { stdout, stderr, how } = await outputOf(child);
    const complaint = stall.complaint();
    if (complaint !== undefined) throw new Error(complaint);
    try {
      // Violations end it with 1, and are the answer all the same.
      return JSON.parse(stdout) as Result;
    } catch (error) {
      throw new Error(stderr.trim() || `it answered nothing and ended with ${how}`, { cause: error });
    }
  } finally {
    stall.stop();
  }
}

function lowerPriority(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    setPriority(pid, constants.priority.PRIORITY_LOW);
  } catch {
    // Not allowed here: then at the same priority.
  }
}

/** Calls `end` once when there was no progress for so long. */
export function watchProgress(stalledAfterMs: number, end: () => void) {
  let where = "before its first step";
  let stalled = false;
  const timer = setTimeout(() => {
    stalled = true;
    end();
  }, stalledAfterMs);
  return {
    progress(at: string): void {
      where = `at ${at}`;
      if (!stalled) timer.refresh();
    },
    complaint: (): string | undefined =>
      stalled ? `it made no progress for ${stalledAfterMs / 1000} s ${where}, and was ended` : undefined,
    stop: () => clearTimeout(timer),
  };
}

/** What a process writes until it ends. @throws when it cannot be started or was aborted */
function outputOf(child: ChildProcess): Promise<{ stdout: string; stderr: string; how: string }> {
  const text = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name]?.setEncoding("utf8").on("data", (part: string) => {
      text[name] += part.slice(0, OUTPUT_CHARS_MAX - text[name].length);
    });
  }
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, signal) => resolve({ ...text, how: signal ?? `exit code ${code}` }));
  });
}
