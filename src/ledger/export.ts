import type { Redis } from "ioredis";
import { readCut } from "../records/checkpoints.ts";
import {
  isLater,
  LEDGER_PAGE,
  LEDGER_START,
  type LedgerEntry,
  readLedger,
} from "../records/ledger-entries.ts";
import { partitionNames, partitionOf } from "../records/names.ts";
import { OperatorError } from "../records/operator-error.ts";
import { type PartitionReads, readsOfMost } from "../redis/partition-reads.ts";
import { partitionsOf, type RedisNodes } from "../redis/store-facts.ts";

const STREAM_SEQUENCE_MAX = "18446744073709551615";

export type LedgerCursor = Map<number, string>;

interface LedgerSelection {
  accountId?: string | undefined;
  /** Used where the cursor has no entry. */
  sinceMs?: number | undefined;
  untilMs?: number | undefined;
}

interface LedgerPage {
  partition: number;
  partitions: number;
  /** Includes entries of other accounts. */
  read: number;
  entries: LedgerEntry[];
}

/** Entries after the cursor, once each; moves it. @param reads unavailable servers' cursors stay @throws OperatorError for another store's cursor */
export async function* exportLedger(
  nodes: RedisNodes,
  cursor: LedgerCursor,
  selection: LedgerSelection = {},
  reads = readsOfMost(nodes),
): AsyncGenerator<LedgerPage> {
  const { accountId, sinceMs = 0, untilMs } = selection;
  const partitions = await partitionsOf(nodes);
  await requireReached(reads, cursor, partitions);
  const only = accountId === undefined ? undefined : partitionOf(accountId, partitions);
  const start = sinceMs > 0 ? `${sinceMs - 1}-${STREAM_SEQUENCE_MAX}` : LEDGER_START;
  const last = untilMs === undefined ? "+" : `${Math.max(0, untilMs - 1)}-${STREAM_SEQUENCE_MAX}`;
  for (let partition = 0; partition < partitions; partition++) {
    if (only !== undefined && partition !== only) continue;
    let read: LedgerEntry[] | undefined;
    do {
      const after = cursor.get(partition) ?? start;
      read = await reads.at(partition, (redis) => readLedger(redis, partition, after, last));
      if (!read) break;
      const lastId = read.at(-1)?.streamId;
      if (lastId !== undefined) cursor.set(partition, lastId);
      const entries = accountId === undefined ? read : read.filter((entry) => entry.accountId === accountId);
      yield { partition, partitions, read: read.length, entries };
    } while (read.length === LEDGER_PAGE);
  }
}

const TRIMMED_SINCE =
  "entries after the cursor have left Redis for the archive; take them from there, and export anew with --since the time up to " +
  "which you have them";

async function placeOf(
  redis: Redis,
  partition: number,
  streamId: string,
): Promise<"there" | "left" | "ahead"> {
  const { ledger } = partitionNames(partition);
  if ((await redis.xrange(ledger, streamId, streamId)).length > 0) return "there";
  const { lastEntry } = await readCut(redis, partition);
  if (streamId === lastEntry) return "there";
  return isLater(streamId, lastEntry) ? "ahead" : "left";
}

/** When the oldest entry in Redis was made, Unix ms; 0 if none has left. @param accountId only its partition */
export async function completeSinceMs(
  nodes: RedisNodes,
  accountId: string | undefined,
  reads = readsOfMost(nodes),
): Promise<number> {
  const partitions = await partitionsOf(nodes);
  const only = accountId === undefined ? undefined : partitionOf(accountId, partitions);
  let sinceMs = 0;
  for (let partition = 0; partition < partitions; partition++) {
    if (only !== undefined && partition !== only) continue;
    const cut = await reads.at(partition, (redis) => readCut(redis, partition));
    if (cut !== undefined && cut.atMs > 0) sinceMs = Math.max(sinceMs, cut.atMs + 1);
  }
  return sinceMs;
}

/** A ledger without the cursor's entry is another one, or an older copy. */
async function requireReached(
  reads: PartitionReads,
  cursor: LedgerCursor,
  partitions: number,
): Promise<void> {
  for (const [partition, streamId] of cursor) {
    if (streamId === LEDGER_START) continue;
    const where =
      partition < partitions
        ? await reads.at(partition, (redis) => placeOf(redis, partition, streamId))
        : "ahead";
    if (where === "left") throw new OperatorError(TRIMMED_SINCE);
    if (where !== "ahead") continue;
    throw new OperatorError(
      "the cursor is ahead of this ledger, so it belongs to another Redis, or this one was restored from an older copy or lost " +
        "the entry in a failover; export anew without it, and skip requests and references that you have",
    );
  }
}

export function formatCursor(cursor: LedgerCursor): string {
  return [...cursor].map(([partition, streamId]) => `${partition}:${streamId}`).join(",");
}

export function parseCursor(text: string): LedgerCursor | undefined {
  const cursor: LedgerCursor = new Map();
  if (text === "") return cursor;
  for (const part of text.split(",")) {
    const match = /^(\d{1,4}):(\d{1,19}-\d{1,19})$/.exec(part);
    if (!match) return undefined;
    cursor.set(Number(match[1]), match[2] ?? LEDGER_START);
  }
  return cursor;
}
