import { entryFields, type StreamEntry } from "../../src/records/ledger-entries.ts";
import {
  accountNames,
  dueTime,
  idempotencyName,
  type KeyRef,
  partitionNames,
} from "../../src/records/names.ts";
import { accountOf, countersOf } from "../../src/records/packed-fields.ts";
import { Disagreement } from "./disagreement.ts";
import type { Run } from "./drive.ts";
import {
  DAY_MS,
  type Entry,
  heldOf,
  listedAtMs,
  type ModelAccount,
  type ModelRequest,
  sharedOf,
  slotsOf,
  storedSpent,
} from "./model-state.ts";

interface AccountState {
  balance: number;
  held: number;
  totalUsed: number;
  totalRequests: number;
  collectedUntilMs: number;
  /** Until when it makes no further request, and how many unknown outcomes it may have; empty if it may. */
  blocked: string;
  ledger: Entry[];
}

/** Records beyond the replies: money, ledgers, slots, and the tasks that the sweeper will find. */
interface State {
  accounts: Record<string, AccountState>;
  slots: Record<string, string[]>;
  /** Day and its count, slots: of accounts with limits over all their keys. */
  shared: Record<string, string>;
  /** Month and credits. */
  spent: Record<string, string>;
  holds: Record<string, number>;
  polls: Record<string, number>;
  ended: Record<string, number>;
  idempotency: Record<string, string>;
}

/** One ledger entry of one account as the stream holds it, with its stream id and that of the entry before it. */
interface StoredEntry extends Entry {
  id: string;
  previous: string;
}

/** Reads an account's ledger. */
export async function ledgerOf(run: Run, { names, accountId }: KeyRef): Promise<StoredEntry[]> {
  return entriesOf(await run.stage.redis.xrange(names.ledger, "-", "+"), accountId);
}

const entriesOf = (entries: readonly StreamEntry[], accountId: string): StoredEntry[] =>
  entries.flatMap((entry) => entryOf(entry, accountId) ?? []);

/** Empty where an entry belongs to no request. */
const OF_REQUESTS = new Set(["request_id", "key_id"]);
const NUMBERS = new Set(["amount", "balance_after", "at", "admitted_at"]);

/** Reads an entry as XRANGE answers it; undefined if it is another account's. */
export function entryOf([id, fields]: StreamEntry, accountId: string): StoredEntry | undefined {
  const entry: Record<string, string | number> = { reason: "" };
  for (const [name, value] of Object.entries(entryFields(fields))) {
    if (value !== "" || !OF_REQUESTS.has(name)) entry[name] = NUMBERS.has(name) ? Number(value) : value;
  }
  const { account_id, ...rest } = entry;
  return account_id === accountId ? { ...(rest as unknown as StoredEntry), id } : undefined;
}

/** Keys whose accounts differ. */
export const oneKeyEach = (refs: readonly KeyRef[]): KeyRef[] =>
  refs.filter((ref, at) => refs.findIndex(({ accountId }) => accountId === ref.accountId) === at);

/** Longer than any lifetime that a script sets. */
const KEPT_MS = 10_000 * DAY_MS;
/** So long a run may take by the clock of Redis. */
const RUN_MAX_MS = 60_000;

/**
 * Answers what is stored under each name, whole, nothing for a name that is not there, and its lifetime, which becomes
 * ARGV[1]: only the clock of the run ends it. The names are no KEYS: on a Redis Cluster they lie in several slots.
 */
const READ = `#!lua flags=allow-cross-slot-keys
local readers = {
  hash = function(name) return redis.call('HGETALL', name) end,
  set = function(name) return redis.call('SMEMBERS', name) end,
  zset = function(name) return redis.call('ZRANGE', name, 0, -1, 'WITHSCORES') end,
  stream = function(name) return redis.call('XRANGE', name, '-', '+') end,
  none = function() return {} end,
}
local values, lifetimes = {}, {}
for at = 1, #ARGV - 1 do
  local name = ARGV[at + 1]
  values[at] = readers[redis.call('TYPE', name).ok](name)
  lifetimes[at] = redis.call('PTTL', name)
  if lifetimes[at] > 0 then redis.call('PEXPIRE', name, ARGV[1]) end
end
return { values, lifetimes }`;

