import type { Transaction } from "../domain/answers.ts";
import type { Limits, Tiers } from "../domain/limits.ts";
import { type Actor, actorText } from "../records/actor.ts";
import { checkpointOf, entryOfTail } from "../records/checkpoints.ts";
import {
  type LedgerEntry,
  ledgerEntry,
  RECENT_TRANSACTIONS,
  recordOf,
  type StreamEntry,
  transactionOf,
} from "../records/ledger-entries.ts";
import { accountNames, type KeyRef, partitionNames } from "../records/names.ts";
import { accountOf } from "../records/packed-fields.ts";
import { type AccountRecord, type AccountStatus, statusOf } from "../records/records.ts";
import { KEY_STATE_LENGTH, type KeyState, keyStateOf, limitsInForce } from "./holds.ts";
import { fieldsAndValues } from "./keys.ts";
import type { Reply, Script } from "./script-definition.ts";

interface AccountCall {
  partition: number;
  accountId: string;
  action: "account.create" | "account.patch";
  /** Nothing is changed if the record has another revision. */
  ifRevisions?: readonly number[] | undefined;
  actor: Actor;
  /** True if it may do more than with its earlier status. */
  mayReinstate?: boolean;
  /** Null removes a field. */
  fields: Readonly<Record<string, string | number | null>>;
}

type AccountReply =
  | { outcome: "created" | "changed" | "unchanged"; record: AccountRecord }
  | { outcome: "exists" | "restricted" | "stale" | "missing" };

export const account: Script<AccountCall, AccountReply> = {
  name: "account",
  keys: ({ partition, accountId }) => [
    accountNames(partition, accountId).account,
    partitionNames(partition).accounts,
  ],
  args: ({ accountId, action, ifRevisions = [], actor, mayReinstate = false, fields }) => [
    accountId,
    action,
    ifRevisions.join(),
    actorText(actor),
    mayReinstate ? 1 : 0,
    ...fieldsAndValues(fields),
  ],
  read: readAccountReply,
};

function readAccountReply([outcome, , record]: Reply): AccountReply {
  switch (outcome) {
    case "created":
    case "changed":
    case "unchanged":
      return { outcome, record: accountOf(recordOf(record as string[])) };
    default:
      return { outcome: outcome as "exists" | "restricted" | "stale" | "missing" };
  }
}

type SuspendCall = Omit<AccountCall, "action" | "fields"> & { status: "suspended" | "closed" };

export const suspend: Script<SuspendCall, AccountReply> = {
  name: "suspend",
  keys: ({ partition, accountId }) => [accountNames(partition, accountId).account],
  args: ({ accountId, status, ifRevisions = [], mayReinstate, actor }) => [
    accountId,
    status,
    ifRevisions.join(),
    mayReinstate ? 1 : 0,
    actorText(actor),
  ],
  read: readAccountReply,
};

interface CreditsCall {
  key: KeyRef;
  tiers: Tiers;
}

export type CreditAccount = KeyState &
  (
    | { outcome: "unknown_key" }
    | { outcome: "account_suspended"; status: "closed" }
    | {
        outcome: "known";
        status: AccountStatus;
        limits: Limits;
        /** Credits that can be spent. */
        balance: number;
        totalUsed: number;
        totalRequests: number;
        /** Most recent first. */
        recent: Transaction[];
      }
  );

export const credits: Script<CreditsCall, CreditAccount> = {
  name: "credits",
  keys({ key: { names } }) {
    return [names.key, names.window, names.slots, names.account, names.ledger, names.checkpoint];
  },
  tiers: ({ tiers }) => tiers,
  args: () => [RECENT_TRANSACTIONS],
  read(reply, { key }) {
    const common = keyStateOf(reply);
    if (reply[0] === "unknown_key") return { outcome: "unknown_key", ...common };
    if (reply[0] === "account_suspended")
      return { outcome: "account_suspended", ...common, status: "closed" };
    const { limits, rest } = limitsInForce(common.state, reply.slice(KEY_STATE_LENGTH + 1));
    const [balance, totalUsed, totalRequests, ...latest] = rest;
    return {
      outcome: "known",
      ...common,
      status: statusOf(reply[KEY_STATE_LENGTH]),
      limits,
      balance: Number(balance),
      totalUsed: Number(totalUsed),
      totalRequests: Number(totalRequests),
      recent: (latest as (StreamEntry | string)[])
        .flatMap((found) => entriesOf(found, key))
        .slice(0, RECENT_TRANSACTIONS)
        .map(transactionOf),
    };
  },
};

function entriesOf(found: StreamEntry | string, { partition, accountId }: KeyRef): LedgerEntry[] {
  if (typeof found !== "string") return [ledgerEntry(partition, found)];
  const tail = checkpointOf(found)?.tail ?? [];
  return tail.map((entry) => entryOfTail(partition, accountId, entry));
}
