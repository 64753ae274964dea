import { randomBytes } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import type { Logger } from "../telemetry/log.ts";
import type { Settlement } from "./outbox.ts";

/**
 * Older entries are not replayed: the store may have forgotten the request by then, and a charge that was made
 * would be made again. Far below the shortest retention of finished records.
 */
const REPLAY_AGE_MAX_MS = 30 * 60_000;

/** A settlement as one line on disk. */
interface Line extends Pick<Settlement, "verb" | "keys" | "args"> {
  requestId: string;
  atMs: number;
}

export interface Journal {
  /** Settlements that an earlier process of this machine left unanswered. */
  recovered: readonly Line[];
  /** Resolves once the settlement is on disk. Lines that come together share one flush to disk. */
  append(requestId: string, settlement: Settlement): Promise<void>;
  /** Every settlement so far has been answered: forgets them. */
  clear(): Promise<void>;
  close(): Promise<void>;
}

/** A line to write, or undefined to forget all that came before. */
interface Job {
  text: string | undefined;
  resolve(): void;
  reject(error: unknown): void;
}

/** Without a disk: what waits is lost with the process. For tools that settle nothing, and for tests. */
export const memoryJournal: Journal = {
  recovered: [],
  append: async () => undefined,
  clear: async () => undefined,
  close: async () => undefined,
};

/** Files that living gateways of this process write; their process id does not tell them from left ones. */
const openHere = new Set<string>();

/**
 * The settlements that wait for the store, on disk, so that a charge outlives the process that owes it. One file a
 * gateway in a common folder, named by host and process; files of processes that are no more are taken over.
 * Replaying is safe: each script has the effect of once.
 * @throws when the folder cannot be written
 */
export async function openJournal(folder: string, log: Logger): Promise<Journal> {
  mkdirSync(folder, { recursive: true });
  const prefix = `${hostname()}.${process.pid}`;
  const file = join(folder, `${prefix}.${randomBytes(4).toString("hex")}.ndjson`);
  const handle: FileHandle = await open(file, "ax", 0o600);
  openHere.add(file);
  const left = abandoned(folder);
  const recovered = left.flatMap((path) => readLines(path, log));

  let waiting: Job[] = [];
  let writing = false;

  /** Does what waits, in order: a line that comes after a `clear` is written after it. */
  async function write(): Promise<void> {
    writing = true;
    while (waiting.length > 0) {
      const jobs = waiting;
      waiting = [];
      const lastClear = jobs.findLastIndex(({ text }) => text === undefined);
      try {
        if (lastClear >= 0) await handle.truncate(0);
        await handle.appendFile(
          jobs
            .slice(lastClear + 1)
            .map(({ text }) => text)
            .join(""),
        );
        await handle.datasync();
        for (const { resolve } of jobs) resolve();
      } catch (error) {
        for (const { reject } of jobs) reject(error);
      }
    }
    writing = false;
  }

  const enqueue = (text: string | undefined): Promise<void> =>
    new Promise((resolve, reject) => {
      waiting.push({ text, resolve, reject });
      if (!writing) void write();
    });

  const append: Journal["append"] = (requestId, { verb, keys, args }) => {
    const line: Line = { requestId, verb, keys, args, atMs: Date.now() };
    return enqueue(`${JSON.stringify(line)}\n`);
  };

  // What was taken over is first made our own, then its file goes: a crash in between replays it twice, no harm.
  await Promise.all(recovered.map((line) => enqueue(`${JSON.stringify(line)}\n`)));
  for (const path of left) {
    rmSync(path, { force: true });
    openHere.delete(path);
  }

  return {
    recovered,
    append,
    clear: () => enqueue(undefined),
    async close() {
      openHere.delete(file);
      const { size } = await handle.stat();
      await handle.close();
      if (size === 0) rmSync(file, { force: true });
    },
  };
}

/** Files of processes of this host that are no more, claimed by renaming: of two starting gateways one gets each. */
function abandoned(folder: string): string[] {
  const claimed: string[] = [];
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    const match = /^(.+)\.(\d+)\.[0-9a-f]{8}\.ndjson(\.taken-\d+)?$/.exec(name);
    if (!match || match[1] !== hostname() || openHere.has(path)) continue;
    const owner = Number(match[3]?.slice(7) ?? match[2]);
    if (owner !== process.pid && isAlive(owner)) continue;
    const taken = `${path.replace(/\.taken-\d+$/, "")}.taken-${process.pid}`;
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

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** The lines of a journal; the last one may be cut where its writer ended. */
function readLines(path: string, log: Logger): Line[] {
  return readFileSync(path, "utf8")
    .split("\n")
    .flatMap((text) => {
      if (text === "") return [];
      try {
        const line = JSON.parse(text) as Line;
        if (Date.now() - line.atMs <= REPLAY_AGE_MAX_MS) return [line];
        log.error(
          { request_id: line.requestId, verb: line.verb },
          "a journaled settlement is too old to be replayed",
        );
        return [];
      } catch {
        log.warn({ file: path }, "the journal ends in half a line; its request's hold ends at the due time");
        return [];
      }
    });
}
