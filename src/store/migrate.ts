import { setTimeout as wait } from "node:timers/promises";
import type { Redis } from "ioredis";
import { isEarlier, LAYOUT, type Layout, MIGRATING, requireMigratable } from "./layout.ts";
import { earlierTaskName, META, partitionOf, partitionOfName } from "./names.ts";
import type { RedisNodes } from "./nodes.ts";
import { OperatorError } from "./operator-error.ts";
import { many } from "./pipelines.ts";
import { taskRecord } from "./records.ts";
import { type Item, itemOf, type Script } from "./script-definition.ts";
import { scriptsOf } from "./script-runner.ts";
import { CONVERTIBLE, type ConvertCall, convert } from "./scripts/convert.ts";
import { type MoveCall, move } from "./scripts/move.ts";
import { isCluster, storedFacts } from "./store-facts.ts";

/** Gateways read the layout every 15 s, and stop at one that they do not serve. */
const GATEWAYS_KNOW_MS = 30_000;
/** Names that Redis looks at in one command, and records that it brings on in one. Each takes it some tenths of a millisecond. */
const SCAN_COUNT = 500;
const RECORDS_MAX = 32;

const ON_A_CLUSTER =
  "this Redis Cluster has a copy of a store of layout 1, which no cluster can use or migrate: empty the cluster, run " +
  "`tollgate store migrate` on the server that it was copied from, and copy it again";

export interface Migration {
  from: Layout;
  to: Layout;
  /** Records and lists that were brought to layout 4. */
  converted: number;
  /** Records of tasks of layout 1 that were moved; those of requests that are no more were deleted. */
  moved: number;
  deleted: number;
  /** Task ids that two requests had got; both are disputed. */
  disputed: number;
}

/**
 * Brings a store to the newest layout. Gateways do not use the store meanwhile: those of earlier releases stop once they have read
 * the layout, those of this release begin after the end. May be stopped at any point, and repeated: it goes on with what is left.
 * It ends once a look at all names finds nothing of an earlier layout. Behind Sentinels it works on the primary, on a Redis
 * Cluster on all. Decision 0057.
 * @param options.waitMs how long gateways may take to learn of it
 * @param options.recordsMax how many Redis brings on in one call
 * @param options.progress called with the number of records so far
 * @throws OperatorError for a copy of a store of layout 1 on a Redis Cluster, and for a store that was never used
 */
export async function migrateStore(
  nodes: RedisNodes,
  options: { waitMs?: number; recordsMax?: number; progress?: (records: number) => void } = {},
): Promise<Migration> {
  const { waitMs = GATEWAYS_KNOW_MS, recordsMax = RECORDS_MAX, progress = () => undefined } = options;
  const redis = nodes.ofName(META);
  nodes.requireWritable?.(nodes.all());
  const { partitions, layout: noted } = await storedFacts(nodes);
  if (partitions === undefined)
    throw new OperatorError("this store was never used, so there is nothing to migrate");
  const cluster = await isCluster(redis);
  // Stores of the first releases have none.
  const from = noted ?? (cluster ? "2" : "1");
  requireMigratable(from);
  // The names of one task lie on several nodes, and some in no partition: no script reaches them all.
  if (cluster && (from === "1" || from === "1>2")) throw new OperatorError(ON_A_CLUSTER);
  const result: Migration = { from, to: LAYOUT, converted: 0, moved: 0, deleted: 0, disputed: 0 };
  if (isEarlier(from)) await redis.hset(META, "layout", MIGRATING);
  // Also after an interruption: it may have been in the wait.
  if (from !== LAYOUT) await wait(waitMs);
  const look = { partitions: Number(partitions), recordsMax, result, progress };
  while (await convertAll(nodes, look));
  await redis.hset(META, "layout", LAYOUT);
  return result;
}

interface Look {
  partitions: number;
  recordsMax: number;
  result: Migration;
  progress: (records: number) => void;
}

/** Converts what one look at all names finds. @returns whether it found anything */
async function convertAll(nodes: RedisNodes, look: Look): Promise<boolean> {
  const before = total(look.result);
  for (const redis of nodes.all()) {
    let cursor = "0";
    do {
      const [next, names] = await redis.scan(cursor, "MATCH", "tg:*", "COUNT", SCAN_COUNT);
      cursor = next;
      await moveTasks(redis, names, look);
      const calls = names.flatMap((name) => convertCallOf(name) ?? []);
      for (const { outcome } of await runAll(redis, convert, calls, look))
        if (outcome === "converted") look.result.converted++;
      look.progress(total(look.result));
    } while (cursor !== "0");
  }
  return total(look.result) > before;
}

const total = ({ converted, moved, deleted, disputed }: Migration): number =>
  converted + moved + deleted + disputed;

export function convertCallOf(name: string): ConvertCall | undefined {
  const partition = partitionOfName(name);
  const kind = CONVERTIBLE.find((known) => known === name.split(":")[2]);
  return kind === undefined || partition === undefined ? undefined : { name, kind, partition };
}

/** Moves those records of tasks that are where layout 1 has them. */
async function moveTasks(redis: Redis, names: readonly string[], look: Look): Promise<void> {
  const { partitions, result } = look;
  const prefix = earlierTaskName("");
  const earlier = names.filter((name) => name.startsWith(prefix));
  const texts = await many<string | null, string>(redis, earlier, (pipe, name) => pipe.get(name));
  const calls = earlier.flatMap((name, at): MoveCall[] => {
    const text = texts[at];
    if (!text) return [];
    const { requestId, accountId } = taskRecord(text);
    return [{ taskId: name.slice(prefix.length), requestId, partition: partitionOf(accountId, partitions) }];
  });
  for (const { outcome } of await runAll(redis, move, calls, look)) {
    if (outcome === "moved") result.moved++;
    if (outcome === "dropped") result.deleted++;
    if (outcome === "conflict") result.disputed++;
  }
}

async function runAll<Call, Result>(
  redis: Redis,
  script: Script<Call, Result>,
  calls: readonly Call[],
  { recordsMax }: Pick<Look, "recordsMax">,
): Promise<Result[]> {
  const results: Result[] = [];
  for (let from = 0; from < calls.length; from += recordsMax) {
    const some = calls.slice(from, from + recordsMax);
    const items: Item[] = some.map((call) => itemOf(script, call));
    for (const [at, reply] of (await scriptsOf(redis).send(script, items)).entries()) {
      if (reply instanceof Error) throw reply;
      results.push(script.read(reply, some[at]!));
    }
  }
  return results;
}
