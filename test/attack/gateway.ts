import { mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { startChild } from "../../src/sandbox/child.ts";
import { ROOT } from "../fault/world.ts";
import type { Attack } from "./attack.ts";

/** Far more than it takes: only a gateway that never starts waits so long. */
const START_TIMEOUT_MS = 60_000;
const STOP_GRACE_MS = 10_000;
const UPSTREAM_KEY = "upstream-secret-of-an-attacked-gateway";
const KIB = 1024;

/** A gateway in a process of its own, and what can be read of it from outside. */
export interface AttackedGateway {
  pid: number;
  url: string;
  adminUrl: string;
  /** Bytes that the process has in memory now. */
  residentBytes(): number;
  /** The most since `forgetPeak`, bytes. */
  peakBytes(): number;
  forgetPeak(): void;
  alive(): boolean;
  stop(): Promise<void>;
}

interface StartOptions {
  folder: string;
  /** The source tree that it is run from. */
  root?: string | undefined;
  redisUrl: string;
  upstreamUrl: string;
}

/** Where the log of a gateway in this folder is. */
export const logFileIn = (folder: string): string => join(folder, "gateway.ndjson");

/**
 * Starts `src/main.ts` with the default settings but for what the attack names, and waits until it is ready. The limit of
 * open files is set by a shell that becomes the gateway.
 */
export async function startGateway(
  attack: Attack,
  { folder, root = ROOT, redisUrl, upstreamUrl }: StartOptions,
): Promise<AttackedGateway> {
  mkdirSync(folder, { recursive: true });
  const { config = {}, env = {}, openFiles } = attack;
  const store = { journal: join(folder, "journal"), allow_no_persistence: true, ...config.store };
  const configFile = join(folder, "tollgate.yaml");
  // JSON is YAML too.
  writeFileSync(configFile, JSON.stringify({ ...config, store }));
  const logFile = logFileIn(folder);
  const log = openSync(logFile, "w");
  const limit = openFiles === undefined ? "" : `ulimit -n ${openFiles} && `;
  const { PATH = "" } = process.env;
  const command = ["-c", `${limit}exec "$0" "$1"`, process.execPath, join(root, "src/main.ts")];
  const child = await startChild("sh", command, {
    cwd: folder,
    env: {
      PATH,
      TOLLGATE_CONFIG: configFile,
      HOST: "127.0.0.1",
      PORT: "0",
      ADMIN_PORT: "0",
      REDIS_URL: redisUrl,
      UPSTREAM_URL: upstreamUrl,
      UPSTREAM_API_KEY: UPSTREAM_KEY,
      ...env,
    },
    stdio: ["ignore", log, log],
  });
  let alive = true;
  void child.ended.then(() => {
    alive = false;
  });
  const { pid } = child;
  try {
    const { url, adminUrl } = await ready(logFile, () => alive);
    return {
      pid,
      url,
      adminUrl,
      residentBytes: () => statusBytes(pid, "VmRSS"),
      peakBytes: () => statusBytes(pid, "VmHWM"),
      // 5 resets the peak of the resident memory: proc_pid_clear_refs(5).
      forgetPeak: () => writeFileSync(`/proc/${pid}/clear_refs`, "5"),
      alive: () => alive,
      stop: () => child.stop(STOP_GRACE_MS),
    };
  } catch (error) {
    await child.stop(STOP_GRACE_MS);
    throw error;
  }
}

/** A field of /proc/<pid>/status in bytes; 0 for a process that has ended. */
function statusBytes(pid: number, field: string): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    return Number(new RegExp(`^${field}:\\s+(\\d+) kB`, "m").exec(status)?.[1] ?? 0) * KIB;
  } catch {
    return 0;
  }
}

/** Its addresses stand in the first lines of its log. */
async function ready(logFile: string, alive: () => boolean): Promise<{ url: string; adminUrl: string }> {
  const deadlineMs = Date.now() + START_TIMEOUT_MS;
  while (Date.now() < deadlineMs && alive()) {
    const lines = readFileSync(logFile, "utf8").split("\n").slice(0, -1);
    const line = lines.find((text) => text.includes('"msg":"tollgate is listening"'));
    if (line !== undefined) {
      const { url, admin_url: adminUrl } = JSON.parse(line) as { url: string; admin_url: string };
      if ((await fetch(`${adminUrl}/readyz`).catch(() => undefined))?.status === 200)
        return { url, adminUrl };
    }
    await pause(25);
  }
  throw new Error(`the gateway did not become ready; see ${logFile}`);
}
