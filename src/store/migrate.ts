import { setTimeout as wait } from "node:timers/promises";
import type { Redis } from "ioredis";
import { OperatorError } from "./accounts.ts";
import { hasTasksInPartitions, type Layout, NEW_LAYOUT } from "./layout.ts";
import { moveCallOf } from "./layout-1.ts";
import { earlierTaskName, META } from "./names.ts";
import type { RedisNodes } from "./nodes.ts";
import { many } from "./pipelines.ts";
import { type Item, itemOf } from "./script-definition.ts";
import { scriptsOf } from "./script-runner.ts";
import { type MoveCall, move } from "./scripts/move.ts";
import { isCluster, layoutOf, partitionsOf } from "./store-facts.ts";

/** Gateways read the layout every 15 s. Until then they are like those of an earlier release. */
const GATEWAYS_KNOW_MS = 30_000;
/** Names that Redis looks at in one command, and records that it moves in one. Each takes it some tenths of a millisecond. */
const SCAN_COUNT = 500;
const MOVES_MAX = 32;

const ON_A_CLUSTER =
  "this Redis Cluster has a copy of a store of layout 1, which no cluster can use or migrate: empty the cluster, run " +
  "`tollgate store migrate` on the server that it was copied from, and copy it again";

export interface Migration {
  from: Layout;
  to: Layout;
  /** Records that were moved; those of requests that are no more were deleted. */
  moved: number;
  deleted: number;
  /** Task ids that two requests had got, one of them by a gateway of an earlier release meanwhile; both are disputed. */
  disputed: number;
}

/**
 * Brings a store to the newest layout while it is used. May be stopped at any point, and repeated: it goes on with what is
 * left. It ends once a look at all names, half a minute after the one before, finds no record of layout 1. Behind Sentinels it
 * works on the primary; on a Redis Cluster there is nothing to do. Decision 0044.
 * @param options.waitMs how long gateways may take to learn of it
 * @param options.progress called with the number of records so far
 * @throws OperatorError for a copy of a store of layout 1 on a Redis Cluster
 */
export async function migrateStore(
  nodes: RedisNodes,
  options: { waitMs?: number; progress?: (records: number) => void } = {},
): Promise<Migration> {
  const { waitMs = GATEWAYS_KNOW_MS, progress = () => undefined } = options;
  const redis = nodes.ofName(META);
  nodes.requireWritable?.(nodes.all());
  const from = await layoutOf(nodes);
  const isNewest = hasTasksInPartitions(from);
  const result: Migration = { from, to: isNewest ? from : NEW_LAYOUT, moved: 0, deleted: 0, disputed: 0 };
  if (await isCluster(redis)) {
    // The names of one task lie on several nodes, and some in no partition: no script reaches them all.
    if (!isNewest) throw new OperatorError(ON_A_CLUSTER);
    return result;
  }
  const partitions = await partitionsOf(nodes);
  if (from === "1") await redis.hset(META, "layout", "1>2");
  if (!isNewest) await wait(waitMs);
  while (await moveAll(redis, partitions, result, progress)) await wait(waitMs);
  if (!isNewest) await redis.hset(META, "layout", NEW_LAYOUT);
  return result;
}

/** Moves what one look at all names finds. @returns whether it found anything */
async function moveAll(
  redis: Redis,
  partitions: number,
  result: Migration,
  progress: (records: number) => void,
): Promise<boolean> {
  const before = total(result);
  const prefix = earlierTaskName("");
  let cursor = "0";
  do {
    const [next, names] = await redis.scan(cursor, "MATCH", `${prefix}*`, "COUNT", SCAN_COUNT);
    cursor = next;
    const texts = await many<string | null, string>(redis, names, (pipe, name) => pipe.get(name));
    const calls = names.flatMap((name, at) => {
      const text = texts[at] ?? null;
      return text === null ? [] : [moveCallOf(name.slice(prefix.length), text, partitions)];
    });
    for (let at = 0; at < calls.length; at += MOVES_MAX) {
      await moveSome(redis, calls.slice(at, at + MOVES_MAX), result);
    }
    progress(total(result));
  } while (cursor !== "0");
  return total(result) > before;
}

const total = ({ moved, deleted, disputed }: Migration): number => moved + deleted + disputed;

async function moveSome(redis: Redis, calls: readonly MoveCall[], result: Migration): Promise<void> {
  const { send } = scriptsOf(redis);
  const items: Item[] = calls.map((call) => itemOf(move, call));
  for (const [at, reply] of (await send(move, items)).entries()) {
    if (reply instanceof Error) throw reply;
    const call = calls[at]!;
    const moved = move.read(reply, call);
    if (moved.outcome === "moved") result.moved++;
    if (moved.outcome === "dropped") result.deleted++;
    if (moved.outcome === "conflict") result.disputed++;
  }
}
