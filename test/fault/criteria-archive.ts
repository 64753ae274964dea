import type { LedgerEntry } from "../../src/records/ledger-entries.ts";
import { requestOf } from "../../src/records/records.ts";
import type { Rule } from "./checker.ts";
import type { Finding } from "./criteria-money.ts";
import type { ArchiveFacts, StoreEntry } from "./history.ts";
import type { Ledger } from "./ledger.ts";

/**
 * Void requests that are copied once COLLECT may forget them: a BIND of the first two may still come, and the last two are kept for minutes
 * alone, so that the copier meets them then.
 */
const COPIED_LATER = new Set(["due", "released", "refused", "unsent"]);
const NO_ARCHIVE: ArchiveFacts = { entries: [], inRedis: [], hidden: 0, balances: {}, requests: {} };

/** Criteria of a run with an archive. */
export const ARCHIVE_CRITERIA: readonly Rule<Ledger>[] = [
  ["the archive has every entry once", entriesOnce],
  ["the archive's balances are those of Redis", balancesAgree],
  ["the archive has every ended request", requestsKept],
  ["Redis keeps little of the ledger", ledgerLeaves],
];

export const entryName = ({ partition, streamId }: LedgerEntry): string => `${partition} ${streamId}`;

export const entryFields = (entry: LedgerEntry): string[] =>
  Object.entries({
    account_id: entry.accountId,
    type: entry.type,
    amount: entry.amount,
    balance_after: entry.balanceAfter,
    endpoint: entry.endpoint,
    reason: entry.reason,
    task_id: entry.taskId,
    at: entry.atMs,
    previous: entry.previous,
    request_id: entry.requestId,
    key_id: entry.keyId,
    reference: entry.reference,
  }).flatMap(([name, value]) => [name, String(value)]);

/** The ended requests in Redis, as the archive must have them. */
export const endedRequests = (store: readonly StoreEntry[]): { id: string; status: string }[] =>
  store.flatMap(({ name, value }) => {
    const id = /^tg:\{p\d+\}:request:(.*)$/.exec(name)?.[1];
    if (id === undefined) return [];
    const { state, status = "", reason = "", admitted_at } = requestOf(value as string);
    if (state === "finished") return [{ id, status }];
    // A tombstone was never admitted.
    const isKnown = admitted_at !== undefined && !COPIED_LATER.has(reason);
    return state === "void" && isKnown ? [{ id, status: "void" }] : [];
  });

function entriesOnce({ history: { archive = NO_ARCHIVE } }: Ledger): Finding {
  const { entries, inRedis, hidden } = archive;
  const archived = new Map(entries.map((entry) => [entryName(entry), entry]));
  const left = new Set(inRedis.map(entryName));
  const trimmed = entries.filter((entry) => !left.has(entryName(entry))).length;
  const missing = inRedis.filter((entry) => !archived.has(entryName(entry)));
  const differing = inRedis.filter((entry) => {
    const other = archived.get(entryName(entry));
    return other !== undefined && String(entryFields(entry)) !== String(entryFields(other));
  });
  const perRequest = Map.groupBy(
    entries.filter(({ requestId }) => requestId !== ""),
    ({ requestId, type }) => `${requestId} ${type}`,
  );
  const doubled = [...perRequest].filter(([, all]) => all.length > 1).map(([what]) => what);
  return {
    figure:
      `${entries.length} entries, ${trimmed} of them no longer in Redis; ${missing.length} missing, ` +
      `${differing.length} differing, ${doubled.length} doubled, ${hidden} lost by Redis`,
    violations: [
      ...missing.map((entry) => `missing: ${entryName(entry)}`),
      ...differing.map((entry) => `differs: ${entryName(entry)}`),
      ...doubled.map((what) => `doubled: ${what}`),
      ...(hidden > 0 ? [`${hidden} entries are in the archive that Redis has lost`] : []),
    ],
  };
}

function balancesAgree({ history: { archive = NO_ARCHIVE }, accounts }: Ledger): Finding {
  const wrong = accounts.filter(({ accountId, balance }) => archive.balances[accountId] !== balance);
  return {
    figure: `${accounts.length} accounts, ${wrong.length} wrong`,
    violations: wrong.map(
      ({ accountId, balance }) => `${accountId}: ${archive.balances[accountId]}, in Redis ${balance}`,
    ),
  };
}

function requestsKept({ history: { archive = NO_ARCHIVE, store } }: Ledger): Finding {
  const ended = endedRequests(store);
  const wrong = ended.filter(({ id, status }) => archive.requests[id] !== status);
  return {
    figure: `${ended.length} requests, ${wrong.length} missing`,
    violations: wrong.map(({ id, status }) => `${id}: ${archive.requests[id]}, in Redis ${status}`),
  };
}

/** All that may leave does: without this, a run in which nothing is trimmed would prove nothing. */
function ledgerLeaves({ history: { archive = NO_ARCHIVE } }: Ledger): Finding {
  const { entries, inRedis } = archive;
  return {
    figure: `${inRedis.length} of ${entries.length} entries left`,
    violations: inRedis.length < entries.length / 2 ? [] : ["at least half of the ledger is still in Redis"],
  };
}
