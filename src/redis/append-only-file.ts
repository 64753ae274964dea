import type { Redis } from "ioredis";
import type { Logger } from "../telemetry/log.ts";
import type { Deadlines } from "./deadlines.ts";
import { isReply } from "./script-errors.ts";
import { readInfo } from "./server-info.ts";

/** Where the copy does not fit on the disk, each try may stop Redis's writes for a moment. */
const AGAIN_AFTER_MS = 3_600_000;

/**
 * Rewrites the append-only file
 * - after each start of Redis: power loss cuts it within a script, and the start after next plays that half with all that was appended since:
 *   https://github.com/valkey-io/valkey/pull/4342;
 * - after its disk was full: Redis cuts off what it wrote in part, and appends behind a gap of zero bytes that no start can read (tried with 7.0.15).
 *
 * Decision 0043.
 */
export function createRewriteWhenDue(parts: {
  redis: Redis;
  within: Deadlines["within"];
  log: Logger;
  name: string | undefined;
}): () => Promise<void> {
  const { redis, within, log, name } = parts;
  /** The latest run of Redis that was asked for it. */
  let latest = { run: "", atMs: Number.NEGATIVE_INFINITY };
  /** Writes that Redis had refused because of its disk, and the rewrites that had begun when that became known. -1: none is due for it. */
  let gap = { refusedWrites: 0, rewrites: -1 };

  return async () => {
    const info = readInfo(await within(redis.info("persistence")));
    if (info.get("aof_enabled") !== "1" || info.get("aof_last_write_status") === "err") return;
    const refusedWrites = refusedWritesIn(await within(redis.info("errorstats")));
    const rewrites = Number(info.get("aof_rewrites") ?? 0);
    if (refusedWrites !== gap.refusedWrites)
      gap = { refusedWrites, rewrites: refusedWrites === 0 ? -1 : rewrites };
    if (isUnderWay(info) || (wasRewritten(info) && rewrites > gap.rewrites)) return;
    const run = readInfo(await within(redis.info("server"))).get("run_id") ?? "";
    const isTooSoon = latest.run === run && performance.now() - latest.atMs < AGAIN_AFTER_MS;
    if (isTooSoon && !wasRewritten(info)) return;
    try {
      await within(redis.bgrewriteaof());
    } catch (error) {
      if (!isReply(error)) throw error;
      if (!error.message.includes("already in progress"))
        log.warn({ primary: name, error: error.message }, NOT_REWRITTEN);
    }
    latest = { run, atMs: performance.now() };
    gap = { refusedWrites, rewrites: -1 };
  };
}

type Info = ReadonlyMap<string, string>;

/** Since the start of Redis. */
const refusedWritesIn = (errors: string): number =>
  Number(/count=(\d+)/.exec(readInfo(errors).get("errorstat_MISCONF") ?? "")?.[1] ?? 0);

const wasRewritten = (info: Info): boolean =>
  info.get("aof_last_rewrite_time_sec") !== "-1" && info.get("aof_last_bgrewrite_status") !== "err";

const isUnderWay = (info: Info): boolean =>
  info.get("aof_rewrite_in_progress") === "1" || info.get("aof_rewrite_scheduled") === "1";

const NOT_REWRITTEN =
  "Redis does not rewrite its append-only file; let the gateway's user run it (+bgrewriteaof), or run BGREWRITEAOF by hand after a " +
  "start that found the file cut off, and after a full disk: a later start would play half a script, or not read the file";
