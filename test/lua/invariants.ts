import { accountNames, claimName, claimText, requestName, taskName } from "../../src/records/names.ts";
import { accountIn } from "../support/account-money.ts";
import { readRequest } from "../support/stored-requests.ts";
import { Disagreement } from "./disagreement.ts";
import type { Run } from "./drive.ts";
import { DAY_MS, WINDOW_MS } from "./model-state.ts";
import { ledgerOf, oneKeyEach } from "./state.ts";

type Fields = Record<string, string>;

/** The invariants of docs/ARCHITECTURE.md, read off the store alone. @throws Disagreement that names the one that is broken */
export async function checkInvariants(run: Run): Promise<void> {
  const records = await requestRecords(run);
  await checkMoney(run, records);
  await checkSlots(run, records);
  await checkSharedSlots(run);
  checkLimits(run, records);
  await checkBounds(run, records);
  await checkClaims(run);
  checkKeys(run);
}

async function requestRecords(run: Run): Promise<Fields[]> {
  const { redis } = run.stage;
  const records = run.sent.map(async ({ request: { generation, key } }): Promise<Fields> => {
    const fields = await readRequest(redis, requestName(key.partition, generation.requestId));
    return { ...fields, id: generation.requestId };
  });
  return (await Promise.all(records)).filter(({ state }) => state !== undefined);
}

/**
 * 1 and 2: the ledger chains and ends at the balance; a request costs its price or nothing. One whose charge the store had lost when it
 * was refunded has its refund first.
 */
async function checkMoney(run: Run, records: readonly Fields[]): Promise<void> {
  const lost = new Set(
    run.sent.flatMap(({ request }) => (request.lost ? [request.generation.requestId] : [])),
  );
  for (const ref of oneKeyEach(run.refs)) {
    const ledger = await ledgerOf(run, ref);
    let balance = 0;
    const perRequest = new Map<string, number[]>();
    for (const { amount, balance_after, request_id } of ledger) {
      balance += amount;
      must(balance === balance_after && balance >= 0, "1: the ledger chains and never goes below zero");
      if (request_id !== undefined)
        perRequest.set(request_id, [...(perRequest.get(request_id) ?? []), amount]);
    }
    const { balance: stored, held } = await accountIn(run.stage.redis, ref.names.account);
    const holds = records.filter(({ state, account_id }) => state === "held" && account_id === ref.accountId);
    const open = holds.reduce((sum, { price }) => sum + Number(price), 0);
    must(balance === Number(stored), "1: the ledger ends at the balance");
    must(open === Number(held) && balance >= open, "1: what is held is the sum of the open holds");
    for (const [id, amounts] of perRequest) {
      const [charge = 0, refund = -charge, again = charge] = lost.has(id)
        ? amounts.map((amount) => -amount)
        : amounts;
      const once = amounts.length <= 3 && charge < 0 && refund === -charge && again === charge;
      must(once, "2: a request costs its price or nothing");
    }
  }
}

/** 3: slots are the holds and the unfinished tasks. */
async function checkSlots(run: Run, records: readonly Fields[]): Promise<void> {
  for (const { keyId, names } of run.refs) {
    const slots = (await run.stage.redis.smembers(names.slots)).sort().join();
    const open = records.filter(
      ({ state, key_id }) => key_id === keyId && (state === "held" || state === "bound"),
    );
    const ids = open.map(({ id }) => id).sort();
    must(slots === ids.join(), "3: slots are the holds and the unfinished tasks");
  }
}

/** 3: the slots of an account with limits over all its keys are those of its keys. */
async function checkSharedSlots(run: Run): Promise<void> {
  const { redis } = run.stage;
  for (const { accountId, partition, names } of oneKeyEach(run.refs)) {
    const keys = run.refs.filter((ref) => ref.accountId === accountId);
    const slots = await Promise.all(keys.map((ref) => redis.smembers(ref.names.slots)));
    const limited = await redis.hget(names.account, "limited");
    const expected = limited === null ? [] : slots.flat().sort();
    const shared = (await redis.smembers(accountNames(partition, accountId).slots)).sort();
    must(shared.join() === expected.join(), "3: slots of an account are those of its keys");
  }
}

