import { join } from "node:path";
import { type GuardedChild, startChild } from "../../src/sandbox/child.ts";

/** Starts a file of this folder as a process of its own that reads its job from a file, and whose output is read. */
export const startProcess = (file: string, ...args: string[]): Promise<GuardedChild> =>
  startChild(process.execPath, [join(import.meta.dirname, file), ...args], {
    stdio: ["ignore", "pipe", "inherit"],
  });
