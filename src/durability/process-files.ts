import { randomBytes } from "node:crypto";
import { closeSync, constants, fstatSync, openSync, readdirSync, readFileSync } from "node:fs";
import { hostname } from "node:os";

// Files of several processes in one folder. A process writes only its own, and takes over or merges those of ended
// processes. The folder may have anything else, too.

/** After this time without a write the process of a file has ended. */
export const SILENT_MS = 45_000;

export const newFileName = (suffix: string): string =>
  `${hostname()}.${process.pid}.${randomBytes(4).toString("hex")}${suffix}`;

export function fileNamesIn(folder: string, suffix: string): string[] {
  try {
    return readdirSync(folder).filter((name) => name.endsWith(suffix));
  } catch {
    return [];
  }
}

/** @throws Error for anything but a regular file of the size allowed: others could block for ever or lead elsewhere */
export function readRegularFile(path: string, bytesMax: number): string {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const stats = fstatSync(fd);
    if (!stats.isFile()) throw new Error("it is not a regular file");
    if (stats.size > bytesMax)
      throw new Error(`it has ${stats.size} bytes, and at most ${bytesMax} are read`);
    return readFileSync(fd, "utf8");
  } finally {
    closeSync(fd);
  }
}

export function isRunning(pid: number): boolean {
  try {
    // 0 would mean this process.
    return pid > 0 && process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
