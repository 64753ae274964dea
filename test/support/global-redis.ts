import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { startRedis } from "../../src/sandbox/redis.ts";

declare module "vitest" {
  export interface ProvidedContext {
    /** A Redis for this run; tests keep apart by fresh random accounts, never by FLUSHDB. */
    redisUrl: string;
  }
}

interface Shared {
  users: number;
  redis: Promise<{ url: string; stop(): Promise<void> }>;
}

/** Each project loads this module anew; only the process itself is common to them. */
const GLOBAL = globalThis as typeof globalThis & { tollgateTestRedis?: Shared };

/** One Redis per run for all projects, or the one at `TEST_REDIS_URL`. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  GLOBAL.tollgateTestRedis ??= { users: 0, redis: open() };
  const shared = GLOBAL.tollgateTestRedis;
  shared.users++;
  project.provide("redisUrl", (await shared.redis).url);
  return async () => {
    if (--shared.users > 0) return;
    delete GLOBAL.tollgateTestRedis;
    await (await shared.redis).stop();
  };
}

async function open(): Promise<{ url: string; stop(): Promise<void> }> {
  const given = process.env.TEST_REDIS_URL;
  if (given) {
    console.log(`Redis for tests: ${given} from TEST_REDIS_URL`);
    return { url: given, stop: async () => {} };
  }
  const dir = await mkdtemp(join(tmpdir(), "tollgate-test-redis-"));
  const redis = await startRedis({ dir, persistent: false });
  console.log(`Redis for tests: ${redis.source}, port ${redis.port}`);
  const stop = async () => {
    await redis.stop();
    await rm(dir, { recursive: true, force: true });
  };
  return { url: redis.url, stop };
}