/** Reads what the store holds, in one call since it is done after every step; throws where its records disagree. */
export async function storedState(run: Run): Promise<State> {
  const { refs } = run;
  const accounts = oneKeyEach(refs);
  const partitions = [...new Set(refs.map(({ partition }) => partition))];
  const digests = digestsOf(run);
  const names = [
    ...partitions.flatMap((partition) => {
      const { ledger, due, done } = partitionNames(partition);
      return [ledger, due, done];
    }),
    ...accounts.map((ref) => ref.names.account),
    ...accounts.map((ref) => accountNames(ref.partition, ref.accountId).slots),
    ...refs.flatMap((ref) => [ref.names.slots, ref.names.key]),
    ...digests.map(({ digest, partition }) => idempotencyName(partition, digest)),
  ];
  const reply = await run.stage.redis.eval(READ, 0, KEPT_MS, ...names);
  const [values, lifetimes] = reply as [unknown[], number[]];
  const stored = new Map(names.map((name, at) => [name, values[at]]));
  const lifetimeOf = new Map(names.map((name, at) => [name, lifetimes[at]!]));
  const flat = (name: string): string[] => stored.get(name) as string[];

  const state: State = {
    accounts: {},
    slots: {},
    spent: {},
    shared: {},
    holds: {},
    polls: {},
    ended: {},
    idempotency: {},
  };
  for (const partition of partitions) {
    const { due, done } = partitionNames(partition);
    for (const [id, score] of Object.entries(scored(flat(due)))) {
      const { list, atMs } = dueTime(Number(score));
      state[list][id] = atMs;
    }
    Object.assign(state.ended, scored(flat(done)));
  }
  for (const { accountId, names, partition } of accounts) {
    const ledger = entriesOf(stored.get(names.ledger) as StreamEntry[], accountId);
    const fields = pairs(flat(names.account));
    state.accounts[accountId] = accountState(fields, ledger);
    const slots = flat(accountNames(partition, accountId).slots).sort();
    const { day, day_count } = countersOf(fields.counters);
    const shared = sharedText(day && `${day} ${day_count}`, slots);
    if (fields.limited !== undefined || shared !== sharedText(undefined, []))
      state.shared[accountId] = shared;
  }
  for (const { keyId, names } of refs) {
    state.slots[keyId] = flat(names.slots).sort();
    const { month, counters } = pairs(flat(names.key));
    if (month !== undefined) state.spent[keyId] = `${month} ${countersOf(counters).spent}`;
  }
  for (const { digest, partition } of digests) {
    const name = idempotencyName(partition, digest);
    const { request_id, task_id, response, void_until, first_void_id } = pairs(flat(name));
    const words = [request_id, task_id, response, void_until, first_void_id];
    const expiresAt = expiryOf(run, digest, lifetimeOf.get(name)!);
    if (words.some((word) => word !== undefined)) state.idempotency[digest] = [...words, expiresAt].join(" ");
  }
  return state;
}

/** When an Idempotency-Key expires; what the model expects, if that is so but for the time that this run takes. */
function expiryOf({ world, expiries }: Run, digest: string, lifetimeMs: number): number | undefined {
  const expected = world.idempotency.get(digest)?.expiresAtMs;
  if (lifetimeMs <= 0) {
    expiries.delete(digest);
    // It ended between the step and this look.
    const isOver = lifetimeMs < -1 && expected !== undefined && expected - world.nowMs < RUN_MAX_MS;
    if (isOver) world.idempotency.delete(digest);
    return undefined;
  }
  if (lifetimeMs < KEPT_MS / 2) expiries.set(digest, world.nowMs + lifetimeMs);
  const expiresAt = expiries.get(digest);
  if (expiresAt === undefined || expected === undefined) return expiresAt;
  return Math.abs(expiresAt - expected) < RUN_MAX_MS ? expected : expiresAt;
}

