import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync, renameSync, statSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import type { Logger } from "../telemetry/log.ts";
import type { Settlement } from "./outbox.ts";

/** A file that has not been touched for this long belongs to nobody; a living gateway touches its own far oftener. */
const SILENT_MS = 45_000;

/** host.process.random.ndjson */
const NAME = /^(.+)\.(\d+)\.[0-9a-f]{8}\.ndjson$/;

/** Files that gateways of this process have; neither silence nor process id may take them away. */
export const openHere = new Set<string>();

/** A new file name of this process. */
export const newFile = (folder: string): string =>
  join(folder, `${hostname()}.${process.pid}.${randomBytes(4).toString("hex")}.ndjson`);

/**
 * Claims the files of gateways that have ended, by renaming: of two that look for them, each file goes to one.
 * @returns paths of the claimed files, which are in `openHere` from then on
 */
export function claimAbandoned(folder: string): string[] {
  const claimed: string[] = [];
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    if (!NAME.test(name) || openHere.has(path) || !hasEnded(name, path)) continue;
    const taken = newFile(folder);
    try {
      renameSync(path, taken);
      openHere.add(taken);
      claimed.push(taken);
    } catch {
      // Another gateway was faster.
    }
  }
  return claimed;
}

/** Its process is no more; or it has long been silent, whoever has its host name and process id now. */
function hasEnded(name: string, path: string): boolean {
  const [, host, pid] = NAME.exec(name) ?? [];
  if (host === hostname() && Number(pid) !== process.pid && !isAlive(Number(pid))) return true;
  const { mtimeMs = Date.now() } = statSync(path, { throwIfNoEntry: false }) ?? {};
  return Date.now() - mtimeMs > SILENT_MS;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** The settlements in a journal file; the last line may be cut where its writer ended. */
export function readSettlements(path: string, log: Logger): Settlement[] {
  return readFileSync(path, "utf8")
    .split("\n")
    .flatMap((text) => {
      if (text === "") return [];
      try {
        return [JSON.parse(text) as Settlement];
      } catch {
        log.warn({ file: path }, "the journal ends in half a line; its request's hold ends at the due time");
        return [];
      }
    });
}
