import type { StreamEntry } from "../../src/store/ledger-entries.ts";
import type { KeyRef } from "../../src/store/names.ts";
import { idempotencyName, partitionNames } from "../../src/store/names.ts";
import type { Run } from "./drive.ts";
import { type Entry, heldOf, type ModelAccount, slotsOf } from "./model-state.ts";

interface AccountState {
  balance: number;
  held: number;
  totalUsed: number;
  totalRequests: number;
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
  const entries = await run.stage.redis.xrange(names.ledger, "-", "+");
  return entries.flatMap((entry) => entryOf(entry, accountId) ?? []);
}

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

/** Reads what the store holds; throws where two of its own records disagree. */
export async function storedState(run: Run): Promise<State> {
  const { redis } = run.stage;
  const state: State = { accounts: {}, slots: {}, holds: {}, polls: {}, ended: {}, idempotency: {} };
  const reads = [
    ...oneKeyEach(run.refs).map(async (ref) => {
      state.accounts[ref.accountId] = await accountState(run, ref);
    }),
    ...run.refs.map(async ({ keyId, names }) => {
      state.slots[keyId] = (await redis.smembers(names.slots)).sort();
    }),
    ...[...new Set(run.refs.map(({ partition }) => partition))].map(async (partition) => {
      const { holds, polls, done } = partitionNames(partition);
      Object.assign(state.holds, await scored(holds));
      Object.assign(state.polls, await scored(polls));
      Object.assign(state.ended, await scored(done));
    }),
    ...digestsOf(run).map(async ({ digest, partition }) => {
      const first = await redis.hmget(
        idempotencyName(partition, digest),
        "request_id",
        "task_id",
        "response",
      );
      if (first[0] !== null) state.idempotency[digest] = first.join(" ");
    }),
  ];
  await Promise.all(reads);
  return state;

  async function scored(name: string): Promise<Record<string, number>> {
    return pairs(await redis.zrange(name, 0, "-1", "WITHSCORES"));
  }
}

function pairs(flat: readonly string[]): Record<string, number> {
  const entries: Record<string, number> = {};
  for (let at = 0; at < flat.length; at += 2) entries[flat[at]!] = Number(flat[at + 1]);
  return entries;
}

async function accountState(run: Run, ref: KeyRef): Promise<AccountState> {
  const { redis } = run.stage;
  const [[lastEntry, ...money], ledger] = await Promise.all([
    redis.hmget(ref.names.account, "last_entry", "balance", "held", "total_used", "total_requests"),
    ledgerOf(run, ref),
  ]);
  const chain = [...ledger.map(({ previous }) => previous), lastEntry ?? ""].join();
  const ids = ["", ...ledger.map(({ id }) => id)].join();
  if (chain !== ids) throw new Error(`the chain of entries is ${chain}, the ledger ${ids}`);
  const [balance, held, totalUsed, totalRequests] = money.map(Number) as [number, number, number, number];
  const entries = ledger.map(({ id: _id, previous: _previous, ...entry }) => entry);
  return { balance, held, totalUsed, totalRequests, ledger: entries };
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
  for (const { generation, state: at, sweepAtMs, endedAtMs } of world.requests) {
    if (at === "held") state.holds[generation.requestId] = sweepAtMs!;
    else if (at === "bound") state.polls[generation.requestId] = sweepAtMs!;
    else if (endedAtMs !== undefined) state.ended[generation.requestId] = endedAtMs;
  }
  for (const [digest, { request, taskId = "", data = "" }] of world.idempotency) {
    state.idempotency[digest] = [request.generation.requestId, taskId, data].join(" ");
  }
  return state;

  function accountOf(account: ModelAccount): AccountState {
    const { balance, totalUsed, totalRequests, ledger } = account;
    return { balance, held: heldOf(world, account), totalUsed, totalRequests, ledger };
  }
}
