import type { Logger } from "../../telemetry/log.ts";

/** Reasons that an operator can mend, by the code of the error. */
const REASONS: Readonly<Record<string, string>> = {
  ENOSPC: "the disk is full",
  EDQUOT: "the disk quota is used up",
  EFBIG: "the limit on the size of files (ulimit -f) is reached",
  EROFS: "the disk is read-only",
  ENOENT: "the folder is gone and cannot be made",
  ENOTDIR: "a file is where the folder should be",
  EEXIST: "a file is where the folder should be",
  EACCES: "this user may not write there",
  EPERM: "this user may not write there",
  EIO: "the disk has errors",
  EMFILE: "the process has no file descriptors left",
};

export function diskReason(error: unknown): string {
  const { code = "", message = String(error) } = error as NodeJS.ErrnoException;
  return REASONS[code] ?? message;
}

/** Tracks if a journal can be used. Logs each change once. */
export function createJournalState(
  folder: string,
  log: Logger,
  changed: (usable: boolean) => void,
): { usable(): void; unusable(error: unknown): void } {
  let reason: string | undefined;
  changed(true);
  return {
    usable() {
      if (reason === undefined) return;
      reason = undefined;
      changed(true);
      log.warn({ folder }, "the journal can be used again; all that waits is on disk");
    },
    unusable(error) {
      const now = diskReason(error);
      if (reason === now) return;
      reason = now;
      changed(false);
      log.error(
        { err: error, folder },
        `the journal cannot be kept: ${now}; while Redis is away, a crash would lose charges; it is tried again every 10 s`,
      );
    },
  };
}
