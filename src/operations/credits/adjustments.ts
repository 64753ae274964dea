import { CREDITS_MAX } from "../../domain/money.ts";
import type { Actor } from "../../records/actor.ts";
import type { LedgerEntry } from "../../records/ledger-entries.ts";
import { noAccount, OperatorError } from "../../records/operator-error.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { writablePlace } from "../../redis/store-facts.ts";
import { adjust } from "../../scripts/adjust.ts";
import { requireAccountId } from "../access/operator-values.ts";
import {
  entryOfReference,
  oncePerReference,
  type ReadArchived,
  requireReason,
  requireReference,
} from "./references.ts";

interface Adjustment {
  outcome: "adjusted" | "duplicate";
  balance: number;
  /** Undefined where many more were made since. */
  entry: LedgerEntry | undefined;
}

/**
 * Once per reference. @param wanted.reason customers see it @param readArchived without it, accounts with forgotten references are refused
 * @throws OperatorError `not_found`; `conflict` for a used reference or too few credits; `unavailable` archive
 */
export async function adjustCredits(
  nodes: RedisNodes,
  accountId: string,
  wanted: { amount: number; reason: string; reference: string },
  actor: Actor,
  readArchived?: ReadArchived,
): Promise<Adjustment> {
  requireAccountId(accountId);
  const { amount, reference } = wanted;
  if (!Number.isSafeInteger(amount) || amount === 0 || Math.abs(amount) > CREDITS_MAX) {
    const rule = `amount must be a whole number of credits from -${CREDITS_MAX} to ${CREDITS_MAX}, not 0`;
    throw new OperatorError(rule, "invalid", "amount");
  }
  const reason = requireReason(wanted.reason);
  requireReference(reference);
  const { partition, redis } = await writablePlace(nodes, accountId);
  const adjusted = await oncePerReference(
    { nodes, accountId, reference, standsFor: `adjustment ${amount}`, readArchived },
    (lookedUp) =>
      scriptsOf(redis).run(adjust, { partition, accountId, amount, reference, reason, lookedUp, actor }),
  );
  switch (adjusted.outcome) {
    case "adjusted":
    case "duplicate":
      return {
        outcome: adjusted.outcome,
        balance: adjusted.balance,
        entry: await entryOfReference(
          nodes,
          { partition, accountId, reference, booked: adjusted },
          readArchived,
        ),
      };
    case "too_low":
      throw new OperatorError(
        `the account can spend ${adjusted.balance} credits, so ${-amount} cannot be taken; nothing is changed`,
        "insufficient_balance",
        "amount",
      );
    case "too_large":
      throw new OperatorError(
        "the balance would be too large to be exact; nothing is changed",
        "balance_too_large",
        "amount",
      );
    case "unknown_account":
      throw noAccount(accountId);
  }
}