/** 4: no interval of 60 s and no day has more admissions than the limit ever allowed. */
function checkLimits(run: Run, records: readonly Fields[]): void {
  for (const { keyId } of run.refs) {
    const { rate_limit, daily_limit } = run.widest.get(keyId)!;
    const admitted = records.filter(
      ({ key_id, admitted_at }) => key_id === keyId && admitted_at !== undefined,
    );
    const stamps = admitted
      .filter(({ reason }) => reason !== "unsent")
      .map(({ admitted_at }) => Number(admitted_at));
    for (const end of stamps) {
      const inside = stamps.filter((stamp) => stamp > end - WINDOW_MS && stamp <= end).length;
      must(inside <= rate_limit, "4: never more than the limit in 60 s");
    }
    const days = new Map<number, number>();
    for (const { admitted_at } of admitted.filter(({ void_at }) => void_at === undefined)) {
      const day = Math.floor(Number(admitted_at) / DAY_MS);
      days.set(day, (days.get(day) ?? 0) + 1);
    }
    must(Math.max(0, ...days.values()) <= daily_limit, "4: never more than the limit in a day");
  }
}

/**
 * 2: one Idempotency-Key is charged once, whatever the clock does. Once it has expired it is a new one for a request that is
 * admitted then, but not for one that was admitted before.
 */
function checkKeys({ sent }: Run): void {
  const charged = sent.flatMap(({ request }) => {
    const { generation, admittedTurn, chargedTurn, refused } = request;
    const digest = generation.idempotency?.digest;
    const isKeyed = digest !== undefined && !refused;
    return isKeyed && admittedTurn && chargedTurn ? [{ digest, admittedTurn, chargedTurn }] : [];
  });
  for (const one of charged) {
    const others = charged.filter(
      ({ digest, admittedTurn }) => digest === one.digest && admittedTurn > one.admittedTurn,
    );
    must(
      others.every(({ admittedTurn }) => one.chargedTurn < admittedTurn),
      "2: one Idempotency-Key is charged once",
    );
  }
}

/** Each bound is kept. Money, holds and slots never expire; tombstones do. */
async function checkBounds(run: Run, records: readonly Fields[]): Promise<void> {
  const { redis } = run.stage;
  const expires = async (name: string): Promise<boolean> => (await redis.pttl(name)) > 0;
  const ofKeys = run.refs.map(async ({ keyId, names }) => {
    const entries = await redis.llen(names.window);
    must(entries <= run.widest.get(keyId)!.rate_limit, "a window holds no more than its limit");
    const expiring = await Promise.all(Object.values(names).map(expires));
    must(!expiring.includes(true), "money, holds and slots never expire");
  });
  const ofRequests = run.sent.map(async ({ request: { generation, key, taskId, tombstone } }) => {
    const { requestId } = generation;
    if (!records.some(({ id }) => id === requestId)) return;
    const expiring = await expires(requestName(key.partition, requestId));
    must(expiring === (tombstone === true), "of requests, only tombstones expire");
    if (taskId) must(!(await expires(taskName(taskId, key.partition))), "tasks never expire");
  });
  await Promise.all([...ofKeys, ...ofRequests]);
}

/** A task id has one record, that of the request that has its claim; both go with the request. */
async function checkClaims({ stage, world, sent, refs }: Run): Promise<void> {
  const partitions = [...new Set(refs.map(({ partition }) => partition))];
  const taskIds = new Set(sent.flatMap(({ request: { taskId } }) => taskId ?? []));
  for (const taskId of taskIds) {
    const owner = world.tasks.get(taskId);
    const names = partitions.map((partition) => taskName(taskId, partition));
    // One by one: on a Redis Cluster they lie in several slots.
    const reads = [claimName(taskId), ...names].map((name) => stage.redis.get(name));
    const [claim, ...records] = await Promise.all(reads);
    const expected = owner ? claimText(owner.generation.requestId, owner.key.partition) : null;
    must(claim === expected, "a claim names the request that has the task");
    const places = partitions.filter((_, at) => records[at] !== null);
    must(places.join() === (owner ? `${owner.key.partition}` : ""), "a task has one record");
  }
}

function must(holds: boolean, invariant: string): void {
  if (!holds) throw new Disagreement(`broken invariant ${invariant}`);
}
