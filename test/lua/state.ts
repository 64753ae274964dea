import type { StreamEntry } from "../../src/store/ledger-entries.ts";
import type { KeyRef } from "../../src/store/names.ts";
import { idempotencyName, partitionNames } from "../../src/store/names.ts";
import type { Run } from "./drive.ts";
import { type Entry, forgottenAtMs, heldOf, type ModelAccount, slotsOf } from "./model-state.ts";

interface AccountState {
  balance: number;
  held: number;
  totalUsed: number;
  totalRequests: number;
  collectedUntilMs: number;
  ledger: Entry[];
}

/** What is stored beyond the replies: money, ledgers, slots, and what the sweeper will find. */
interface State {
  accounts: Record<string, AccountState>;
  slots: Record<string, string[]>;
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

/** Reads an entry as XRANGE answers it; undefined if it is another account's. */
export function entryOf([id, fields]: StreamEntry, accountId: string): StoredEntry | undefined {
  const entry: Record<string, string | number> = {};
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at]!;
    const isNumber = name === "amount" || name === "balance_after" || name === "at";
    entry[name] = isNumber ? Number(fields[at + 1]) : fields[at + 1]!;
  }
  const { account_id, ...rest } = entry;
  return account_id === accountId ? { ...(rest as unknown as StoredEntry), id } : undefined;
}

/** Keys whose accounts differ. */
export const oneKeyEach = (refs: readonly KeyRef[]): KeyRef[] =>
  refs.filter((ref, at) => refs.findIndex(({ accountId }) => accountId === ref.accountId) === at);

/** Answers what is stored under each of KEYS, whole; nothing for a name that is not there. */
const READ = `
local readers = {
  hash = function(name) return redis.call('HGETALL', name) end,
  set = function(name) return redis.call('SMEMBERS', name) end,
  zset = function(name) return redis.call('ZRANGE', name, 0, -1, 'WITHSCORES') end,
  stream = function(name) return redis.call('XRANGE', name, '-', '+') end,
  none = function() return {} end,
}
local values = {}
for at, name in ipairs(KEYS) do values[at] = readers[redis.call('TYPE', name).ok](name) end
return values`;

/** Reads what the store holds, in one call since it is done after every step; throws where its records disagree. */
export async function storedState(run: Run): Promise<State> {
  const { refs } = run;
  const accounts = oneKeyEach(refs);
  const partitions = [...new Set(refs.map(({ partition }) => partition))];
  const digests = digestsOf(run);
  const names = [
    ...partitions.flatMap((partition) => {
      const { ledger, holds, polls, done } = partitionNames(partition);
      return [ledger, holds, polls, done];
    }),
    ...accounts.map((ref) => ref.names.account),
    ...refs.map((ref) => ref.names.slots),
    ...digests.map(({ digest, partition }) => idempotencyName(partition, digest)),
  ];
  const values = (await run.stage.redis.eval(READ, names.length, ...names)) as unknown[];
  const stored = new Map(names.map((name, at) => [name, values[at]]));
  const flat = (name: string): string[] => stored.get(name) as string[];

  const state: State = { accounts: {}, slots: {}, holds: {}, polls: {}, ended: {}, idempotency: {} };
  for (const partition of partitions) {
    const { holds, polls, done } = partitionNames(partition);
    Object.assign(state.holds, scored(flat(holds)));
    Object.assign(state.polls, scored(flat(polls)));
    Object.assign(state.ended, scored(flat(done)));
  }
  for (const { accountId, names } of accounts) {
    const ledger = entriesOf(stored.get(names.ledger) as StreamEntry[], accountId);
    state.accounts[accountId] = accountState(pairs(flat(names.account)), ledger);
  }
  for (const { keyId, names } of refs) state.slots[keyId] = flat(names.slots).sort();
  for (const { digest, partition } of digests) {
    const { request_id, task_id, response, void_until } = pairs(flat(idempotencyName(partition, digest)));
    const words = [request_id, task_id, response, void_until];
    if (words.some((word) => word !== undefined)) state.idempotency[digest] = words.join(" ");
  }
  return state;
}

function pairs(flat: readonly string[]): Record<string, string> {
  const found: Record<string, string> = {};
  for (let at = 0; at < flat.length; at += 2) found[flat[at]!] = flat[at + 1]!;
  return found;
}

const scored = (flat: readonly string[]): Record<string, number> =>
  Object.fromEntries(Object.entries(pairs(flat)).map(([member, score]) => [member, Number(score)]));

/** @throws Error where the entries are no chain that ends at the account's last one */
function accountState(fields: Record<string, string>, ledger: readonly StoredEntry[]): AccountState {
  const chain = [...ledger.map(({ previous }) => previous), fields.last_entry ?? ""].join();
  const ids = ["", ...ledger.map(({ id }) => id)].join();
  if (chain !== ids) throw new Error(`the chain of entries is ${chain}, the ledger ${ids}`);
  return {
    balance: Number(fields.balance),
    held: Number(fields.held),
    totalUsed: Number(fields.total_used),
    totalRequests: Number(fields.total_requests),
    collectedUntilMs: Number(fields.collected_until ?? 0),
    ledger: ledger.map(({ id: _id, previous: _previous, ...entry }) => entry),
  };
}

/** Every idempotency digest that a request of this run carried. */
function digestsOf(run: Run): { digest: string; partition: number }[] {
  const found = new Map<string, number>();
  for (const { request } of run.sent) {
    const digest = request.generation.idempotency?.digest;
    if (digest) found.set(digest, request.key.partition);
  }
  return [...found].map(([digest, partition]) => ({ digest, partition }));
}

/** What the model says the store holds. */
export function expectedState({ world }: Run): State {
  const state: State = { accounts: {}, slots: {}, holds: {}, polls: {}, ended: {}, idempotency: {} };
  for (const key of world.keys) {
    state.accounts[key.account.id] ??= accountOf(key.account);
    state.slots[key.keyId] = slotsOf(world, key).sort();
  }
  for (const request of world.requests) {
    const { generation, state: at, sweepAtMs, endedAtMs } = request;
    if (at === "held") state.holds[generation.requestId] = sweepAtMs!;
    else if (at === "bound") state.polls[generation.requestId] = sweepAtMs!;
    else if (endedAtMs !== undefined) state.ended[generation.requestId] = forgottenAtMs(request);
  }
  for (const digest of new Set([...world.idempotency.keys(), ...world.voidUntil.keys()])) {
    const { request, taskId, data } = world.idempotency.get(digest) ?? {};
    const words = [request?.generation.requestId, taskId, data, world.voidUntil.get(digest)];
    state.idempotency[digest] = words.join(" ");
  }
  return state;

  function accountOf(account: ModelAccount): AccountState {
    const { balance, totalUsed, totalRequests, collectedUntilMs, ledger } = account;
    return { balance, held: heldOf(world, account), totalUsed, totalRequests, collectedUntilMs, ledger };
  }
}
