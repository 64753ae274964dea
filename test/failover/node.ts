import { type ChildProcess, spawn } from "node:child_process";
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Redis } from "ioredis";
import { type GuardedChild, startChild } from "../../src/sandbox/child.ts";
import type { RedisBinary } from "../../src/sandbox/redis-server.ts";

/** A busy machine needs some of it. */
const START_TIMEOUT_MS = 30_000;
/** Of one question of the rig to a node: a paused one answers none. */
const ANSWER_TIMEOUT_MS = 1000;
/** Of a command that the rig needs done: long beside what a busy machine takes. */
const COMMAND_TIMEOUT_MS = 60_000;

export interface NodeOptions {
  name: string;
  binary: RedisBinary;
  /** Data, configuration and log; made if missing. */
  dir: string;
  /** The port that it listens on itself. */
  port: number;
  /** The port that it announces: that of its relay. */
  announced: number;
  /** The configuration, which the server may rewrite; kept over a restart. */
  config: readonly string[];
  isSentinel?: boolean;
}

/** One server process, which can be ended and started again with its data, its port and its configuration. */
export interface RedisNode {
  readonly name: string;
  readonly announced: number;
  /** Where it listens itself, past its relay. */
  readonly port: number;
  /** A client of the rig's own, past all relays, for what a node that runs has to do. */
  readonly client: Redis;
  state(): "running" | "paused" | "down";
  pid(): number;
  /** Starts it, and waits until it answers. */
  start(): Promise<void>;
  /** SIGKILL. */
  kill(): Promise<void>;
  /** SIGSTOP: connections stay open and nobody answers. */
  pause(): void;
  resume(): void;
  /** Bytes of the append-only file since its last rewrite. */
  written(): number;
  /** Cuts bytes off the end of the append-only file, as lost power does; the node must be down. @returns how many */
  truncate(bytes: number): number;
  /** A section of INFO, field by field; undefined when the node does not answer. */
  info(section: string): Promise<Record<string, string> | undefined>;
  /** A reply, or undefined when none comes. */
  ask(command: string, ...args: string[]): Promise<unknown>;
  stop(): Promise<void>;
}

export function createNode({
  name,
  binary,
  dir,
  port,
  announced,
  config,
  isSentinel,
}: NodeOptions): RedisNode {
  mkdirSync(dir, { recursive: true });
  const file = join(dir, "redis.conf");
  const lines = [`port ${port}`, "bind 127.0.0.1", `dir ${dir}`, ...config];
  writeFileSync(file, `${lines.join("\n")}\n`);
  const client = createClient(port);
  let child: GuardedChild | undefined;
  let guard: ChildProcess | undefined;
  const running = (): GuardedChild => {
    if (!child) throw new Error(`${name} does not run`);
    return child;
  };
  const ask = (command: string, ...args: string[]): Promise<unknown> => {
    const late = pause(ANSWER_TIMEOUT_MS, undefined, { ref: false });
    return Promise.race([client.call(command, ...args).catch(() => undefined), late]);
  };
  const node: RedisNode = {
    name,
    announced,
    port,
    client,
    state: () => (guard ? "paused" : child ? "running" : "down"),
    pid: () => running().pid,
    async start() {
      if (child) throw new Error(`${name} runs already`);
      child = await startServer(binary, isSentinel ? [file, "--sentinel"] : [file], dir);
      await answers(node, child);
    },
    async kill() {
      const { process: server, ended } = running();
      server.kill("SIGKILL");
      await ended;
      endGuard(guard);
      guard = undefined;
      child = undefined;
    },
    pause() {
      guard ??= startPauseGuard(running().pid);
      process.kill(running().pid, "SIGSTOP");
    },
    resume() {
      process.kill(running().pid, "SIGCONT");
      endGuard(guard);
      guard = undefined;
    },
    written: () => statSync(newestFile(dir)).size,
    truncate: (bytes) => truncate(newestFile(dir), bytes),
    async info(section) {
      const text = await ask("INFO", section);
      return typeof text === "string" ? fieldsOf(text) : undefined;
    },
    ask,
    async stop() {
      client.disconnect();
      if (child) await node.kill();
    },
  };
  return node;
}

/** Retries for ever, and refuses at once what it cannot send: the rig asks again by itself. */
function createClient(port: number): Redis {
  const client = new Redis(port, "127.0.0.1", {
    lazyConnect: true,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    enableReadyCheck: false,
    commandTimeout: COMMAND_TIMEOUT_MS,
    retryStrategy: () => 25,
  });
  client.on("error", () => undefined);
  return client;
}

async function startServer(binary: RedisBinary, args: readonly string[], dir: string): Promise<GuardedChild> {
  const log = openSync(join(dir, "redis.log"), "a");
  try {
    return await startChild(binary.path, args, { cwd: dir, env: binary.env, stdio: ["ignore", log, log] });
  } finally {
    closeSync(log);
  }
}

async function answers(node: RedisNode, { ended }: GuardedChild): Promise<void> {
  if (node.client.status === "wait") node.client.connect().catch(() => undefined);
  const died = ended.then((how) => {
    throw new Error(`${node.name} did not start: ${how}`);
  });
  const answered = waitFor(`${node.name} to answer`, START_TIMEOUT_MS, async () => {
    return (await node.ask("PING")) === "PONG";
  });
  await Promise.race([died, answered]);
}

/**
 * A paused server cannot be ended by SIGTERM. This shell ends it when this process dies: it waits for the end of a pipe
 * that only this process holds open.
 */
function startPauseGuard(pid: number): ChildProcess {
  const guard = spawn("sh", ["-c", 'cat >/dev/null; kill -KILL "$0" 2>/dev/null', String(pid)], {
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  guard.on("error", () => undefined);
  guard.unref();
  return guard;
}

/** By its group, for `cat` is a child of the shell; before the pipe ends. */
function endGuard(guard: ChildProcess | undefined): void {
  if (guard?.pid === undefined || guard.exitCode !== null) return;
  try {
    process.kill(-guard.pid, "SIGKILL");
  } catch {
    // It is gone already.
  }
}

/** The newest of the append-only files that hold what was written since the last rewrite. */
function newestFile(dir: string): string {
  const folder = join(dir, "appendonlydir");
  const files = existsSync(folder) ? readdirSync(folder).filter((file) => file.endsWith(".incr.aof")) : [];
  const number = (file: string): number => Number(/\.(\d+)\.incr\.aof$/.exec(file)?.[1]);
  const [newest] = files.sort((a, b) => number(b) - number(a));
  if (newest === undefined) throw new Error(`${folder} has no append-only file`);
  return join(folder, newest);
}

/** @returns how many bytes are gone */
function truncate(path: string, bytes: number): number {
  const { size } = statSync(path);
  const left = Math.max(0, size - bytes);
  truncateSync(path, left);
  return size - left;
}

export const isRunning = (node: RedisNode): boolean => node.state() === "running";

/** `name:value` lines as Redis writes them. */
export const fieldsOf = (text: string): Record<string, string> =>
  Object.fromEntries(
    text
      .split("\r\n")
      .filter((line) => line.includes(":"))
      .map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)]),
  );

/** Waits until a condition holds. @throws when it does not in time, with what was waited for */
export async function waitFor(
  what: string,
  timeoutMs: number,
  condition: () => Promise<boolean> | boolean,
): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited ${timeoutMs} ms in vain for ${what}`);
    await pause(25);
  }
}
