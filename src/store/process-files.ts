import { randomBytes } from "node:crypto";
import { readdirSync, statSync } from "node:fs";
import { hostname } from "node:os";
import { basename } from "node:path";

// Files in a folder that several processes share. Each process writes files of its own, and touches them while it lives;
// other processes take over, or merge, those of processes that have ended.

/** A file that has not been written for this long belongs to a process that has ended. */
export const SILENT_MS = 45_000;

/** host.process.random and a suffix */
const NAME = /^(.+)\.(\d+)\.[0-9a-f]{8}\./;

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

/** Whether the process of a file has ended: it runs no more on this host, or has not touched the file for long. */
export function isOfEndedProcess(path: string): boolean {
  const [, host, pid] = NAME.exec(basename(path)) ?? [];
  if (host === hostname() && Number(pid) !== process.pid && !isRunning(Number(pid))) return true;
  const { mtimeMs = Date.now() } = statSync(path, { throwIfNoEntry: false }) ?? {};
  return Date.now() - mtimeMs > SILENT_MS;
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
