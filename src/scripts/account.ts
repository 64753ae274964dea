import { type Actor, actorText } from "../records/actor.ts";
import { recordOf } from "../records/ledger-entries.ts";
import { accountNames, partitionNames } from "../records/names.ts";
import { accountOf } from "../records/packed-fields.ts";
import type { AccountRecord } from "../records/records.ts";
import { fieldsAndValues } from "./change.ts";
import type { Reply, Script } from "./script-definition.ts";

export interface AccountCall {
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

export type AccountReply =
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

export function readAccountReply([outcome, , record]: Reply): AccountReply {
  switch (outcome) {
    case "created":
    case "changed":
    case "unchanged":
      return { outcome, record: accountOf(recordOf(record as string[])) };
    default:
      return { outcome: outcome as "exists" | "restricted" | "stale" | "missing" };
  }
}
