import { Redis, type RedisOptions } from "ioredis";
import {
  parseRedisAddress,
  parseServerAddress,
  type RedisAddress,
  type RedisHost,
} from "../domain/redis-address.ts";
import { type Deadline, type Deadlines, TIMED_OUT } from "./deadlines.ts";
import { isUnreachable } from "./reasons.ts";
import { jittered } from "./repeated-work.ts";

export interface RedisEndpoint {
  redisUrl: string;
  /** The server, where the address is that of Sentinels or of a cluster. User, password, database and TLS are the address's. */
  at?: RedisHost | undefined;
  /** Certificates, PEM, that a `rediss://` server is checked with; undefined for Node's own. */
  tlsCa?: string | undefined;
}

type ClientOptions = Pick<RedisOptions, "commandTimeout" | "connectTimeout" | "db" | "retryStrategy">;

export const connectTimeoutMs = (commandTimeoutMs: number): number => Math.max(1000, commandTimeoutMs);

/** An ioredis client that never queues and never resends. */
export function clientOf({ redisUrl, at, tlsCa }: RedisEndpoint, options: ClientOptions): Redis {
  if (at !== undefined) return clientAt(at, { ...parseRedisAddress(redisUrl), tlsCa }, options);
  const address = parseServerAddress(redisUrl);
  return clientAt(address.hosts[0]!, { ...address, tlsCa }, options);
}

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
export async function selectDatabase(redis: Redis, db = redis.options.db): Promise<void> {
  if (db) await redis.select(db);
}

/**
 * In the database of the address. @param limits a socket's own timer counts the time in which this process stalls
 * @throws Redis's answer, or what became of the connection
 */
export async function onOwnConnection<T>(
  endpoint: RedisEndpoint,
  limits: { connecting: Deadlines; command: Deadlines },
  work: (redis: Redis) => Promise<T>,
): Promise<T> {
  // Selected later: of a server that refuses and closes, the refusal is lost if a second command is written to it.
  const redis = clientOf(endpoint, { connectTimeout: 0, db: 0, retryStrategy: () => null });
  const reasonOf = await connectOnce(redis, limits.connecting);
  const { db } = parseRedisAddress(endpoint.redisUrl);
  try {
    return await limits.command.within(selectDatabase(redis, db).then(() => work(redis)));
  } catch (error) {
    throw reasonOf(error);
  } finally {
    hangUp(redis);
  }
}

/** @param late the error if it takes too long @returns says more of a later error @throws Redis's answer, or what became of the connection */
export async function connectOnce(
  redis: Redis,
  limit: Deadlines,
  late?: () => Error,
): Promise<(error: unknown) => unknown> {
  let answered: unknown;
  let latest: unknown;
  redis.on("error", (error: Error) => {
    latest = error;
    if (!isUnreachable(error)) answered ??= error;
  });
  const reasonOf = (error: unknown): unknown =>
    answered ?? (isUnreachable(error) ? (latest ?? error) : error);
  try {
    await limit.within(redis.connect());
    // A database that cannot be selected is only an event: the client stays in another.
    if (answered !== undefined) throw answered;
    return reasonOf;
  } catch (error) {
    const isLate = error instanceof Error && error.message === TIMED_OUT;
    const reason = reasonOf(isLate && late ? late() : error);
    hangUp(redis);
    throw reason;
  }
}

export function hangUp(redis: Redis): void {
  redis.disconnect();
  redis.stream?.destroy();
}

/** A server that accepts connections is silent on them: it is frozen, or what answers is something before it. */
export const SILENT = "no answer to the handshake";

/** The library limits only the time to connect: it would wait for a frozen Redis for ever. @param limit until the first answers */
export function limitHandshakes(redis: Redis, limit: Deadlines): void {
  let handshake: Deadline | undefined;
  const end = (): void => {
    if (handshake) limit.end(handshake);
  };
  redis.on("connect", () => {
    handshake = limit.begin(() => redis.stream.destroy(new Error(SILENT)));
  });
  redis.on("ready", end);
  redis.on("close", end);
}
