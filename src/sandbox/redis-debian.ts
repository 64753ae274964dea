import { readdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { debianProgram } from "./debian-packages.ts";
import type { RedisBinary } from "./redis-server.ts";
import { binaryVersion } from "./redis-server.ts";

/** The second package has the program, the first a link. */
const CANDIDATES = [
  ["redis-server", "redis-tools"],
  ["valkey-server", "valkey-tools"],
] as const;

export const debianRedis = (baseDir: string): Promise<RedisBinary> =>
  debianProgram(baseDir, { candidates: CANDIDATES, dependencies: true, find: findBinary });

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
