import { type Actor, actorText } from "../actor.ts";
import { recordOf } from "../ledger-entries.ts";
import { accountNames, partitionNames } from "../names.ts";
import type { AccountRecord } from "../records.ts";
import type { Script } from "../script-definition.ts";
import { fieldsAndValues } from "./change.ts";

export interface AccountCall {
  partition: number;
  accountId: string;
  action: "account.create" | "account.patch";
  /** Nothing is changed if the record has another revision. */
  ifRevision?: number | undefined;
  actor: Actor;
  /** Null removes a field. */
  fields: Readonly<Record<string, string | number | null>>;
}

export type AccountReply =
  | { outcome: "created" | "changed" | "unchanged"; record: AccountRecord }
  | { outcome: "exists" | "stale" | "missing" };

/** Creates an account, or changes fields of its record. */
export const account: Script<AccountCall, AccountReply> = {
  name: "account",
  isBatched: false,
  keys: ({ partition, accountId }) => [
    accountNames(partition, accountId).account,
    partitionNames(partition).accounts,
  ],
  args: ({ accountId, action, ifRevision = "", actor, fields }) => [
    accountId,
    action,
    ifRevision,
    actorText(actor),
    ...fieldsAndValues(fields),
  ],
  read([outcome, , record]) {
    switch (outcome) {
      case "created":
      case "changed":
      case "unchanged":
        return { outcome, record: recordOf(record as string[]) };
      default:
        return { outcome: outcome as "exists" | "stale" | "missing" };
    }
  },
};
