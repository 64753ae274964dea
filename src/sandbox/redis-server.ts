import { execFile } from "node:child_process";
import { mkdir, open, readFile, realpath, writeFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { type GuardedChild, startChild } from "./child.ts";

const run = promisify(execFile);

/** The scripts use `#!lua flags=...`, which Redis 7.0 brought. */
const VERSION_MAJOR_MIN = 7;
const ANSWER_TIMEOUT_MS = 15_000;
/** Reading a large append-only file back takes its time. */
const LOADING_TIMEOUT_MS = 600_000;
const STOP_GRACE_MS = 10_000;
const PORT_TRIES_MAX = 5;
/** In a persistent directory: the port of the server that used it last. */
const PORT_FILE = "port";

export interface RedisOptions {
  /** Where the data and the server's log go; made if missing. */
  dir: string;
  /** Default: a free one. */
  port?: number;
  /** Append-only file, fsync every second; otherwise nothing is written. */
  persistent: boolean;
  /** Further `redis-server` arguments. */
  args?: readonly string[];
  /** Called once if another server, on that port, uses the directory: it is waited for. */
  waiting?: (port: number) => void;
}

export interface RunningRedis {
  url: string;
  port: number;
  /** In words, such as "redis-server 7.0.15 from PATH". */
  source: string;
  /** Of the server's process, where this process started it. */
  pid?: number;
  /** Settles in words when the server ends, asked to or not; absent where that is not known. */
  ended?: Promise<string>;
  stop(): Promise<void>;
}

/** A program that can be started, and the libraries that it needs beside it. */
export interface RedisBinary {
  path: string;
  env: NodeJS.ProcessEnv;
}

/**
 * Asks a binary for its version.
 * @returns such as "redis-server 7.0.15"
 * @throws when it does not run, or is too old for our scripts
 */
export async function binaryVersion(binary: RedisBinary): Promise<string> {
  const { stdout } = await run(binary.path, ["--version"], { env: binary.env, timeout: 5_000 });
  const found = /^(Redis|Valkey) server v=(\d+)([.\d]*)/.exec(stdout);
  if (!found) throw new Error(`${binary.path} --version answers ${JSON.stringify(stdout.slice(0, 80))}`);
  const version = `${found[1]!.toLowerCase()}-server ${found[2]}${found[3]}`;
  if (Number(found[2]) < VERSION_MAJOR_MIN)
    throw new Error(`${version} is older than ${VERSION_MAJOR_MIN}.0`);
  return version;
}

/** Arguments that every source gives its server, but for port, address and directory. */
export function serverArgs(options: RedisOptions): string[] {
  const persistence = options.persistent
    ? ["--appendonly", "yes", "--appendfsync", "everysec"]
    : ["--appendonly", "no"];
  return ["--save", "", "--maxmemory-policy", "noeviction", ...persistence, ...(options.args ?? [])];
}

/** Starts the binary and waits until it answers PING. A port that another process snatched is tried anew. */
export async function startBinary(
  binary: RedisBinary,
  source: string,
  options: RedisOptions,
): Promise<RunningRedis> {
  await mkdir(options.dir, { recursive: true });
  for (let attempt = 1; ; attempt++) {
    try {
      return await startOnce(binary, source, options, options.port ?? (await freePort()));
    } catch (error) {
      const taken = /Address already in use/.test(String(error));
      if (!taken || options.port !== undefined || attempt === PORT_TRIES_MAX) throw error;
    }
  }
}

async function startOnce(
  binary: RedisBinary,
  source: string,
  options: RedisOptions,
  port: number,
): Promise<RunningRedis> {
  const logPath = join(options.dir, "redis.log");
  const log = await open(logPath, "w");
  const args = ["--port", String(port), "--bind", "127.0.0.1", "--daemonize", "no", ...serverArgs(options)];
  let child: GuardedChild;
  try {
    child = await startChild(binary.path, args, {
      cwd: options.dir,
      env: binary.env,
      stdio: ["ignore", log.fd, log.fd],
    });
  } finally {
    await log.close();
  }
  try {
    const died = child.ended.then(async (how) => {
      throw new Error(`${source}: ${how}: ${await lastLines(logPath)}`);
    });
    await Promise.race([died, answers(port, child.pid)]);
  } catch (error) {
    await child.stop(0);
    throw error;
  }
  if (options.persistent) await writeFile(join(options.dir, PORT_FILE), String(port));
  const stop = () => child.stop(STOP_GRACE_MS);
  return { url: `redis://127.0.0.1:${port}`, port, source, pid: child.pid, ended: child.ended, stop };
}

/**
 * Two servers on one append-only file would ruin it, and Redis itself does not look. A server that is just ending, after
 * its parent crashed, is waited for.
 * @param waiting called once before that
 * @throws when another server goes on using the directory
 */
export async function mustBeOnlyUser(dir: string, waiting?: (port: number) => void): Promise<void> {
  const port = Number(await readFile(join(dir, PORT_FILE), "utf8").catch(() => "0"));
  if (!(port > 0 && port < 65_536)) return;
  const real = await realpath(dir);
  const startMs = performance.now();
  let isWaiting = false;
  while (performance.now() - startMs < STOP_GRACE_MS) {
    const reply = await ask(port, "CONFIG GET dir\r\nINFO server\r\n");
    if (!reply?.includes(`\r\n${real}\r\n`)) return;
    if (!isWaiting) waiting?.(port);
    isWaiting = true;
    await delay(100);
  }
  throw new Error(
    `Another Redis, on port ${port}, is using ${dir}: an earlier start still runs. Use that one, or stop it with Ctrl-C.`,
  );
}

/**
 * Waits until the server of that pid, and no other on the same port, answers PING. One that accepts connections but says
 * LOADING, or nothing for a while, is reading its data back and gets far more time.
 */
async function answers(port: number, pid: number): Promise<void> {
  const startMs = performance.now();
  let loading = false;
  while (performance.now() - startMs < (loading ? LOADING_TIMEOUT_MS : ANSWER_TIMEOUT_MS)) {
    const reply = await ask(port, "PING\r\nINFO server\r\n");
    if (reply?.startsWith("+PONG") && reply.includes(`process_id:${pid}\r`)) return;
    loading = reply !== undefined;
    await delay(25);
  }
  throw new Error(`Redis on port ${port} did not answer PING in time`);
}

/** Sends inline commands and gives what came back up to the end of INFO; undefined when nobody listens. */
function ask(port: number, commands: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    let reply: string | undefined;
    const socket = connect({ host: "127.0.0.1", port, timeout: 5_000 });
    socket.setEncoding("latin1");
    socket.on("connect", () => {
      reply = "";
      socket.write(commands);
    });
    socket.on("data", (text: string) => {
      reply += text;
      if (/process_id:\d+\r/.test(reply ?? "")) socket.destroy();
    });
    socket.on("timeout", () => socket.destroy());
    socket.on("error", () => {});
    socket.on("close", () => resolve(reply));
  });
}

/** A TCP port of the loopback that was free a moment ago. */
export async function freePort(): Promise<number> {
  return (await portIfFree(0))!;
}

/** The port itself if it can be listened on (any for 0), else undefined. */
export function portIfFree(port: number, host = "127.0.0.1"): Promise<number | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(undefined));
    server.listen(port, host, () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address ? address.port : undefined));
    });
  });
}

async function lastLines(path: string): Promise<string> {
  const text = await readFile(path, "utf8").catch(() => "");
  return text.trim().split("\n").slice(-3).join(" / ");
}
