import type { Static, TSchema } from "typebox";
import { shown } from "../../../domain/problems.ts";
import { adjustCredits } from "../../../operations/credits/adjustments.ts";
import { grantCredits } from "../../../operations/credits/grants.ts";
import type { LedgerEntry } from "../../../records/ledger-entries.ts";
import { OperatorError } from "../../../records/operator-error.ts";
import { type Answer, type ApiCall, operation } from "../route.ts";
import { NewAdjustment, NewGrant, Transaction } from "../schemas.ts";
import type { OperationSettings } from "../services.ts";
import { transactionShown } from "../shown.ts";

interface Booked {
  outcome: string;
  balance: number;
  entry?: LedgerEntry | undefined;
}

/** The answer to a booking: 201, and 200 for one that an earlier call has made. */
export function bookingAnswer(
  { outcome, balance, entry }: Booked,
  _call: ApiCall,
  { lookUps }: OperationSettings,
): Answer {
  // Only of a repeat.
  if (!entry) {
    throw lookUps.readArchived
      ? new OperatorError(
          "an earlier call has made this; only the archive has its transaction, and does not answer: repeat the call later",
          "unavailable",
        )
      : new OperatorError(
          "an earlier call has made this; its transaction is too old to be shown here, see the account's transactions",
          "conflict",
          "reference",
        );
  }
  return { status: outcome === "duplicate" ? 200 : 201, body: transactionShown(entry, balance) };
}

export const bookingAnswers = (what: string, schema: TSchema = Transaction) => ({
  200: { description: "An earlier call with this reference has made it; nothing is changed.", schema },
  201: { description: what, schema },
});

/** @throws OperatorError unless either credits or the name of a package is given */
function creditsOf(
  { packages }: OperationSettings,
  { credits, package: name }: Static<typeof NewGrant>,
): number {
  if (credits !== undefined && name === undefined) return credits;
  if (credits !== undefined || name === undefined) {
    const rule =
      name === undefined
        ? "say how many credits, or name a package"
        : "give either credits or a package, not both";
    throw new OperatorError(rule, "invalid", "");
  }
  const known = packages();
  if (Object.hasOwn(known, name)) return known[name]!;
  const names = Object.keys(known).join(", ");
  throw new OperatorError(`the config has no package ${shown(name)}; it has ${names}`, "invalid", "package");
}

export const grantOfCredits = operation("POST /accounts/{account}/grants", {
  scope: "credits:write",
  name: "grantCredits",
  summary: "Grant credits",
  description: "By package or by number, once per reference. The same reference with another amount is 409.",
  body: NewGrant,
  answers: bookingAnswers("The transaction, with the balance."),
  refusals: [404, 409],
  async operate(nodes, { params, body, actor }, settings) {
    const { reference } = body;
    const amount = creditsOf(settings, body);
    const { readArchived } = settings.lookUps;
    return {
      amount,
      ...(await grantCredits(nodes, params.account!, amount, reference, actor, readArchived)),
    };
  },
  answer: bookingAnswer,
});

export const adjustmentOfCredits = operation("POST /accounts/{account}/adjustments", {
  scope: "credits:write",
  name: "adjustCredits",
  summary: "Adjust a balance",
  description:
    "Up or down, once per reference, never below what is held: that is 409. Customers see a `consume` or a `recharge` with the reason.",
  body: NewAdjustment,
  answers: bookingAnswers("The transaction, with the balance."),
  refusals: [404, 409],
  operate: (nodes, { params, body, actor }, { lookUps }) =>
    adjustCredits(nodes, params.account!, body, actor, lookUps.readArchived),
  answer: bookingAnswer,
});

export const creditRoutes = [grantOfCredits, adjustmentOfCredits];
