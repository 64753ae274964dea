import { join } from "node:path";
import { freePort } from "../../src/sandbox/redis.ts";
import { startPinned } from "../processes.ts";
import { answering } from "../world.ts";
import type { Subject } from "./subject.ts";

const PEERS = join(import.meta.dirname, "../peers");

/** Requests per minute and key. */
const NO_LIMIT = 1_000_000_000;

/** A server of `bench/peers` on the Node that runs us. Arguments: upstream, port, Redis, requests per minute and key. */
export const nodeSubject = (
  name: string,
  file: string,
  { limit = NO_LIMIT, nodeArgs = [] }: { limit?: number; nodeArgs?: readonly string[] } = {},
): Subject => ({
  name,
  async start(world) {
    const port = await freePort();
    const child = await startPinned(
      process.execPath,
      [...nodeArgs, join(PEERS, file), world.upstreamUrl, String(port), world.redisUrl, String(limit)],
      { folder: world.folder, name: "peer", env: { NODE_ENV: "production" } },
    );
    const url = `http://127.0.0.1:${port}`;
    await answering(`${url}/up`, name);
    return { url, pid: child.pid, stop: child.stop };
  },
});
