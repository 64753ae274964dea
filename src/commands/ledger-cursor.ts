import { existsSync, linkSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { type FileHandle, open, rename, utimes } from "node:fs/promises";
import { hostname } from "node:os";
import path from "node:path";
import { parseObject } from "../domain/json.ts";
import { isRunning, SILENT_MS } from "../durability/process-files.ts";
import { formatCursor, type LedgerCursor, parseCursor } from "../ledger/export.ts";
import { OperatorError } from "../records/operator-error.ts";

const TOUCH_EVERY_MS = 10_000;

export const LEDGER_FORMATS = ["ndjson", "csv"] as const;
export type LedgerFormat = (typeof LEDGER_FORMATS)[number];

export interface CursorState {
  cursor: LedgerCursor;
  /** Empty: all accounts. */
  account: string;
  format: LedgerFormat;
  /** The file that was written last, and how many bytes of it stand for the cursor. */
  output: { file: string; bytes: number } | undefined;
}

/** Undefined without an earlier run. @throws OperatorError when it is no cursor file, or that of another kind of export */
export function readCursorFile(
  file: string,
  wanted: { account: string; format: LedgerFormat },
): CursorState | undefined {
  if (!existsSync(file)) return undefined;
  const state = parseState(readFileSync(file, "utf8"));
  if (!state) throw new OperatorError(`${file} is no cursor file of \`tollgate ledger export\``);
  for (const name of ["account", "format"] as const) {
    if (state[name] === wanted[name]) continue;
    const [before, now] = [state[name], wanted[name]].map((value) => value || "all");
    throw new OperatorError(
      `${file} belongs to an export with ${name} ${before}, not ${now}; name another file`,
    );
  }
  return state;
}

function parseState(text: string): CursorState | undefined {
  const { account, format, output_file: file, output_bytes: bytes, ...data } = parseObject(text) ?? {};
  const cursor = typeof data.cursor === "string" ? parseCursor(data.cursor) : undefined;
  if (!cursor || typeof account !== "string" || (format !== "csv" && format !== "ndjson")) return undefined;
  const output = typeof file === "string" && typeof bytes === "number" ? { file, bytes } : undefined;
  return { cursor, account, format, output };
}

/** Replaces the cursor file in one step: after a power cut there is the old one or the new one, on disk. */
export async function writeCursorFile(file: string, state: CursorState): Promise<void> {
  const text = JSON.stringify({
    cursor: formatCursor(state.cursor),
    account: state.account,
    format: state.format,
    output_file: state.output?.file,
    output_bytes: state.output?.bytes,
  });
  const next = `${file}.${process.pid}.tmp`;
  const handle = await open(next, "w", 0o600);
  try {
    await handle.writeFile(`${text}\n`);
    await handle.datasync();
  } finally {
    await handle.close();
  }
  await rename(next, file);
}

/** Keeps a second export away, such as one that a timer starts too early. @returns releases it @throws OperatorError while another process has it */
export function lockCursorFile(file: string): () => void {
  const lock = `${file}.lock`;
  // Linked into place: the lock never exists without its owner's name in it.
  const mine = `${lock}.${hostname()}.${process.pid}`;
  writeFileSync(mine, `${process.pid} ${hostname()}`, { mode: 0o600 });
  try {
    for (;;) {
      if (link(mine, lock)) return hold(lock);
      const owner = ownerOf(lock);
      if (isAlive(owner, lock)) throw new OperatorError(inUse(owner, file, lock));
      clear(lock, `${mine}.dead`, owner);
    }
  } finally {
    rmSync(mine, { force: true });
  }
}

/** Touches the lock regularly, which tells other machines that its owner runs. @returns releases it */
function hold(lock: string): () => void {
  const touching = setInterval(() => {
    const now = new Date();
    // It may have been deleted by hand.
    void utimes(lock, now, now).catch(() => undefined);
  }, TOUCH_EVERY_MS).unref();
  return () => {
    clearInterval(touching);
    rmSync(lock, { force: true });
  };
}

function inUse(owner: string, file: string, lock: string): string {
  const { pid, host } = partsOf(owner);
  const which = host === hostname() ? `process ${pid}` : `process ${pid} on ${host}`;
  const ends = host === hostname() ? "" : ` (it counts for nothing ${SILENT_MS / 1000} s after its end)`;
  return `${which} exports with ${file}; wait for it, or delete ${lock} if that is no export${ends}`;
}

function link(existing: string, name: string): boolean {
  try {
    linkSync(existing, name);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    return false;
  }
}

/** Process id and host; empty when the lock has just gone, or was never written out. */
function ownerOf(lock: string): string {
  try {
    return readFileSync(lock, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return "";
  }
}

function partsOf(owner: string): { pid: number; host: string } {
  const [pid, host = hostname()] = owner.split(" ");
  return { pid: Number(pid), host };
}

/** Removes the lock of an owner that has ended. If another process has replaced it meanwhile, that one is put back. */
function clear(lock: string, aside: string, owner: string): void {
  try {
    renameSync(lock, aside);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return;
  }
  if (ownerOf(aside) !== owner) link(aside, lock);
  rmSync(aside);
}

function isAlive(owner: string, lock: string): boolean {
  const { pid, host } = partsOf(owner);
  if (host !== hostname()) return isFresh(lock);
  // Who had our process id before us has ended: in a container it is 1 every time. A lock without an owner is stale.
  return pid !== process.pid && isRunning(pid);
}

function isFresh(lock: string): boolean {
  const { mtimeMs = 0 } = statSync(lock, { throwIfNoEntry: false }) ?? {};
  return Date.now() - mtimeMs <= SILENT_MS;
}

/** Cuts off the lines after the cursor of the earlier run: they come again. @throws OperatorError when lines would be lost, overwritten or doubled */
export async function openOutput(
  file: string,
  state: CursorState | undefined,
): Promise<{ handle: FileHandle; bytes: number }> {
  const absolute = path.resolve(file);
  const earlier = state?.output;
  if (earlier?.file === absolute)
    return { handle: await reopen(absolute, earlier.bytes), bytes: earlier.bytes };
  if (earlier && existsSync(earlier.file)) {
    const bytes = await bytesOf(earlier.file);
    if (bytes !== earlier.bytes) {
      throw new OperatorError(
        `the export to ${earlier.file} was cut off half-way; let it end with --output ${earlier.file} first`,
      );
    }
  }
  if (existsSync(absolute) && (await bytesOf(absolute)) > 0) {
    throw new OperatorError(
      `${file} is not empty; name a new file, or give the --cursor-file that it was written with`,
    );
  }
  return { handle: await reopen(absolute, 0), bytes: 0 };
}

async function reopen(file: string, bytes: number): Promise<FileHandle> {
  if (!existsSync(file) && bytes > 0) {
    throw new OperatorError(`${file} is gone; name a new file with --output, and the export goes on there`);
  }
  const handle = await open(file, existsSync(file) ? "r+" : "wx", 0o600);
  const { size } = await handle.stat();
  if (size < bytes) {
    await handle.close();
    throw new OperatorError(
      `${file} is shorter than at the end of the last export: ${size} of ${bytes} bytes`,
    );
  }
  await handle.truncate(bytes);
  return handle;
}

async function bytesOf(file: string): Promise<number> {
  const handle = await open(file, "r");
  try {
    return (await handle.stat()).size;
  } finally {
    await handle.close();
  }
}
