import type { AccountRecord, Ledger } from "../fault/ledger.ts";

/** A request that the store has admitted, and whose admission it knows nothing of any more. */
export interface Forgotten {
  requestId: string;
  /** Empty where nobody was answered, and the link was not read. */
  keyId: string;
  /** When it came to the upstream, or the store answered. */
  atMs: number;
  /** It was sent on, so that it counts against the limits. */
  isUpstream: boolean;
}

const WINDOW_MS = 60_000;
/** By then a hold of an unknown outcome is void: its due time and the sweeper's turn. */
const HOLD_MS = 15_000;

/** By what the upstream has seen and what the link to the store has carried. */
export function forgottenAdmissions({ history, requests, generations, upstream }: Ledger): Forgotten[] {
  const keys = new Map(generations.map(({ requestId, keyId }) => [requestId, keyId]));
  const seen = new Map([...upstream].map(([requestId, { atMs }]) => [requestId, atMs]));
  for (const { script, outcome, requestId, keyId, atMs } of history.link) {
    if (script !== "admit" || outcome !== "admitted") continue;
    seen.set(requestId, atMs);
    // A client that was answered nothing does not know its request's id.
    if (keyId !== undefined) keys.set(requestId, keyId);
  }
  return [...seen]
    .filter(([requestId]) => !requests.get(requestId)?.admitted)
    .map(([requestId, atMs]) => {
      const isUpstream = upstream.has(requestId);
      return { requestId, keyId: keys.get(requestId) ?? "", atMs, isUpstream };
    });
}

/** The accounts as they were while what is forgotten still counted. */
export function withForgotten(ledger: Ledger, forgotten: readonly Forgotten[]): AccountRecord[] {
  const byKey = Map.groupBy(forgotten, ({ keyId }) => keyId);
  return ledger.accounts.map((account) => {
    const own = (byKey.get(account.keyId) ?? []).map(({ requestId, atMs }) => {
      const known = ledger.requests.get(requestId);
      const finishedMs = Math.max(known?.finishedMs || 0, atMs + HOLD_MS);
      const record = { ...BARE, id: requestId, accountId: account.accountId, keyId: account.keyId };
      return { ...record, admittedMs: atMs, boundMs: atMs, finishedMs };
    });
    const others = account.requests.filter(({ id }) => !own.some((request) => request.id === id));
    return { ...account, requests: [...others, ...own] };
  });
}

const BARE = {
  state: "finished",
  reason: "",
  price: 0,
  taskId: "",
  status: "",
  endedBy: "",
  idempotency: "",
  uncollected: false,
  hasCallback: false,
  chargedAgain: false,
  unmetered: false,
  voidMs: Number.NaN,
  dueMs: Number.NaN,
  retentionMs: Number.NaN,
  admitted: true,
};

/** How many admissions more than its limit a key has had in any 60 s, with those that are forgotten. */
export function mostAbove(ledger: Ledger, forgotten: readonly Forgotten[]): number {
  const above = withForgotten(ledger, forgotten).map(({ rate_limit, requests }) => {
    const stamps = requests
      .filter(({ admitted, state, reason }) => admitted && !(state === "void" && reason === "unsent"))
      .map(({ admittedMs }) => admittedMs)
      .sort((a, b) => a - b);
    let first = 0;
    let most = 0;
    for (const [at, stamp] of stamps.entries()) {
      while (stamps[first]! <= stamp - WINDOW_MS) first++;
      most = Math.max(most, at - first + 1);
    }
    return most - rate_limit;
  });
  return Math.max(0, ...above);
}
