import { correctCharges } from "../../../ledger/corrections.ts";
import { requireTime } from "../../../operations/access/operator-values.ts";
import { adjustCredits } from "../../../operations/credits/adjustments.ts";
import { grantCredits, readGrant } from "../../../operations/credits/grants.ts";
import type { Booked } from "../../../operations/credits/references.ts";
import { reverseGrant } from "../../../operations/credits/reversals.ts";
import { OperatorError } from "../../../records/operator-error.ts";
import { requireAllAccounts } from "../authorize.ts";
import {
  Correction,
  NewAdjustment,
  NewCorrection,
  NewGrant,
  NewReversal,
  Transaction,
} from "../money-schemas.ts";
import { type Answer, type ApiCall, operation } from "../route.ts";
import type { OperationSettings } from "../services.ts";
import { transactionShown } from "../shown.ts";

/** The answer to a booking: 201, and 200 for one that an earlier call has made. */
export function bookingAnswer(
  { outcome, balance, entry }: Booked<string>,
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
          "transaction_gone",
          "reference",
        );
  }
  return { status: outcome === "duplicate" ? 200 : 201, body: transactionShown(entry, balance) };
}

export const bookingAnswers = (what: string) => ({
  200: {
    description: "An earlier call with this reference has made it; nothing is changed.",
    schema: Transaction,
  },
  201: { description: what, schema: Transaction },
});

export const grantOfCredits = operation("POST /accounts/{account}/grants", {
  scope: "credits:write",
  name: "grantCredits",
  summary: "Grant credits",
  description:
    "By package or by number, once per reference; the same reference with other values is 409. A `purchase` counts as sold: a package is paid at its price unless `amount_paid` says otherwise. `trial` and `goodwill` are given.",
  body: NewGrant,
  answers: bookingAnswers("The transaction, with the balance."),
  refusals: [409],
  async operate(nodes, { params, body, actor }, settings) {
    const { reference, ...terms } = body;
    const { amount, ...notes } = readGrant(settings.config().packages, terms);
    const { readArchived } = settings.lookUps;
    const account = params.account!;
    return {
      amount,
      ...(await grantCredits(nodes, account, amount, reference, actor, readArchived, notes)),
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
  refusals: [409],
  operate: (nodes, { params, body, actor }, { lookUps }) =>
    adjustCredits(nodes, params.account!, body, actor, lookUps.readArchived),
  answer: bookingAnswer,
});

export const reversalOfGrant = operation("POST /accounts/{account}/reversals", {
  scope: "credits:write",
  name: "reverseGrant",
  summary: "Reverse a grant",
  description:
    "Takes back what is left of a grant, once per reference: at most `amount`, what was not reversed of it before, and what the account can spend. What is held stays. Customers see a `consume` with the reason.",
  body: NewReversal,
  answers: bookingAnswers("The transaction, with `requested` and `reversed`."),
  refusals: [409],
  operate: (nodes, { params, body, actor }, { lookUps }) =>
    reverseGrant(nodes, params.account!, body, actor, lookUps.readArchived),
  answer: bookingAnswer,
});

export const correctionOfCharges = operation("POST /corrections", {
  scope: "credits:write",
  name: "correctCharges",
  summary: "Correct charges by a wrong price",
  description:
    "Gives back what was charged too much while a wrong price was in force, to all accounts, once per charge: as an adjustment of the difference under the reference, a space, and the request id. A corrected charge is not refunded any more. Begin with `dry_run`. Charges whose tasks run are left out: repeat the call later, with the same reference.",
  body: NewCorrection,
  answers: { 200: { description: "What was found and done.", schema: Correction } },
  refusals: [409],
  operate(nodes, { body, grantee, actor }, { lookUps }) {
    requireAllAccounts(grantee);
    const { from, to, price_list: priceList, dry_run: isDryRun = false, ...terms } = body;
    const period = { fromMs: requireTime(from, "from"), toMs: requireTime(to, "to") };
    return correctCharges(nodes, { ...terms, ...period, priceList, isDryRun }, actor, lookUps);
  },
  answer: ({ shown, next, ...numbers }) => ({
    status: 200,
    body: {
      ...numbers,
      data: shown.map(({ entry, credits }) => ({ ...entry, charged: -entry.amount, credits })),
      next_cursor: next,
    },
  }),
});

export const creditRoutes = [grantOfCredits, adjustmentOfCredits, reversalOfGrant, correctionOfCharges];
