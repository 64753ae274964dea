import type { Transaction } from "../domain/answers.ts";
import type { Limits, Tiers } from "../domain/limits.ts";
import { checkpointOf, entryOfTail } from "../records/checkpoints.ts";
import {
  type LedgerEntry,
  ledgerEntry,
  RECENT_TRANSACTIONS,
  type StreamEntry,
  transactionOf,
} from "../records/ledger-entries.ts";
import type { KeyRef } from "../records/names.ts";
import { type AccountStatus, statusOf } from "../records/records.ts";
import { KEY_STATE_LENGTH, type KeyState, keyStateOf, limitsInForce } from "./include/limits.ts";
import type { Script } from "./script-definition.ts";

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

/** An entry of the ledger, or those that a checkpoint has. */
function entriesOf(found: StreamEntry | string, { partition, accountId }: KeyRef): LedgerEntry[] {
  if (typeof found !== "string") return [ledgerEntry(partition, found)];
  const tail = checkpointOf(found)?.tail ?? [];
  return tail.map((entry) => entryOfTail(partition, accountId, entry));
}
