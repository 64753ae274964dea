import { type CreditPackage, readMoney } from "../../domain/money.ts";
import { type Metadata, metadataProblem } from "../../domain/operator-texts.ts";
import { shown } from "../../domain/problems.ts";
import type { Actor } from "../../records/actor.ts";
import {
  detailsOf,
  detailsText,
  type EntryDetails,
  type GrantKind,
  grantText,
} from "../../records/ledger-entries.ts";
import { accountClosed, OperatorError, tooLarge } from "../../records/operator-error.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { type RedisNodes, writablePlace } from "../../redis/store-facts.ts";
import { recharge } from "../../scripts/credit-changes.ts";
import { requireAccountId, requireCredits } from "../access/operator-values.ts";
import { unknownAccount } from "../accounts/accounts.ts";
import { type Booked, book, type ReadArchived, requireReference } from "./references.ts";

interface GrantTerms {
  credits?: number | undefined;
  package?: string | undefined;
  kind?: GrantKind | undefined;
  amount_paid?: string | undefined;
  currency?: string | undefined;
  metadata?: Metadata | undefined;
}

interface GrantNotes {
  kind: GrantKind;
  details: EntryDetails;
}

const PLAIN: GrantNotes = { kind: "purchase", details: {} };

/** A package is paid at its price unless an amount is given. @throws OperatorError `invalid`, `unknown_package`, `invalid_money` */
export function readGrant(
  packages: Readonly<Record<string, CreditPackage>>,
  terms: GrantTerms,
): GrantNotes & { amount: number } {
  const { kind = "purchase", metadata } = terms;
  const bought = packageOf(packages, terms);
  const problem = metadata ? metadataProblem(metadata) : undefined;
  if (problem !== undefined) throw new OperatorError(problem, "invalid", "metadata");
  const details: EntryDetails = {
    ...(terms.package !== undefined && { package: terms.package }),
    ...(bought?.price !== undefined && { package_price: bought.price, package_currency: bought.currency }),
    ...paidFor(kind, terms, bought),
    ...(metadata && { metadata }),
  };
  return { amount: bought?.credits ?? terms.credits!, kind, details };
}

function packageOf(
  packages: Readonly<Record<string, CreditPackage>>,
  { credits, package: name }: GrantTerms,
): CreditPackage | undefined {
  if (credits !== undefined && name === undefined) return undefined;
  if (credits !== undefined || name === undefined) {
    const rule =
      name === undefined
        ? "say how many credits, or name a package"
        : "give either credits or a package, not both";
    throw new OperatorError(rule, "invalid", "");
  }
  if (Object.hasOwn(packages, name)) return packages[name];
  const names = Object.keys(packages).join(", ");
  throw new OperatorError(
    `the config has no package ${shown(name)}; it has ${names}`,
    "unknown_package",
    "package",
  );
}

function paidFor(
  kind: GrantKind,
  { amount_paid: amount, currency }: GrantTerms,
  bought: CreditPackage | undefined,
): Pick<EntryDetails, "amount_paid" | "currency"> {
  const refused = (message: string, path: string) => new OperatorError(message, "invalid_money", path);
  if (amount === undefined) {
    if (currency !== undefined) throw refused("a currency belongs to an amount_paid", "currency");
    if (kind !== "purchase" || bought?.price === undefined) return {};
    return { amount_paid: bought.price, currency: bought.currency };
  }
  if (kind !== "purchase") throw refused(`nothing is paid for a grant of kind ${kind}`, "amount_paid");
  const money = readMoney(amount, currency ?? bought?.currency ?? "USD");
  if ("problem" in money)
    throw refused(money.problem, money.wrong === "currency" ? "currency" : "amount_paid");
  return { amount_paid: money.amount, currency: money.currency };
}

/** Once per reference. @param readArchived without it, accounts with forgotten references are refused @throws OperatorError */
export async function grantCredits(
  nodes: RedisNodes,
  accountId: string,
  amount: number,
  reference: string,
  actor: Actor,
  readArchived?: ReadArchived,
  { kind, details }: GrantNotes = PLAIN,
): Promise<Booked<"recharged">> {
  requireAccountId(accountId);
  requireCredits(amount);
  requireReference(reference);
  const { partition, redis } = await writablePlace(nodes, accountId);
  const granted = await book(
    { nodes, partition, accountId, reference, standsFor: grantText(kind, amount), readArchived },
    "recharged",
    (lookedUp) =>
      scriptsOf(redis).run(recharge, {
        ...{ partition, accountId, amount, reference, kind, details: detailsText(details), lookedUp, actor },
      }),
    ({ outcome }) => (outcome === "closed" ? accountClosed(accountId) : tooLarge()),
    unknownAccount,
  );
  const { outcome, entry } = granted;
  if (outcome === "duplicate" && entry) requireSameSale(reference, detailsOf(entry), details);
  return granted;
}

/** A repeat says the same about package and money; the price of a package may have changed since. */
function requireSameSale(reference: string, earlier: EntryDetails, wanted: EntryDetails): void {
  const isSamePackage = earlier.package === wanted.package;
  const isSamePaid = earlier.amount_paid === wanted.amount_paid && earlier.currency === wanted.currency;
  const isListPrice = (one: EntryDetails): boolean =>
    one.package !== undefined &&
    one.amount_paid === one.package_price &&
    one.currency === one.package_currency;
  if (isSamePackage && (isSamePaid || (isListPrice(earlier) && isListPrice(wanted)))) return;
  throw new OperatorError(
    `the reference ${reference} was used for a grant with another package or amount paid; nothing is changed`,
    "reference_mismatch",
    "reference",
  );
}
