import { CREDITS_MAX } from "../../domain/money.ts";
import type { Actor } from "../../records/actor.ts";
import { OperatorError, tooLarge } from "../../records/operator-error.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { type RedisNodes, writablePlace } from "../../redis/store-facts.ts";
import { adjust } from "../../scripts/credit-changes.ts";
import { requireAccountId } from "../access/operator-values.ts";
import { type Booked, book, type ReadArchived, requireReason, requireReference } from "./references.ts";

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
): Promise<Booked<"adjusted">> {
  requireAccountId(accountId);
  const { amount, reference } = wanted;
  if (!Number.isSafeInteger(amount) || amount === 0 || Math.abs(amount) > CREDITS_MAX) {
    const rule = `amount must be a whole number of credits from -${CREDITS_MAX} to ${CREDITS_MAX}, not 0`;
    throw new OperatorError(rule, "invalid", "amount");
  }
  const reason = requireReason(wanted.reason);
  requireReference(reference);
  const { partition, redis } = await writablePlace(nodes, accountId);
  return book(
    { nodes, partition, accountId, reference, standsFor: `adjustment ${amount}`, readArchived },
    "adjusted",
    (lookedUp) =>
      scriptsOf(redis).run(adjust, { partition, accountId, amount, reference, reason, lookedUp, actor }),
    ({ outcome, balance }) =>
      outcome === "too_low"
        ? new OperatorError(
            `the account can spend ${balance} credits, so ${-amount} cannot be taken; nothing is changed`,
            "insufficient_balance",
            "amount",
          )
        : tooLarge("amount"),
  );
}
