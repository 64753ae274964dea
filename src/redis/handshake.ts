import type { Redis } from "ioredis";
import type { Deadline, Deadlines } from "./deadlines.ts";

/** A server that accepts connections is silent on them: it is frozen, or what answers is something before it. */
export const SILENT = "no answer to the handshake";

/**
 * Ends each connection whose server accepts it and does not answer in time. The client library limits only the time to
 * connect: it would wait for a frozen Redis for ever. The client then tries again by itself.
 * @param limit of the time between the connection and the first answers on it
 */
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
