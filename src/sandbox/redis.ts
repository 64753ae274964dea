import { readdir } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { debianProgram } from "./debian-packages.ts";
import { startDockerRedis } from "./redis-docker.ts";
import {
  binaryVersion,
  mustBeOnlyUser,
  portIfFree,
  type RedisBinary,
  type RedisOptions,
  type RunningRedis,
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
