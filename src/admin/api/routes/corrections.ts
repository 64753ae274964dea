import { correctCharges } from "../../../ledger/corrections.ts";
import { requireTime } from "../../../operations/access/operator-values.ts";
import { requireAllAccounts } from "../authorize.ts";
import { Correction, NewCorrection } from "../money-schemas.ts";
import { operation } from "../route.ts";

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
