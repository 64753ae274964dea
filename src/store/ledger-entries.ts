import type { Redis } from "ioredis";
import { partitionNames, partitionOf } from "./names.ts";
import { partitionsOf } from "./partitions.ts";

/** Entries read at a time: a millisecond or so of Redis. */
export const LEDGER_PAGE = 1000;
/** Before the first entry of any stream. */
export const LEDGER_START = "0-0";

/** One movement of credits as the ledger holds it; texts are empty where they do not apply. Written by `post`. */
export interface LedgerEntry {
  partition: number;
  /** Id in the partition's stream. */
  streamId: string;
  accountId: string;
  type: string;
  /** Whole credits; negative for consume. */
  amount: number;
  balanceAfter: number;
  endpoint: string;
  reason: string;
  taskId: string;
  requestId: string;
  keyId: string;
  reference: string;
  /** Id of the account's entry before it; empty for its first. */
  previous: string;
  /** Unix ms. */
  atMs: number;
}

export type StreamEntry = [id: string, fields: string[]];

/** Reads what XRANGE answers. */
export function ledgerEntry(partition: number, [streamId, fields]: StreamEntry): LedgerEntry {
  const field: Record<string, string> = {};
  for (let at = 0; at + 1 < fields.length; at += 2) field[fields[at] ?? ""] = fields[at + 1] ?? "";
  return {
    partition,
    streamId,
    accountId: field.account_id ?? "",
    type: field.type ?? "",
    amount: Number(field.amount),
    balanceAfter: Number(field.balance_after),
    endpoint: field.endpoint ?? "",
    reason: field.reason ?? "",
    taskId: field.task_id ?? "",
    requestId: field.request_id ?? "",
    keyId: field.key_id ?? "",
    reference: field.reference ?? "",
    previous: field.previous ?? "",
    atMs: Number(field.at),
  };
}

/** The next page of a partition's ledger, oldest first; shorter than `LEDGER_PAGE` at its end. */
export async function readLedger(redis: Redis, partition: number, after: string): Promise<LedgerEntry[]> {
  const { ledger } = partitionNames(partition);
  const page = await redis.xrange(ledger, `(${after}`, "+", "COUNT", LEDGER_PAGE);
  return page.map((entry) => ledgerEntry(partition, entry));
}

/** Up to `most` entries of an account, from its last one back. */
export async function latestEntries(
  redis: Redis,
  partition: number,
  last: string,
  most: number,
): Promise<LedgerEntry[]> {
  const { ledger } = partitionNames(partition);
  const entries: LedgerEntry[] = [];
  for (let at = last; at !== "" && entries.length < most; at = entries.at(-1)!.previous) {
    const [found] = await redis.xrange(ledger, at, at);
    if (!found) break;
    entries.push(ledgerEntry(partition, found));
  }
  return entries;
}

/** How far an export has come: partition to the id of the last entry that was read there. */
export type LedgerCursor = Map<number, string>;

/**
 * All entries after a cursor, by partition and then by time; moves the cursor along. What is posted meanwhile comes
 * with this run or the next, and never twice.
 * @param accountId only this account's
 */
export async function* exportLedger(
  redis: Redis,
  cursor: LedgerCursor,
  accountId?: string,
): AsyncGenerator<LedgerEntry> {
  const partitions = await partitionsOf(redis);
  const only = accountId === undefined ? undefined : partitionOf(accountId, partitions);
  for (let partition = 0; partition < partitions; partition++) {
    if (only !== undefined && partition !== only) continue;
    for (;;) {
      const page = await readLedger(redis, partition, cursor.get(partition) ?? LEDGER_START);
      for (const entry of page) {
        cursor.set(partition, entry.streamId);
        if (accountId === undefined || entry.accountId === accountId) yield entry;
      }
      if (page.length < LEDGER_PAGE) break;
    }
  }
}

/** A cursor as text, such as `3:1766312345678-0,9:1766312345999-1`. */
export function formatCursor(cursor: LedgerCursor): string {
  return [...cursor].map(([partition, streamId]) => `${partition}:${streamId}`).join(",");
}

/** Reads a cursor; undefined if it is none. */
export function parseCursor(text: string): LedgerCursor | undefined {
  const cursor: LedgerCursor = new Map();
  if (text === "") return cursor;
  for (const part of text.split(",")) {
    const match = /^(\d{1,4}):(\d{1,20}-\d{1,20})$/.exec(part);
    if (!match) return undefined;
    cursor.set(Number(match[1]), match[2] ?? LEDGER_START);
  }
  return cursor;
}
