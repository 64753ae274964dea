import { freePort, type RunningRedis, startRedis } from "../../src/sandbox/redis.ts";

/** A Redis in cluster mode; the caller assigns its slots. @param more arguments of its own */
export async function startClusterNode(
  dir: string,
  more: readonly string[] = [],
): Promise<RunningRedis & { busPort: number }> {
  // Without a port of its own the cluster bus takes port + 10000, which may be above 65535: then the node exits.
  const busPort = await freePort();
  const args = ["--cluster-enabled", "yes", "--cluster-port", String(busPort), ...more];
  return { ...(await startRedis({ dir, persistent: false, args })), busPort };
}

/** Rules of ACL SETUSER, by which a node takes no claims of task ids; `allkeys` takes them back. */
export const NO_CLAIMS = ["resetkeys", "~tg:[^c]*", "%R~tg:claim:*"];