const sharedText = (day: string | undefined, slots: readonly string[]): string =>
  `${day ?? "no day"}; ${slots}`;

function pairs(flat: readonly string[]): Record<string, string> {
  const found: Record<string, string> = {};
  for (let at = 0; at < flat.length; at += 2) found[flat[at]!] = flat[at + 1]!;
  return found;
}

const scored = (flat: readonly string[]): Record<string, number> =>
  Object.fromEntries(Object.entries(pairs(flat)).map(([member, score]) => [member, Number(score)]));

/** @throws Disagreement where the entries are no chain that ends at the account's last one */
function accountState(record: Record<string, string>, ledger: readonly StoredEntry[]): AccountState {
  const fields = accountOf(record);
  const chain = [...ledger.map(({ previous }) => previous), fields.last_entry ?? ""].join();
  const ids = ["", ...ledger.map(({ id }) => id)].join();
  if (chain !== ids) throw new Disagreement(`the chain of entries is ${chain}, the ledger ${ids}`);
  return {
    balance: Number(fields.balance),
    held: Number(fields.held),
    totalUsed: Number(fields.total_used),
    totalRequests: Number(fields.total_requests),
    collectedUntilMs: Number(fields.collected_until ?? 0),
    blocked: fields.blocked_until === undefined ? "" : `${fields.blocked_until} ${fields.unknown_limit}`,
    ledger: ledger.map(({ id: _id, previous: _previous, ...entry }) => entry),
  };
}

/** Every idempotency digest that a request of this run carried. */
export function digestsOf(run: Run): { digest: string; partition: number }[] {
  const found = new Map<string, number>();
  for (const { request } of run.sent) {
    const digest = request.generation.idempotency?.digest;
    if (digest) found.set(digest, request.key.partition);
  }
  return [...found].map(([digest, partition]) => ({ digest, partition }));
}

/** The content of the store by the model. */
export function expectedState({ world }: Run): State {
  const state: State = {
    accounts: {},
    slots: {},
    spent: {},
    shared: {},
    holds: {},
    polls: {},
    ended: {},
    idempotency: {},
  };
  for (const key of world.keys) {
    state.accounts[key.account.id] ??= expectedAccount(key.account);
    state.slots[key.keyId] = slotsOf(world, key).sort();
    const shared = sharedOf(world, key.account);
    if (shared) state.shared[key.account.id] = sharedText(shared.stored, shared.slots.sort());
    const spent = storedSpent(key);
    if (spent) state.spent[key.keyId] = `${spent.month} ${spent.credits}`;
  }
  for (const request of world.requests) {
    const { generation, state: at, sweepAtMs, endedAtMs } = request;
    if (at === "held") state.holds[generation.requestId] = sweepAtMs!;
    else if (at === "bound") state.polls[generation.requestId] = sweepAtMs!;
    else if (endedAtMs !== undefined) state.ended[generation.requestId] = listedAtMs(request);
  }
  for (const [digest, { first, voidUntilMs, firstVoid, expiresAtMs }] of world.idempotency) {
    const id = (request: ModelRequest | undefined): string | undefined => request?.generation.requestId;
    const words = [id(first?.request), first?.taskId, first?.data, voidUntilMs, id(firstVoid), expiresAtMs];
    state.idempotency[digest] = words.join(" ");
  }
  return state;

  function expectedAccount(account: ModelAccount): AccountState {
    const { balance, totalUsed, totalRequests, collectedUntilMs, ledger } = account;
    const blocked = account.blocked ? `${account.blocked.untilMs} ${account.blocked.limit}` : "";
    return {
      balance,
      held: heldOf(world, account),
      totalUsed,
      totalRequests,
      collectedUntilMs,
      blocked,
      ledger,
    };
  }
}
