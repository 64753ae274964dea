import type { Redis } from "ioredis";
import { entryFields, isLater, LEDGER_START, type StreamEntry } from "../../records/ledger-entries.ts";
import { accountNames, partitionNames, partitionOfLedger, requestName } from "../../records/names.ts";
import { requestOf } from "../../records/records.ts";
import { many } from "../../redis/pipelines.ts";
import type { ConfirmedEntry } from "./last-confirmed.ts";

export function confirmedEntry([id, fields]: StreamEntry): ConfirmedEntry {
  const record = entryFields(fields);
  const { account_id = "", type = "", amount = "0", reason = "", reference = "", request_id = "" } = record;
  const isOfRequest = request_id !== "";
  const byHand = reason === "" && type === "recharge" ? "grant" : "adjustment";
  const kind = !isOfRequest ? byHand : type === "consume" ? "charge" : "refund";
  const entry: ConfirmedEntry = {
    id,
    accountId: account_id,
    kind,
    credits: Math.abs(Number(amount)),
    reference,
  };
  if (isOfRequest) entry.requestId = request_id;
  return entry;
}

/** Charges and operators' entries. The next poll repeats a refund. */
export const mustSurvive = ({ kind, reference }: ConfirmedEntry): boolean =>
  kind === "charge" || reference !== "";

/** Entries that are not in the ledger, except trimmed ones. A changed primary may have given the id to another entry. */
export async function absentEntries<E extends ConfirmedEntry>(
  redis: Redis,
  ledgerOf: (entry: E) => string,
  entries: readonly E[],
): Promise<E[]> {
  const found = await many<StreamEntry[], E>(redis, entries, (pipe, entry) =>
    pipe.xrange(ledgerOf(entry), entry.id, entry.id),
  );
  const absent = entries.filter((entry, at) => {
    const stored = found[at]?.[0];
    return !stored || (entry.onReplicas === true && !isSame(confirmedEntry(stored), entry));
  });
  const trimmed = await trimmedTo(redis, absent.map(ledgerOf));
  return absent.filter((entry) => isLater(entry.id, trimmed.get(ledgerOf(entry))!));
}

export async function trimmedTo(redis: Redis, ledgers: readonly string[]): Promise<Map<string, string>> {
  const names = [...new Set(ledgers)];
  const ids = await many<string | null, string>(redis, names, (pipe, ledger) =>
    pipe.hget(partitionNames(partitionOfLedger(ledger)).trimmed, "last_entry"),
  );
  return new Map(names.map((ledger, at) => [ledger, ids[at] ?? LEDGER_START]));
}

const isSame = (a: ConfirmedEntry, b: ConfirmedEntry): boolean =>
  a.accountId === b.accountId &&
  a.kind === b.kind &&
  a.reference === b.reference &&
  (b.requestId === undefined || a.requestId === b.requestId);

/** Absent entries that are missing altogether: not charged again under another id, and not known by their reference. */
export async function missingAmong<E extends ConfirmedEntry>(
  redis: Redis,
  ledgerOf: (entry: E) => string,
  absent: readonly E[],
): Promise<E[]> {
  const answers = await many<string | null, E>(redis, absent, (pipe, entry) => {
    const partition = partitionOfLedger(ledgerOf(entry));
    return entry.kind === "charge"
      ? pipe.get(requestName(partition, entry.requestId ?? ""))
      : pipe.hget(accountNames(partition, entry.accountId).references, entry.reference);
  });
  return absent.filter((entry, at) => {
    if (entry.onReplicas !== true) return true;
    const answer = answers[at];
    if (entry.kind !== "charge") return mustSurvive(entry) && answer === null;
    const { state } = requestOf(answer);
    return state !== "bound" && state !== "finished";
  });
}
