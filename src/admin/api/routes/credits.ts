import type { TSchema } from "typebox";
import { adjustCredits } from "../../../operations/credits/adjustments.ts";
import { grantCredits } from "../../../operations/credits/grants.ts";
import type { LedgerEntry } from "../../../records/ledger-entries.ts";
import { OperatorError } from "../../../records/operator-error.ts";
import { Problem } from "../problems.ts";
import { type Answer, route } from "../route.ts";
import type { Services } from "../services.ts";
import { transactionShown } from "../shown.ts";
import { NewAdjustment, NewGrant, Transaction } from "../transaction-schemas.ts";

/** What was booked: the balance, and the ledger entry where it is found. */
interface Booked {
  outcome: string;
  balance: number;
  entry?: LedgerEntry | undefined;
}

/**
 * The answer to a booking: 201, and 200 for one that an earlier call has made.
 * @param hasArchive then only the archive has an entry that was not found
 */
export function bookingAnswer(
  { outcome, balance, entry }: Booked,
  confirmed: boolean | undefined,
  hasArchive: boolean,
): Answer {
  // Only of a repeat.
  if (!entry) {
    throw hasArchive
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
  return {
    status: outcome === "duplicate" ? 200 : 201,
    body: transactionShown(entry, balance),
    confirmed,
  };
}

export const bookingAnswers = (what: string, schema: TSchema = Transaction) => ({
  200: { description: "An earlier call with this reference has made it; nothing is changed.", schema },
  201: { description: what, schema },
});

/** @throws Problem unless either credits or the name of a package is given */
function creditsOf(services: Services, given: { credits?: number; package?: string }): number {
  const { credits, package: name } = given;
  const packages = services.packages();
  const problem = (path: string, message: string): Problem =>
    new Problem("invalid", message, { errors: [{ path, message }] });
  if ((credits === undefined) === (name === undefined)) {
    throw problem("", "give either credits or package");
  }
  if (name === undefined) return credits!;
  if (Object.hasOwn(packages, name)) return packages[name]!;
  throw problem("/package", `there is no such package; there are ${Object.keys(packages).join(", ")}`);
}

/** Money that an account is given, or loses, by hand. */
export const creditRoutes = (services: Services) => [
  route({
    method: "POST",
    path: "/accounts/{account}/grants",
    tag: "Credits",
    scope: "credits:write",
    name: "grantCredits",
    summary: "Grant credits",
    description:
      "By package or by number, once per reference. The same reference with another amount is 409.",
    body: NewGrant,
    answers: bookingAnswers("The transaction, with the balance."),
    refusals: [404, 409],
    async run({ params, body, actor }) {
      const { session } = services;
      const credits = creditsOf(services, body);
      const { result, confirmed } = await session.write((nodes) =>
        grantCredits(nodes, params.account!, credits, body.reference, actor, session.archive.readArchived),
      );
      return bookingAnswer(result, confirmed, session.archive.readArchived !== undefined);
    },
  }),
  route({
    method: "POST",
    path: "/accounts/{account}/adjustments",
    tag: "Credits",
    scope: "credits:write",
    name: "adjustCredits",
    summary: "Adjust a balance",
    description:
      "Up or down, once per reference, never below what is held: that is 409. Customers see a `consume` or a `recharge` with the reason.",
    body: NewAdjustment,
    answers: bookingAnswers("The transaction, with the balance."),
    refusals: [404, 409],
    async run({ params, body, actor }) {
      const { session } = services;
      const { result, confirmed } = await session.write((nodes) =>
        adjustCredits(nodes, params.account!, body, actor, session.archive.readArchived),
      );
      return bookingAnswer(result, confirmed, session.archive.readArchived !== undefined);
    },
  }),
];
