import type { Redis } from "ioredis";
import { readInfo } from "./server-info.ts";

/** Commands that change streams, sorted sets or counts, or remove keys. Idle gateways run none of them regularly. */
const WATCHED = new Set(
  [
    ..."xadd xdel xtrim xsetid xgroup xautoclaim zadd zincrby zrem zremrangebyrank zremrangebyscore zremrangebylex".split(
      " ",
    ),
    ..."zpopmin zpopmax zmpop bzpopmin bzpopmax bzmpop zunionstore zinterstore zdiffstore zrangestore".split(
      " ",
    ),
    ..."del unlink flushall flushdb restore restore-asking rename renamenx copy move swapdb migrate".split(
      " ",
    ),
    ..."hincrby hdel replicaof slaveof debug sort geoadd".split(" "),
  ].map((command) => `cmdstat_${command}`),
);
/** How old the counts may be that another look has read: what came since is seen at the next look. */
const SHARED_MS = 1000;
/** Work is done at least this often, whatever the counters say. */
const LOOK_EVERY_MS = 5 * 60_000;

/**
 * Tells if a server may have anything new, so that an idle gateway does not read every partition every second: one INFO has the calls of
 * all writing commands (`INFO commandstats`, https://redis.io/docs/latest/commands/info/). @param options.late what is new may be seen a second late
 */
export function createWriteWatch({ late = false } = {}) {
  const looks = new WeakMap<Redis, { writes: string; subject: string; atMs: number }>();
  return {
    /** @param subject e.g. partitions' names; another one is always looked at @returns undefined, or to be called once all was read */
    async news(redis: Redis, subject: string): Promise<(() => void) | undefined> {
      // Read before the look: what comes during it counts as new at the next one.
      const writes = await (late ? sharedWrites(redis) : readWrites(redis));
      const last = looks.get(redis);
      const atMs = performance.now();
      const isSame = last !== undefined && last.writes === writes && last.subject === subject;
      if (isSame && atMs - last.atMs < LOOK_EVERY_MS) return undefined;
      looks.delete(redis);
      return () => {
        if (writes !== undefined) looks.set(redis, { writes, subject, atMs });
      };
    },
  };
}

const latest = new WeakMap<Redis, { atMs: number; writes: Promise<string | undefined> }>();

function readWrites(redis: Redis): Promise<string | undefined> {
  const writes = writesOf(redis);
  latest.set(redis, { atMs: performance.now(), writes });
  return writes;
}

function sharedWrites(redis: Redis): Promise<string | undefined> {
  const read = latest.get(redis);
  return read && performance.now() - read.atMs < SHARED_MS ? read.writes : readWrites(redis);
}

/** The run of a server and its calls of watched commands; undefined where it does not say. */
async function writesOf(redis: Redis): Promise<string | undefined> {
  // Where INFO fails, every look reads all, and says what is wrong.
  const info = readInfo(await redis.info("server", "commandstats").catch(() => ""));
  const runId = info.get("run_id");
  let isCounted = false;
  let calls = 0;
  for (const [name, value] of info) {
    if (!name.startsWith("cmdstat_")) continue;
    isCounted = true;
    if (WATCHED.has(name.split("|")[0]!)) calls += Number(/^calls=(\d+)/.exec(value)?.[1]);
  }
  return runId !== undefined && isCounted && Number.isFinite(calls) ? `${runId} ${calls}` : undefined;
}
