import { Redis, type RedisOptions } from "ioredis";
import {
  parseRedisAddress,
  parseServerAddress,
  type RedisAddress,
  type RedisHost,
} from "../domain/redis-address.ts";
import { jittered } from "./jitter.ts";

/** Where Redis is, and what its certificate is checked with. */
export interface RedisEndpoint {
  redisUrl: string;
  /** The server, where the address is that of Sentinels or of a cluster. User, password, database and TLS are the address's. */
  at?: RedisHost | undefined;
  /** Certificates, PEM, that a `rediss://` server is checked with; undefined for Node's own. */
  tlsCa?: string | undefined;
}

type ClientOptions = Pick<RedisOptions, "commandTimeout" | "connectTimeout" | "retryStrategy">;

export const connectTimeoutMs = (commandTimeoutMs: number): number => Math.max(1000, commandTimeoutMs);

/** An ioredis client that never queues, never resends, and gives up after the command timeout. */
export const createClient = (redisUrl: string, commandTimeoutMs: number, tlsCa?: string): Redis =>
  clientOf(
    { redisUrl, tlsCa },
    { commandTimeout: commandTimeoutMs, connectTimeout: connectTimeoutMs(commandTimeoutMs) },
  );

/** A client as `createClient` makes it, without its command timeout. */
export function clientOf({ redisUrl, at, tlsCa }: RedisEndpoint, options: ClientOptions): Redis {
  if (at !== undefined) return clientAt(at, { ...parseRedisAddress(redisUrl), tlsCa }, options);
  const address = parseServerAddress(redisUrl);
  return clientAt(address.hosts[0]!, { ...address, tlsCa }, options);
}

/** The same with a server, and how to log in there. */
export function clientAt(
  { host, port }: RedisHost,
  { tls, tlsCa, username, password, db, family }: LoginAt,
  options: ClientOptions,
): Redis {
  return new Redis({
    ...{ host, port, username, password, db, family },
    ...(tls ? { tls: tlsCa === undefined ? {} : { ca: tlsCa } } : {}),
    lazyConnect: true,
    autoResendUnfulfilledCommands: false,
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    retryStrategy: (attempt) => jittered(Math.min(50 * attempt, 1000)),
    reconnectOnError: (error) => error.message.startsWith("READONLY"),
    noDelay: true,
    keepAlive: 10_000,
    disableClientInfo: true,
    // It would be silent while Redis loads its data; commands then say LOADING.
    enableReadyCheck: false,
    // A Redis that does not answer must not keep a process alive that has closed the connection.
    disconnectTimeout: 200,
    ...options,
  });
}

/** How to log in at a server; undefined values are left out of what is sent. */
export type LoginAt = Pick<RedisAddress, "tls" | "db"> & {
  [name in "username" | "password" | "tlsCa"]?: string | undefined;
} & { family?: number | undefined };

/** ioredis stays in database 0 if the one in the URL cannot be selected; that may hold the credits of another store. */
export async function selectDatabase(redis: Redis): Promise<void> {
  if (redis.options.db) await redis.select(redis.options.db);
}
