import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { dropOldest } from "../domain/bounded.ts";
import { FILE_BYTES_MAX, settlementOfLine } from "../durability/outbox/journal-lines.ts";
import { isUnmetered } from "../durability/outbox/outbox-queues.ts";
import { fileNamesIn } from "../durability/process-files.ts";

const SUFFIX = ".ndjson";
/** As many as a process remembers of its own. */
const TASKS_MAX = 100_000;
/** Files are read so often at most, however many unknown tasks are polled. */
const LOOK_EVERY_MS = 250;
/** Also the longest line. */
const CHUNK_BYTES = 1024 * 1024;
/** A file that begins otherwise than before was cleared meanwhile: its first line names a settlement and a time. */
const HEAD_BYTES = 256;
/** Lines of unmetered tasks have it; others are not parsed. */
const MARK = '"price":0,';

interface UnmeteredTask {
  accountId: string;
  upstream: string | undefined;
}

/** How far a file is read. */
interface Place {
  head: string;
  offset: number;
  /** The beginning of a line whose end has not been read. */
  rest: string;
}

export type UnmeteredElsewhere = ReturnType<typeof createUnmeteredElsewhere>;

/**
 * Unmetered tasks of other processes, not yet bound, from the journals in the same folder, read from where the last look ended.
 * @param storeId tasks of another store are not found
 */
export function createUnmeteredElsewhere(folder: string, storeId: () => string | undefined) {
  const tasks = new Map<string, UnmeteredTask>();
  const places = new Map<string, Place>();
  let lookedMs = Number.NEGATIVE_INFINITY;
  let latest: Promise<void> = Promise.resolve();
  let next: Promise<void> | undefined;

  /** Resolves after a look that has begun after this call: one that is under way may have passed what is looked for. */
  function lookFromNow(): Promise<void> {
    next ??= latest.then(async () => {
      await pause(Math.max(0, lookedMs + LOOK_EVERY_MS - performance.now()), undefined, { ref: false });
      next = undefined;
      await look();
    });
    latest = next;
    return next;
  }

  async function look(): Promise<void> {
    const names = fileNamesIn(folder, SUFFIX);
    for (const name of places.keys()) if (!names.includes(name)) places.delete(name);
    // A file that vanishes, or that another user wrote, is no reason to leave out the others.
    for (const name of names) await readOn(name).catch(() => places.delete(name));
    lookedMs = performance.now();
  }

  async function readOn(name: string): Promise<void> {
    // Nothing in the folder makes this wait, and no link is followed.
    const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
    const file = await open(join(folder, name), flags);
    try {
      const stat = await file.stat();
      // No gateway takes over a larger one, either.
      if (stat.isFile() && stat.size <= FILE_BYTES_MAX) await readFrom(file, stat.size, name);
    } finally {
      await file.close();
    }
  }

  async function readFrom(file: FileHandle, size: number, name: string): Promise<void> {
    const head = await readAt(file, 0, Math.min(HEAD_BYTES, size));
    const known = places.get(name);
    const isSame = known !== undefined && size >= known.offset && head.startsWith(known.head);
    let { offset, rest } = isSame ? known : { offset: 0, rest: "" };
    while (offset < size) {
      const chunk = await readAt(file, offset, Math.min(CHUNK_BYTES, size - offset));
      if (chunk === "") break;
      offset += chunk.length;
      const lines = (rest + chunk).split("\n");
      rest = lines.pop()?.slice(0, CHUNK_BYTES) ?? "";
      for (const line of lines) if (line.includes(MARK)) note(line);
    }
    places.set(name, { head, offset, rest });
  }

  function note(line: string): void {
    const settlement = settlementOfLine(Buffer.from(line, "latin1").toString());
    if (settlement?.script !== "bind" || !isUnmetered(settlement) || settlement.storeId !== storeId()) return;
    const { task, key } = settlement.call;
    if (!tasks.has(task.taskId)) dropOldest(tasks, TASKS_MAX);
    tasks.set(task.taskId, { accountId: key.accountId, upstream: task.upstream });
  }

  return {
    async find(taskId: string): Promise<UnmeteredTask | undefined> {
      if (!tasks.has(taskId)) await lookFromNow();
      return tasks.get(taskId);
    },
  };
}

/** As latin1, a character for each byte: where a chunk ends, a longer character may be cut. */
async function readAt(file: FileHandle, offset: number, length: number): Promise<string> {
  const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(length), 0, length, offset);
  return buffer.toString("latin1", 0, bytesRead);
}
