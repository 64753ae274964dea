import type { Redis } from "ioredis";
import { clientOf, connectTimeoutMs } from "../../src/redis/client.ts";

/** A client as operators' connections have it: it gives up after the command timeout. */
export const createClient = (redisUrl: string, commandTimeoutMs: number, tlsCa?: string): Redis =>
  clientOf(
    { redisUrl, tlsCa },
    { commandTimeout: commandTimeoutMs, connectTimeout: connectTimeoutMs(commandTimeoutMs) },
  );
