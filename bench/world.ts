import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import { freePort, type RunningRedis, startRedis } from "../src/sandbox/redis.ts";
import { type Calibration, startCalibration } from "./calibration.ts";
import { leaveSubjectCore, OTHER_CORES, prioritise, startPinned, stopProcesses } from "./processes.ts";

const START_TIMEOUT_MS = 30_000;

/** Parts that all scenarios share: a Redis, an upstream, a calibration loop and a folder that is gone afterwards. */
export interface World {
  folder: string;
  redis: Redis;
  redisUrl: string;
  redisPort: number;
  redisPid: number;
  upstreamUrl: string;
  calibration: Calibration;
  stop(): Promise<void>;
  /** True once it is being stopped: whatever fails then fails for that. */
  stopped(): boolean;
}

/** The journal folder of the gateways that run in this world, one after the other. */
export const journalOf = ({ folder }: World): string => join(folder, "gateway", "journal");

/**
 * Starts all of it on the cores of the load. Redis writes its append-only file as in production.
 * @param withUpstream whether there is an nginx to be it
 */
export async function createWorld(withUpstream: boolean): Promise<World> {
  leaveSubjectCore();
  const folder = mkdtempSync(join(tmpdir(), "tollgate-bench-"));
  const undo: (() => unknown)[] = [() => rmSync(folder, { recursive: true, force: true })];
  let stopped = false;
  const stop = async (): Promise<void> => {
    stopped = true;
    await stopProcesses();
    for (const step of undo.splice(0).reverse()) await step();
  };
  try {
    const store = await openRedis(folder);
    undo.push(store.stop);
    const upstreamUrl = withUpstream ? await startUpstream(folder) : "";
    const calibration = await startCalibration();
    undo.push(() => calibration.stop());
    return { ...store, folder, upstreamUrl, calibration, stop, stopped: () => stopped };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** A copy of the world with a Redis and a folder of its own, which its `stop` ends. */
export async function apart(world: World, name: string): Promise<World> {
  const folder = mkdtempSync(join(world.folder, `${name}-`));
  return { ...world, ...(await openRedis(folder)), folder };
}

/** A Redis in this folder that writes its append-only file as in production. */
async function openRedis(folder: string) {
  const server = await startRedis({
    dir: join(folder, "redis"),
    persistent: true,
    // A rewrite forks in the middle of whatever is measured then.
    args: ["--auto-aof-rewrite-percentage", "0"],
  });
  const redisPid = requirePid(server);
  prioritise(redisPid);
  const redis = new Redis(server.url);
  return {
    redis,
    redisUrl: server.url,
    redisPort: server.port,
    redisPid,
    async stop() {
      redis.disconnect();
      await server.stop();
    },
  };
}

function requirePid(server: RunningRedis): number {
  if (server.pid === undefined) {
    throw new Error(
      "Redis must be a process of this machine to be measured: apt-get install -y redis-server",
    );
  }
  return server.pid;
}

/** The generator: a new task id for each POST, and every task is being processed. */
async function startUpstream(folder: string): Promise<string> {
  const port = await freePort();
  const answer = (data: string) => `return 200 '{"code":200,"msg":"success","data":${data}}';`;
  const server = `
    listen 127.0.0.1:${port};
    default_type application/json;
    location / { ${answer('{"task_id":"$request_id"}')} }
    location ~ ^/api/v1/tasks/(?<task>[0-9a-f]+)$ {
      ${answer('{"task_id":"$task","status":"processing","created_at":"2026-01-01T00:00:00Z"}')}
    }`;
  await startNginx(folder, "upstream", `server {${server}}`, OTHER_CORES);
  const url = `http://127.0.0.1:${port}`;
  await answering(url, "the upstream");
  return url;
}

/** Starts one nginx worker with this `http` section, and waits for nothing: see `answering`. */
export async function startNginx(folder: string, name: string, http: string, cores?: string, modules = "") {
  const home = join(folder, name);
  mkdirSync(home, { recursive: true });
  const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    .map((kind) => `${kind}_temp_path ${home}/${kind};`)
    .join("\n");
  writeFileSync(
    join(home, "nginx.conf"),
    `${modules}
${process.getuid?.() === 0 ? "user root; " : ""}worker_processes 1; daemon off; pid ${home}/nginx.pid; error_log stderr warn;
events { worker_connections 4096; }
http { access_log off; keepalive_requests 1000000000; ${paths}
${http} }
`,
  );
  const args = ["-c", join(home, "nginx.conf"), "-p", home, "-e", "stderr"];
  return startPinned("nginx", args, { folder, name, ...(cores === undefined ? {} : { cores }) });
}

/** Waits until an address answers HTTP at all. */
export async function answering(url: string, what: string): Promise<void> {
  const deadlineMs = performance.now() + START_TIMEOUT_MS;
  while (performance.now() < deadlineMs) {
    const response = await fetch(url).catch(() => undefined);
    if (response) return void (await response.arrayBuffer());
    await delay(20);
  }
  throw new Error(`${what} does not answer on ${url}`);
}
