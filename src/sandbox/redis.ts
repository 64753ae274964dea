import { randomBytes } from "node:crypto";
import { mkdir, readdir } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { debianProgram } from "./debian-packages.ts";
import {
  binaryVersion,
  mustBeOnlyUser,
  portIfFree,
  type RedisBinary,
  type RedisOptions,
  type RunningRedis,
  serverArgs,
  startBinary,
} from "./redis-server.ts";

export { freePort, portIfFree, type RunningRedis } from "./redis-server.ts";

export const TOLLGATE_DIR = resolve(import.meta.dirname, "../../.tollgate");

export const ON_PATH = ["redis-server", "valkey-server"] as const;
const PACKAGES_DIR = join(TOLLGATE_DIR, "redis");

type Source = (options: RedisOptions) => Promise<RunningRedis>;

const SOURCES: ReadonlyArray<readonly [name: string, start: Source]> = [
  ["redis-server or valkey-server on the PATH", startFromPath],
  ["a container", startDockerRedis],
  ["Debian or Ubuntu packages", startFromPackages],
];

/** @throws when port or directory is in use, or no source works */
export async function startRedis(options: RedisOptions): Promise<RunningRedis> {
  const absolute = { ...options, dir: resolve(options.dir) };
  if (options.port !== undefined && !(await portIfFree(options.port))) {
    throw new Error(
      `Port ${options.port} for Redis is taken; stop what listens there or choose another port`,
    );
  }
  if (options.persistent) await mustBeOnlyUser(absolute.dir, options.waiting);
  const reasons: string[] = [];
  for (const [name, start] of SOURCES) {
    try {
      return await start(absolute);
    } catch (error) {
      reasons.push(`  - ${name}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  throw new Error(
    "No Redis could be started. Install redis-server or valkey-server, version 7 or newer, so that it is on the " +
      "PATH (for instance `apt install redis-server` or `brew install redis`), or start a Docker engine. " +
      `What was tried:\n${reasons.join("\n")}`,
  );
}

async function startFromPath(options: RedisOptions): Promise<RunningRedis> {
  const reasons: string[] = [];
  for (const path of ON_PATH) {
    try {
      const binary = { path, env: process.env };
      return await startBinary(binary, `${await binaryVersion(binary)} from PATH`, options);
    } catch (error) {
      const { code, path: missing, message } = error as NodeJS.ErrnoException;
      if (code !== "ENOENT" || missing !== path) reasons.push(message);
    }
  }
  throw new Error(reasons.join("; ") || "not found");
}

async function startFromPackages(options: RedisOptions): Promise<RunningRedis> {
  const binary = await debianRedis();
  const source = `${await binaryVersion(binary)} unpacked from the distribution's packages`;
  return startBinary(binary, source, options);
}

/** The second package has the program, the first a link. */
const CANDIDATES = [
  ["redis-server", "redis-tools"],
  ["valkey-server", "valkey-tools"],
] as const;

export const debianRedis = (): Promise<RedisBinary> =>
  debianProgram(PACKAGES_DIR, { candidates: CANDIDATES, dependencies: true, find: findBinary });

export async function findBinary(root: string): Promise<RedisBinary | undefined> {
  const files = await readdir(root, { recursive: true }).catch(() => []);
  const path = files.find((file) => /(^|\/)bin\/(redis|valkey)-server$/.test(file));
  if (path === undefined) return undefined;
  const libraries = files
    .filter((file) => /\.so(\.\d+)*$/.test(file))
    .map((file) => join(root, dirname(file)));
  const inherited = process.env.LD_LIBRARY_PATH;
  const search = [...new Set(libraries), ...(inherited ? [inherited] : [])].join(":");
  const binary = { path: join(root, path), env: { ...process.env, LD_LIBRARY_PATH: search } };
  await binaryVersion(binary);
  return binary;
}

const IMAGE = "redis:7-alpine";
const ENGINE_TIMEOUT_MS = 5_000;
const STARTUP_TIMEOUT_MS = 60_000;
const STOP_GRACE_MS = 10_000;

/** Removed by testcontainers after a crash. The port is on all interfaces, hence the password. */
async function startDockerRedis(options: RedisOptions): Promise<RunningRedis> {
  const { GenericContainer, getContainerRuntimeClient, Wait } = await import("testcontainers");
  const late = delay(ENGINE_TIMEOUT_MS, undefined, { ref: false });
  const engine = await Promise.race([getContainerRuntimeClient().catch(() => undefined), late]);
  if (!engine) throw new Error("no Docker engine answers");
  const password = randomBytes(16).toString("hex");
  const port = options.port === undefined ? 6379 : { container: 6379, host: options.port };
  let container = new GenericContainer(IMAGE)
    .withExposedPorts(port)
    .withStartupTimeout(STARTUP_TIMEOUT_MS)
    .withWaitStrategy(Wait.forLogMessage("Ready to accept connections"))
    .withCommand(["redis-server", "--requirepass", password, ...serverArgs(options)]);
  if (options.persistent) {
    await mkdir(options.dir, { recursive: true });
    container = container.withBindMounts([{ source: resolve(options.dir), target: "/data" }]);
    if (process.getuid && process.getgid)
      container = container.withUser(`${process.getuid()}:${process.getgid()}`);
  }
  const started = await container.start();
  const mapped = started.getMappedPort(6379);
  return {
    url: `redis://:${password}@${started.getHost()}:${mapped}`,
    port: mapped,
    source: `${IMAGE} in Docker`,
    stop: async () => {
      await started.stop({ timeout: STOP_GRACE_MS });
    },
  };
}
