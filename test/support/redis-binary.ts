import { debianProgram } from "../../src/sandbox/debian-packages.ts";
import { debianRedis, findBinary, ON_PATH } from "../../src/sandbox/redis.ts";
import { binaryVersion, type RedisBinary } from "../../src/sandbox/redis-server.ts";

/** From the PATH, else from the distribution's packages. */
export async function redisBinary(): Promise<RedisBinary> {
  for (const path of ON_PATH) {
    const binary = { path, env: process.env };
    const version = await binaryVersion(binary).catch(() => undefined);
    if (version !== undefined) return binary;
  }
  return debianRedis();
}

export const debianValkey = (baseDir: string): Promise<RedisBinary> =>
  debianProgram(baseDir, {
    candidates: [["valkey-server", "valkey-tools"]],
    dependencies: true,
    backports: true,
    find: findBinary,
  });
