import { Redis, type RedisOptions } from "ioredis";
import { parseSupportedAddress } from "../domain/redis-address.ts";

/** Where Redis is, and what its certificate is checked with. */
export interface RedisEndpoint {
  redisUrl: string;
  /** Certificates, PEM, that a `rediss://` server is checked with; undefined for Node's own. */
  tlsCa?: string | undefined;
}

export const connectTimeoutMs = (commandTimeoutMs: number): number => Math.max(1000, commandTimeoutMs);

/** An ioredis client that never queues, never resends, and gives up after the command timeout. */
export const createClient = (redisUrl: string, commandTimeoutMs: number, tlsCa?: string): Redis =>
  clientOf(
    { redisUrl, tlsCa },
    { commandTimeout: commandTimeoutMs, connectTimeout: connectTimeoutMs(commandTimeoutMs) },
  );

/** A client as `createClient` makes it, without its command timeout. */
export function clientOf(
  { redisUrl, tlsCa }: RedisEndpoint,
  options: Pick<RedisOptions, "commandTimeout" | "connectTimeout" | "retryStrategy" | "enableReadyCheck">,
): Redis {
  const { hosts, tls, username, password, db, family } = parseSupportedAddress(redisUrl);
  return new Redis({
    ...hosts[0],
    ...{ username, password, db, family },
    ...(tls ? { tls: tlsCa === undefined ? {} : { ca: tlsCa } } : {}),
    lazyConnect: true,
    autoResendUnfulfilledCommands: false,
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    retryStrategy: (attempt) => Math.min(50 * attempt, 1000),
    reconnectOnError: (error) => error.message.startsWith("READONLY"),
    noDelay: true,
    keepAlive: 10_000,
    disableClientInfo: true,
    // A Redis that does not answer must not keep a process alive that has closed the connection.
    disconnectTimeout: 200,
    ...options,
  });
}

/** ioredis stays in database 0 if the one in the URL cannot be selected; that may hold the credits of another store. */
export async function selectDatabase(redis: Redis): Promise<void> {
  if (redis.options.db) await redis.select(redis.options.db);
}
