import type { Redis } from "ioredis";
import type { Logger } from "../telemetry/log.ts";
import type { Deadlines } from "./deadlines.ts";
import { isReply } from "./script-errors.ts";
import { readInfo } from "./server-info.ts";

/** Where the copy does not fit on the disk, each try may stop Redis's writes for a moment. */
const AGAIN_AFTER_MS = 3_600_000;

/**
 * Rewrites the append-only file after each start of Redis: power loss cuts it within a script, and the start after next plays that half
 * with all that was appended since: https://github.com/valkey-io/valkey/pull/4342. Decision 0043.
 */
export function createRewriteAfterStart(parts: {
  redis: Redis;
  within: Deadlines["within"];
  log: Logger;
  name: string | undefined;
}): () => Promise<void> {
  const { redis, within, log, name } = parts;
  /** The latest run of Redis that was asked for it. */
  let asked = { run: "", atMs: Number.NEGATIVE_INFINITY };

  return async () => {
    if (!isDue(await within(redis.info("persistence")))) return;
    const run = readInfo(await within(redis.info("server"))).get("run_id") ?? "";
    if (asked.run === run && performance.now() - asked.atMs < AGAIN_AFTER_MS) return;
    try {
      await within(redis.bgrewriteaof());
    } catch (error) {
      if (!isReply(error)) throw error;
      if (!error.message.includes("already in progress"))
        log.warn({ primary: name, error: error.message }, NOT_REWRITTEN);
    }
    asked = { run, atMs: performance.now() };
  };
}

const NOT_REWRITTEN =
  "Redis does not rewrite its append-only file after its start; let the gateway's user run it (+bgrewriteaof), or run " +
  "BGREWRITEAOF by hand after a start that found the file cut off: a later start would play half a script";

function isDue(persistence: string): boolean {
  const info = readInfo(persistence);
  const isRewritten =
    info.get("aof_last_rewrite_time_sec") !== "-1" && info.get("aof_last_bgrewrite_status") !== "err";
  const isUnderWay = info.get("aof_rewrite_in_progress") === "1" || info.get("aof_rewrite_scheduled") === "1";
  return info.get("aof_enabled") === "1" && !isRewritten && !isUnderWay;
}
