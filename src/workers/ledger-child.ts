import { execFile } from "node:child_process";
import { constants, setPriority } from "node:os";
import { join } from "node:path";
import type { Verification } from "../store/ledger.ts";

const CLI = join(import.meta.dirname, "../cli.ts");
const HEAP_MB = 512;
const TIME_MAX_MS = 15 * 60_000;
const OUTPUT_BYTES_MAX = 4 * 1024 * 1024;

/**
 * Verifies the books in a process of its own, with a bound on memory and time and at low priority: it reads every
 * ledger from its beginning, and no customer should wait for that.
 * @param signal ends it
 * @throws Error in the words of the command line when it could not be done
 */
export function verifyInChild(redisUrl: string, signal: AbortSignal): Promise<Verification> {
  return new Promise((resolve, reject) => {
    const child = execFile(
      process.execPath,
      [`--max-old-space-size=${HEAP_MB}`, CLI, "ledger", "verify", "--json"],
      {
        env: { ...process.env, REDIS_URL: redisUrl },
        signal,
        timeout: TIME_MAX_MS,
        maxBuffer: OUTPUT_BYTES_MAX,
      },
      (error, stdout, stderr) => {
        try {
          // Violations end it with 1, and are the answer all the same.
          resolve(JSON.parse(stdout) as Verification);
        } catch {
          reject(new Error(stderr.trim() || error?.message || "it answered nothing", { cause: error }));
        }
      },
    );
    if (child.pid === undefined) return;
    try {
      setPriority(child.pid, constants.priority.PRIORITY_LOW);
    } catch {
      // Not allowed here: then at the same priority.
    }
  });
}
