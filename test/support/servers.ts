import { join } from "node:path";
import type { TestContext } from "vitest";
import { TOLLGATE_DIR } from "../../src/sandbox/redis.ts";
import type { RedisBinary } from "../../src/sandbox/redis-server.ts";
import { binaryVersion } from "../../src/sandbox/redis-server.ts";
import { debianValkey, redisBinary } from "./redis-binary.ts";

/**
 * redis: what the other tests run on, if it is older than 7.2; valkey: Valkey, or Redis from 7.2 on, in which WAIT counts
 * a client's own writes alone.
 */
export type ServerKind = "redis" | "valkey";

/** Runs a test on this kind of server, or skips it and says why there is none here. */
export async function withServer(
  kind: ServerKind,
  context: TestContext,
  work: (binary: RedisBinary) => Promise<void>,
): Promise<void> {
  const found = await (kind === "valkey" ? newerBinary() : olderBinary());
  if ("missing" in found) context.skip(found.missing);
  else await work(found);
}

export type Found = RedisBinary | { missing: string };

async function olderBinary(): Promise<Found> {
  const binary = await redisBinary();
  const version = await binaryVersion(binary);
  return isNewer(version) ? { missing: `${version} is no Redis before 7.2` } : binary;
}

/** Valkey, or Redis from 7.2 on. */
export async function newerBinary(): Promise<Found> {
  for (const path of ["valkey-server", "redis-server"]) {
    const binary = { path, env: process.env };
    if (isNewer(await binaryVersion(binary).catch(() => ""))) return binary;
  }
  try {
    return await debianValkey(join(TOLLGATE_DIR, "valkey"));
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return {
      missing: `no Valkey and no Redis 7.2 or newer here: install valkey-server, so that it is on the PATH (${why})`,
    };
  }
}

/** @param version such as "redis-server 7.0.15" */
function isNewer(version: string): boolean {
  const [major = 0, minor = 0] = version.split(" ").at(-1)!.split(".").map(Number);
  return major > 7 || (major === 7 && minor >= 2);
}
