import type { Redis } from "ioredis";
import { expect } from "vitest";
import { entryFields } from "../../src/records/ledger-entries.ts";
import {
  accountNames,
  dueFrom,
  dueTime,
  keyRef,
  partitionNames,
  partitionOf,
  requestName,
} from "../../src/records/names.ts";
import { accountIn } from "./account-money.ts";
import { readCounters } from "./stored-records.ts";
import { changeRequest, readRequest } from "./stored-requests.ts";

/** One ledger entry as the store keeps it. */
export interface Entry {
  type: string;
  amount: number;
  balanceAfter: number;
  requestId: string;
  taskId: string;
  reason: string;
}

/** All that the store holds of one account and one of its keys. */
export interface Ledger {
  /** As stored, holds included. */
  balance: number;
  held: number;
  totalUsed: number;
  totalRequests: number;
  slots: string[];
  windowEntries: number;
  dayCount: number;
  entries: Entry[];
}

interface Owner {
  accountId: string;
  keyId: string;
}

export async function partitionFor(client: Redis, accountId: string): Promise<number> {
  return partitionOf(accountId, Number(await client.hget("tg:meta", "partitions")));
}

/** The name of a key's own record, to change what only an operator changes. */
export async function keyRecord(client: Redis, { accountId, keyId }: Owner): Promise<string> {
  return keyRef(keyId, accountId, await partitionFor(client, accountId)).names.key;
}

/** Reads the account straight from Redis, past the gateway. */
export async function readLedger(client: Redis, { accountId, keyId }: Owner): Promise<Ledger> {
  const partition = await partitionFor(client, accountId);
  const { names } = keyRef(keyId, accountId, partition);
  const account = await accountIn(client, accountNames(partition, accountId).account);
  const stream = await client.xrange(partitionNames(partition).ledger, "-", "+");
  const entries = stream
    .map(([, fields]) => entryFields(fields))
    .filter((entry) => entry.account_id === accountId)
    .map((entry) => ({
      type: entry.type ?? "",
      amount: Number(entry.amount),
      balanceAfter: Number(entry.balance_after),
      requestId: entry.request_id ?? "",
      taskId: entry.task_id ?? "",
      reason: entry.reason ?? "",
    }));
  return {
    balance: Number(account.balance),
    held: Number(account.held ?? 0),
    totalUsed: Number(account.total_used ?? 0),
    totalRequests: Number(account.total_requests ?? 0),
    slots: await client.smembers(names.slots),
    windowEntries: await client.llen(names.window),
    dayCount: Number((await readCounters(client, names.key)).day_count ?? 0),
    entries,
  };
}

export const consumed = (ledger: Ledger): Entry[] => ledger.entries.filter(({ type }) => type === "consume");

export const refunded = (ledger: Ledger): Entry[] =>
  ledger.entries.filter(({ reason }) => reason === "refund");

/** Invariants 1 and 2 of docs/ARCHITECTURE.md. */
export function expectSound(ledger: Ledger): void {
  let balance = 0;
  for (const entry of ledger.entries) {
    balance += entry.amount;
    expect(entry.balanceAfter, "the ledger chains").toBe(balance);
    expect(balance, "never below zero").toBeGreaterThanOrEqual(0);
  }
  expect(ledger.balance, "the last entry is the balance").toBe(balance);
  const used = [...consumed(ledger), ...refunded(ledger)];
  expect(ledger.totalUsed + used.reduce((sum, { amount }) => sum + amount, 0)).toBe(0);
  for (const requestId of new Set(used.map((entry) => entry.requestId))) {
    const own = used.filter((entry) => entry.requestId === requestId);
    expect(own.filter(({ type }) => type === "consume").length, "charged once at most").toBe(1);
    expect(own.length, "refunded once at most").toBeLessThanOrEqual(2);
    const sum = own.reduce((total, { amount }) => total + amount, 0);
    expect(own.length === 1 ? sum < 0 : sum === 0, "nothing, or the price").toBe(true);
  }
}

/** An account to which nothing has ever happened but its first credits. */
export function expectUntouched(ledger: Ledger, credits: number): void {
  expect(ledger).toMatchObject({
    balance: credits,
    held: 0,
    totalUsed: 0,
    totalRequests: 0,
    slots: [],
    windowEntries: 0,
    dayCount: 0,
  });
  expect(ledger.entries.map(({ amount }) => amount)).toEqual([credits]);
}

/** Open requests of an account: holds, and tasks without an end. */
export async function openRequests(client: Redis, accountId: string): Promise<string[]> {
  const partition = await partitionFor(client, accountId);
  const due = await client.zrange(partitionNames(partition).due, "0", "-1");
  const records = await Promise.all(due.map((id) => readRequest(client, requestName(partition, id))));
  return due.filter((_, at) => records[at]?.account_id === accountId);
}

/** Moves what is open into the past, as if its due time had come, and whatever else is named with it. */
export async function makeDue(
  client: Redis,
  accountId: string,
  fields: Record<string, string> = {},
): Promise<number> {
  const partition = await partitionFor(client, accountId);
  const open = await openRequests(client, accountId);
  const pastMs = Date.now() - 1000;
  const past = String(pastMs);
  const { due } = partitionNames(partition);
  for (const requestId of open) {
    await changeRequest(client, requestName(partition, requestId), { due_at: past, ...fields });
    const { list } = dueTime(Number(await client.zscore(due, requestId)));
    await client.zadd(due, "XX", dueFrom(list) + pastMs, requestId);
  }
  return open.length;
}
