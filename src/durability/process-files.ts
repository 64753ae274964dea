import { randomBytes } from "node:crypto";
import { closeSync, constants, fstatSync, openSync, readdirSync, readFileSync } from "node:fs";
import { hostname } from "node:os";

// Files in a folder that several processes share. Each process writes files of its own; other processes take over, or merge, those
// of processes that have ended. Anything else may lie in the folder, too.

/** A file that has not been written for this long belongs to a process that has ended. */
export const SILENT_MS = 45_000;

/** A new file name of this process. */
export const newFileName = (suffix: string): string =>
  `${hostname()}.${process.pid}.${randomBytes(4).toString("hex")}${suffix}`;

/** The names of a folder's files with this suffix; none if the folder cannot be read. */
export function fileNamesIn(folder: string, suffix: string): string[] {
  try {
    return readdirSync(folder).filter((name) => name.endsWith(suffix));
  } catch {
    return [];
  }
}

/**
 * The text of a regular file.
 * @throws Error for anything else, which could block for ever or lead elsewhere, and for a file that is too large
 */
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

/** Whether a process of this id runs on this host, whoever owns it. */
export function isRunning(pid: number): boolean {
  try {
    // 0 would mean this process.
    return pid > 0 && process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
