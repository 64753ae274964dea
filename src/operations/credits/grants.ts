import type { Actor } from "../../records/actor.ts";
import type { LedgerEntry } from "../../records/ledger-entries.ts";
import { partitionOf } from "../../records/names.ts";
import { OperatorError } from "../../records/operator-error.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { partitionsOf } from "../../redis/store-facts.ts";
import { type Recharged, recharge } from "../../scripts/recharge.ts";
import { requireAccountId, requireCredits } from "../access/operator-values.ts";
import { unknownAccount } from "../accounts/accounts.ts";
import {
  type AfterLookUp,
  entryOfReference,
  oncePerReference,
  type ReadArchived,
  requireReference,
} from "./references.ts";

interface Grant {
  outcome: "recharged" | "duplicate";
  balance: number;
  /** Undefined where many more were made since. */
  entry?: LedgerEntry | undefined;
}

/**
 * Once per reference. @param readArchived without it, accounts with forgotten references are refused @throws
 * OperatorError for an unknown account, a reference of another amount, and if the archive is needed and unavailable
 */
export async function grantCredits(
  nodes: RedisNodes,
  accountId: string,
  amount: number,
  reference: string,
  actor: Actor,
  readArchived?: ReadArchived,
): Promise<Grant> {
  requireAccountId(accountId);
  requireCredits(amount);
  requireReference(reference);
  const partition = partitionOf(accountId, await partitionsOf(nodes));
  nodes.requireWritable?.([nodes.of(partition)]);
  const redis = nodes.of(partition);
  const granted = await oncePerReference(
    { nodes, accountId, reference, standsFor: String(amount), readArchived },
    (lookedUp) =>
      scriptsOf(redis).run(recharge, { partition, accountId, amount, reference, lookedUp, actor }),
  );
  const grant = grantOf(granted, accountId, reference);
  return {
    ...grant,
    entry: await entryOfReference(nodes, { partition, accountId, reference, booked: granted }, readArchived),
  };
}

function grantOf(granted: AfterLookUp<Recharged>, accountId: string, reference: string): Grant {
  switch (granted.outcome) {
    case "recharged":
    case "duplicate":
      return { outcome: granted.outcome, balance: granted.balance };
    case "mismatch":
      throw new OperatorError(
        `the reference ${reference} has credited another amount before, or stands for something else; nothing is changed`,
        "conflict",
        "reference",
      );
    case "too_large":
      throw new OperatorError("the balance would be too large to be exact; nothing is changed", "conflict");
    case "unknown_account":
      throw unknownAccount(accountId);
  }
}
