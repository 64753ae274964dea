import { execFile } from "node:child_process";
import { mkdir, open, readFile, realpath, writeFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { type GuardedChild, startChild } from "./child.ts";

const run = promisify(execFile);

/** `#!lua flags=...` needs Redis 7.0. */
const VERSION_MAJOR_MIN = 7;
const ANSWER_TIMEOUT_MS = 15_000;
const LOADING_TIMEOUT_MS = 600_000;
const STOP_GRACE_MS = 10_000;
const PORT_TRIES_MAX = 5;
const PORT_FILE = "port";

export interface RedisOptions {
  dir: string;
  port?: number;
  persistent: boolean;
  args?: readonly string[];
  waiting?: (port: number) => void;
}

export interface RunningRedis {
  url: string;
  port: number;
  source: string;
  pid?: number;
  ended?: Promise<string>;
  stop(): Promise<void>;
}

export interface RedisBinary {
  path: string;
  env: NodeJS.ProcessEnv;
}

const versions = new Map<string, Promise<string>>();

/** Asked for once. @throws when it does not run, or is too old */
export function binaryVersion(binary: RedisBinary): Promise<string> {
  const found = `${binary.path} on ${binary.env.PATH}`;
  const known = versions.get(found);
  if (known) return known;
  const version = readVersion(binary);
  versions.set(found, version);
  version.catch(() => versions.delete(found));
  return version;
}

async function readVersion(binary: RedisBinary): Promise<string> {
  const { stdout } = await run(binary.path, ["--version"], { env: binary.env, timeout: 5_000 });
  const found = /^(Redis|Valkey) server v=(\d+)([.\d]*)/.exec(stdout);
  if (!found) throw new Error(`${binary.path} --version answers ${JSON.stringify(stdout.slice(0, 80))}`);
  const version = `${found[1]!.toLowerCase()}-server ${found[2]}${found[3]}`;
  if (Number(found[2]) < VERSION_MAJOR_MIN)
    throw new Error(`${version} is older than ${VERSION_MAJOR_MIN}.0`);
  return version;
}

export function serverArgs(options: RedisOptions): string[] {
  const persistence = options.persistent
    ? ["--appendonly", "yes", "--appendfsync", "everysec"]
    : ["--appendonly", "no"];
  return ["--save", "", "--maxmemory-policy", "noeviction", ...persistence, ...(options.args ?? [])];
}

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

/** Two servers on one append-only file would ruin it. @throws when another server keeps using the directory */
export async function mustBeOnlyUser(dir: string, waiting?: (port: number) => void): Promise<void> {
  const port = Number(await readFile(join(dir, PORT_FILE), "utf8").catch(() => "0"));
  if (!(port > 0 && port < 65_536)) return;
  const real = await realpath(dir);
  const startMs = performance.now();
  let isWaiting = false;
  while (performance.now() - startMs < STOP_GRACE_MS) {
    const reply = await sendCommands(port, "CONFIG GET dir\r\nINFO server\r\n");
    if (!reply?.includes(`\r\n${real}\r\n`)) return;
    if (!isWaiting) waiting?.(port);
    isWaiting = true;
    await delay(100);
  }
  throw new Error(
    `Another Redis, on port ${port}, is using ${dir}: an earlier start still runs. Use that one, or stop it with Ctrl-C.`,
  );
}

/** A server that reads its data (LOADING) gets more time. */
async function answers(port: number, pid: number): Promise<void> {
  const startMs = performance.now();
  let loading = false;
  while (performance.now() - startMs < (loading ? LOADING_TIMEOUT_MS : ANSWER_TIMEOUT_MS)) {
    const reply = await sendCommands(port, "PING\r\nINFO server\r\n");
    if (reply?.startsWith("+PONG") && reply.includes(`process_id:${pid}\r`)) return;
    loading = reply !== undefined;
    await delay(25);
  }
  throw new Error(`Redis on port ${port} did not answer PING in time`);
}

function sendCommands(port: number, commands: string): Promise<string | undefined> {
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

export async function freePort(): Promise<number> {
  return (await portIfFree(0))!;
}

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
