import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { META } from "../../src/records/names.ts";
import { startRedis } from "../../src/sandbox/redis.ts";
import { openConnection } from "./store.ts";

/**
 * Makes a Redis a new store, in one step and always under one id: an open connection checks every 15 s that it finds the store
 * that it knows, and is out of use where it does not.
 */
export async function emptyStore(redis: Redis, partitions = 1): Promise<void> {
  await redis.multi().flushall().hset(META, { partitions, id: "store", layout: "1" }).exec();
}

export type OwnStore = Awaited<ReturnType<typeof openOwnStore>>;

/** A store of a test file's own, for what concerns whole partitions, with a connection that stays usable when it is emptied. */
export async function openOwnStore(partitions = 1) {
  const dir = await mkdtemp(join(tmpdir(), "tollgate-own-store-"));
  const server = await startRedis({ dir, persistent: false });
  const client = new Redis(server.url);
  await emptyStore(client, partitions);
  const connection = await openConnection(server.url);
  return {
    url: server.url,
    client,
    connection,
    empty: () => emptyStore(client, partitions),
    async stop(): Promise<void> {
      client.disconnect();
      await connection.close();
      await server.stop();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
