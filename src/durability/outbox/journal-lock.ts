import { createHash, randomBytes } from "node:crypto";
import { closeSync, constants, openSync, readFileSync, rmSync, statSync } from "node:fs";
import { connect, createServer } from "node:net";
import { hostname } from "node:os";
import { join } from "node:path";
import { SILENT_MS } from "../process-files.ts";

// Who owns a file of a shared folder. Its name says where its writer can be asked for, and beside it lies a Unix socket on which
// the writer listens. The kernel ends that with the process, whatever namespaces it is in. Decision 0009.

/** In the place of the mount: the writer has closed the file. */
const CLOSED = "closed";
/** In the place of the mount: its writer could not listen there, and the file is touched while the writer lives. */
const UNLOCKED = "unlocked";
const SUFFIX = ".lock";
/** host.mount.random */
const STEM = /^.+\.([0-9a-f]{12}|closed|unlocked)\.[0-9a-f]{8}$/;

export interface FileLock {
  stem: string;
  release(): void;
}

/** One boot of one machine and one mount of the folder: a socket is found only through its mount. @returns undefined where that is not known */
function mountOf(folder: string): string | undefined {
  try {
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const text = `${boot} ${statSync(folder).dev}`;
    return createHash("sha256").update(text).digest("hex").slice(0, 12);
  } catch {
    return undefined;
  }
}

const newStem = (mount: string): string => `${hostname()}.${mount}.${randomBytes(4).toString("hex")}`;

export const closedStem = (): string => newStem(CLOSED);

export const isStem = (text: string): boolean => STEM.test(text);

/** Takes a new name for a file of this process. Never throws for a file system that has no sockets. */
export async function holdLock(folder: string): Promise<FileLock> {
  const mount = mountOf(folder);
  if (mount !== undefined) {
    const stem = newStem(mount);
    const release = await listen(folder, stem + SUFFIX);
    if (release) return { stem, release };
  }
  return { stem: newStem(UNLOCKED), release: () => undefined };
}

export async function hasWriterEnded(folder: string, stem: string, suffix: string): Promise<boolean> {
  const mount = STEM.exec(stem)?.[1];
  if (mount === CLOSED) return true;
  if (mount === mountOf(folder)) {
    const code = await connectError(folder, stem + SUFFIX);
    if (code !== "ENOENT") return code === "ECONNREFUSED";
  }
  return isSilent(join(folder, stem + suffix));
}

const isSilent = (path: string): boolean => {
  const { mtimeMs = Date.now() } = statSync(path, { throwIfNoEntry: false }) ?? {};
  return Date.now() - mtimeMs > SILENT_MS;
};

export function removeLocks(folder: string, names: ReadonlySet<string>, suffix: string): void {
  for (const name of names) {
    const stem = name.slice(0, -SUFFIX.length);
    if (!name.endsWith(SUFFIX) || !STEM.test(stem) || names.has(stem + suffix)) continue;
    // Its file may be about to be made.
    if (isSilent(join(folder, name))) rmSync(join(folder, name), { force: true });
  }
}

export const removeLock = (folder: string, stem: string): void =>
  rmSync(join(folder, stem + SUFFIX), { force: true });

/** The address of a socket has at most 107 bytes, that of a folder more. */
const shortPath = (folderFd: number, name: string): string => `/proc/self/fd/${folderFd}/${name}`;

const openFolder = (folder: string): number => openSync(folder, constants.O_RDONLY | constants.O_DIRECTORY);

/** @returns what ends it, or undefined if nothing can listen there */
function listen(folder: string, name: string): Promise<(() => void) | undefined> {
  const fd = openFolder(folder);
  const server = createServer((socket) => socket.destroy());
  return new Promise((resolve) => {
    server.once("error", () => {
      closeSync(fd);
      resolve(undefined);
    });
    // A worker listens by itself: its supervisor outlives it.
    server.listen({ path: shortPath(fd, name), exclusive: true }, () => {
      server.on("error", () => undefined);
      resolve(() => void server.close(() => closeSync(fd)));
    });
    server.unref();
  });
}

/** @returns the code of the error; undefined if somebody listens */
function connectError(folder: string, name: string): Promise<string | undefined> {
  const fd = openFolder(folder);
  return new Promise((resolve) => {
    const socket = connect({ path: shortPath(fd, name) });
    const answer = (code?: string): void => {
      socket.destroy();
      resolve(code);
    };
    socket.once("connect", () => answer());
    socket.on("error", ({ code }: NodeJS.ErrnoException) => answer(code));
    socket.once("close", () => closeSync(fd));
  });
}
