import { randomBytes } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from "node:fs";
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
interface Line extends Pick<Settlement, "verb" | "keys" | "args" | "own"> {
  requestId: string;
  atMs: number;
}

export interface Journal {
  /**
   * Hands over the settlements that ended gateways left unanswered, now and whenever some turn up. They are on this
   * journal's own disk by then.
   */
  adopt(take: (lines: readonly Line[]) => void): Promise<void>;
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
  adopt: async () => undefined,
  append: async () => undefined,
  clear: async () => undefined,
  close: async () => undefined,
};

/** A living gateway touches its file this often, so that another host can tell it from one that ended. */
const SIGN_OF_LIFE_MS = 10_000;
const SILENT_MS = 45_000;

/** Files that gateways of this process have; its process id does not tell them from left ones. */
const openHere = new Set<string>();

/**
 * The settlements that wait for the store, on disk, so that a charge outlives the process that owes it. Each gateway
 * has a file of its own in a folder that several may share; the file of one that has ended is taken over by another.
 * Replaying is safe: each script has the effect of once.
 * @throws when the folder cannot be written
 */
export async function openJournal(folder: string, log: Logger): Promise<Journal> {
  mkdirSync(folder, { recursive: true });
  const name = `${hostname()}.${process.pid}.${randomBytes(4).toString("hex")}.ndjson`;
  const file = join(folder, name);
  const handle: FileHandle = await open(file, "ax", 0o600);
  openHere.add(file);
  let timer: NodeJS.Timeout | undefined;

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

  const append: Journal["append"] = (requestId, { verb, keys, args, own }) => {
    const line: Line = { requestId, verb, keys, args, ...(own && { own }), atMs: Date.now() };
    return enqueue(`${JSON.stringify(line)}\n`);
  };

  // What is taken over is first made our own, then its file goes: an end in between replays it twice, no harm.
  async function takeOver(take: (lines: readonly Line[]) => void): Promise<void> {
    for (const path of abandoned(folder)) {
      const lines = readLines(path, log);
      await Promise.all(lines.map((line) => enqueue(`${JSON.stringify(line)}\n`)));
      rmSync(path, { force: true });
      openHere.delete(path);
      if (lines.length > 0) take(lines);
    }
  }

  return {
    async adopt(take) {
      await takeOver(take);
      timer = setInterval(() => {
        const now = new Date();
        handle.utimes(now, now).then(
          () => takeOver(take),
          (error: unknown) => log.error({ err: error }, "the journal cannot be kept"),
        );
      }, SIGN_OF_LIFE_MS).unref();
    },
    append,
    clear: () => enqueue(undefined),
    async close() {
      clearInterval(timer);
      openHere.delete(file);
      const { size } = await handle.stat();
      await handle.close();
      if (size === 0) rmSync(file, { force: true });
    },
  };
}

/** Files of gateways that have ended, claimed by renaming: of two that look for them, one gets each. */
function abandoned(folder: string): string[] {
  const claimed: string[] = [];
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    if (!NAME.test(name) || openHere.has(path) || !hasEnded(name, path)) continue;
    const taken = join(folder, `${hostname()}.${process.pid}.${randomBytes(4).toString("hex")}.ndjson`);
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

/** host.process.random.ndjson */
const NAME = /^(.+)\.(\d+)\.[0-9a-f]{8}\.ndjson$/;

/** Its process is no more; or, where that cannot be told (another host or container), it has long been silent. */
function hasEnded(name: string, path: string): boolean {
  const [, host, pid] = NAME.exec(name) ?? [];
  const sameSpace = host === hostname() && Number(pid) !== process.pid;
  if (sameSpace && !isAlive(Number(pid))) return true;
  const { mtimeMs = Date.now() } = statSync(path, { throwIfNoEntry: false }) ?? {};
  return !sameSpace && Date.now() - mtimeMs > SILENT_MS;
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
