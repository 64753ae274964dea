import { entryFields } from "../../src/records/ledger-entries.ts";
import { accountOf, unpacked } from "../../src/records/packed-fields.ts";
import { requestOf, type RequestRecord as StoredRecord } from "../../src/records/records.ts";
import type { AccountFacts, ClientEvent, FaultEvent, History, UpstreamEvent } from "./history.ts";

/** One ledger entry, in the order of its partition's stream. */
export interface Entry {
  id: string;
  accountId: string;
  type: string;
  amount: number;
  balanceAfter: number;
  reason: string;
  taskId: string;
  requestId: string;
  /** Reference of a grant. */
  reference: string;
}

/** A request's record; times are store ms, Number.NaN when absent. */
export interface RequestRecord {
  id: string;
  state: string;
  reason: string;
  accountId: string;
  keyId: string;
  price: number;
  taskId: string;
  status: string;
  endedBy: string;
  idempotency: string;
  uncollected: boolean;
  /** Its customer named a `callBackUrl`, which is relayed. */
  hasCallback: boolean;
  /** It ended as too old, and completed after all. */
  chargedAgain: boolean;
  /** It passed while the store was away, and was never admitted. */
  unmetered: boolean;
  /** By its key's clock. */
  admittedMs: number;
  boundMs: number;
  finishedMs: number;
  voidMs: number;
  /** When its hold was due. */
  dueMs: number;
  retentionMs: number;
  /** Admitted once; a tombstone never was. */
  admitted: boolean;
}

/** The store's record of one account and its key. */
export interface AccountRecord extends AccountFacts {
  balance: number;
  held: number;
  totalUsed: number;
  totalRequests: number;
  /** Newest first. */
  window: number[];
  slots: string[];
  clockMs: number;
  keyDay: number;
  dayCount: number;
  /** The month by the key's clock, as months since 1970, and what its requests of that month have spent. */
  month: number;
  spent: number;
  entries: Entry[];
  requests: RequestRecord[];
}

/** A history with its parts found by what they are about. */
export interface Ledger {
  history: History;
  accounts: AccountRecord[];
  requests: Map<string, RequestRecord>;
  entries: Entry[];
  due: string[];
  upstream: Map<string, UpstreamEvent>;
  /** Generations as clients saw them. */
  generations: ClientEvent[];
  /** Settlements that gateways named as lost: why, by request id. */
  namedLost: Map<string, string>;
  /** True if the store may have lost a write of this moment, Unix ms. */
  mayForget(atMs: number): boolean;
}

type Fields = Record<string, string>;

/** How long before it is noted a copy may begin. */
const COPY_SLACK_MS = 100;

export function readLedger(history: History): Ledger {
  const requests = new Map<string, RequestRecord>();
  const entries: Entry[] = [];
  const due: string[] = [];
  const store = [...history.forgotten, ...history.store];
  const byName = new Map(store.map(({ name, value }) => [name, value]));
  for (const { name, value } of store) {
    const [, kind = "", id = ""] = /^tg:\{p\d+\}:(\w+):?(.*)$/.exec(name) ?? [];
    if (kind === "request") requests.set(id, requestRecord(id, requestOf(value as string)));
    if (kind === "ledger") for (const line of value as [string, string[]][]) entries.push(entryOf(line));
    if (kind === "due") due.push(...(value as string[]));
  }
  const find = (kind: string, id: string): unknown => {
    for (const [name, value] of byName) if (name.endsWith(`}:${kind}:${id}`)) return value;
    return undefined;
  };
  const byAccount = Map.groupBy(entries, ({ accountId }) => accountId);
  const ownRequests = Map.groupBy(requests.values(), ({ accountId }) => accountId);
  const accounts = history.meta.accounts.map((facts) => {
    const account: Fields = accountOf((find("account", facts.accountId) ?? {}) as Fields);
    const key: Fields = unpacked((find("key", facts.keyId) ?? {}) as Fields);
    const slots = find("slots", facts.keyId) ?? [];
    return {
      ...facts,
      balance: Number(account.balance),
      held: Number(account.held ?? 0),
      totalUsed: Number(account.total_used ?? 0),
      totalRequests: Number(account.total_requests ?? 0),
      window: ((find("window", facts.keyId) ?? []) as string[]).map(Number),
      slots: Array.isArray(slots) ? (slots as string[]) : [`counter ${String(slots)}`],
      clockMs: Number(key.clock_ms ?? 0),
      keyDay: Number(key.day ?? -1),
      dayCount: Number(key.day_count ?? 0),
      month: Number(key.month ?? -1),
      spent: Number(key.spent ?? 0),
      entries: byAccount.get(facts.accountId) ?? [],
      requests: ownRequests.get(facts.accountId) ?? [],
    };
  });
  return {
    history,
    accounts,
    requests,
    entries,
    due,
    upstream: new Map(history.upstream.map((event) => [event.requestId, event])),
    generations: history.client.filter(({ kind }) => kind === "generate"),
    namedLost: namedLost(history.faults),
    mayForget: lostAdmissions(history.faults),
  };
}

/** The writes to a store after it was copied, and before it was replaced by the copy. */
function lostAdmissions(faults: readonly FaultEvent[]): (atMs: number) => boolean {
  const at = (kind: string): number => faults.find((fault) => fault.kind === kind)?.atMs ?? Number.NaN;
  const [fromMs, toMs] = [at("store is copied") - COPY_SLACK_MS, at("store is older")];
  return (atMs) => atMs >= fromMs && atMs <= toMs;
}

/** A settlement that was given up, or that was in the memory of a gateway alone when that was killed. */
function namedLost(faults: readonly FaultEvent[]): Map<string, string> {
  const killed = new Set(faults.filter(({ kind }) => kind === "kill").map(({ gateway }) => gateway));
  return new Map(
    faults
      .filter(
        ({ kind, gateway }) => kind === "given up" || (kind === "only in memory" && killed.has(gateway)),
      )
      .map(({ kind, gateway, phase }) => [phase, `${kind} by ${gateway}`]),
  );
}

function requestRecord(id: string, fields: StoredRecord): RequestRecord {
  const ms = (name: keyof StoredRecord): number => Number(fields[name] ?? Number.NaN);
  return {
    id,
    state: fields.state ?? "",
    reason: fields.reason ?? "",
    accountId: fields.account_id ?? "",
    keyId: fields.key_id ?? "",
    price: Number(fields.price ?? 0),
    taskId: fields.task_id ?? "",
    status: fields.status ?? "",
    endedBy: fields.ended_by ?? "",
    idempotency: fields.idempotency ?? "",
    uncollected: fields.uncollected === "1",
    hasCallback: fields.callback !== undefined,
    chargedAgain: fields.charged_again === "1",
    unmetered: fields.unmetered === "1",
    admittedMs: ms("admitted_at"),
    boundMs: ms("bound_at"),
    finishedMs: ms("finished_at"),
    voidMs: ms("void_at"),
    dueMs: ms("due_at"),
    retentionMs: ms("retention_ms"),
    admitted: fields.admitted_at !== undefined,
  };
}

function entryOf([id, flat]: [string, string[]]): Entry {
  const fields = entryFields(flat);
  return {
    id,
    accountId: fields.account_id ?? "",
    type: fields.type ?? "",
    amount: Number(fields.amount),
    balanceAfter: Number(fields.balance_after),
    reason: fields.reason ?? "",
    taskId: fields.task_id ?? "",
    requestId: fields.request_id ?? "",
    reference: fields.reference ?? "",
  };
}
