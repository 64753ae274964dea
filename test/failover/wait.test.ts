import type { Redis } from "ioredis";
import { expect, test } from "vitest";
import type { RedisBinary } from "../../src/sandbox/redis-server.ts";
import { withServer } from "../support/servers.ts";
import { startPair } from "./pair.ts";

const WAIT_MS = 200;

/**
 * A replica that has stopped acknowledging, and a write that it does not have.
 * @param work gets another connection than the one that wrote
 */
async function withUnreplicatedWrite(binary: RedisBinary, work: (other: Redis) => Promise<void>) {
  const pair = await startPair({ binary });
  const other = pair.primary.client.duplicate();
  try {
    await other.connect();
    pair.replica.pause();
    await pair.primary.client.set("charge", "1");
    await work(other);
  } finally {
    other.disconnect();
    await pair.stop();
  }
}

const confirmedBy = (redis: Redis): Promise<number> => redis.wait(1, WAIT_MS);

test("Redis before 7.2: WAIT of a connection that wrote nothing counts what others wrote before its last command", (context) =>
  withServer("redis", context, (binary) =>
    withUnreplicatedWrite(binary, async (other) => {
      expect(await confirmedBy(other)).toBe(1);
      await other.ping();
      expect(await confirmedBy(other)).toBe(0);
    }),
  ));

test("Redis 7.2 and Valkey: WAIT of a connection that wrote nothing is satisfied at once, though another's write is not replicated", (context) =>
  withServer("valkey", context, (binary) =>
    withUnreplicatedWrite(binary, async (other) => {
      await other.ping();
      expect(await confirmedBy(other)).toBe(1);
    }),
  ));

test.for(["redis", "valkey"] as const)(
  "%s: after a mark of its own a connection's WAIT covers all that was written before",
  (kind, context) =>
    withServer(kind, context, (binary) =>
      withUnreplicatedWrite(binary, async (other) => {
        await other.set("mark", "1");
        expect(await confirmedBy(other)).toBe(0);
      }),
    ),
);
