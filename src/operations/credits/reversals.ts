import { CREDITS_MAX } from "../../domain/money.ts";
import type { Actor } from "../../records/actor.ts";
import { isGrant, kindOf, type LedgerEntry, reversalText, standsFor } from "../../records/ledger-entries.ts";
import { accountNames } from "../../records/names.ts";
import { OperatorError } from "../../records/operator-error.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { placeOfAccount, type RedisNodes, writablePlace } from "../../redis/store-facts.ts";
import { reverse } from "../../scripts/credit-changes.ts";
import { requireAccountId } from "../access/operator-values.ts";
import {
  type Booked,
  book,
  fromArchive,
  type ReadArchived,
  requireReason,
  requireReference,
} from "./references.ts";

interface ReversalTerms {
  /** The reference of the grant. */
  of: string;
  reference: string;
  reason: string;
  /** Undefined: all that is left. */
  amount?: number | undefined;
}

/**
 * Takes back what is left of a grant, once per reference: at most what the account can spend. Decision 0077.
 * @param readArchived finds what Redis has forgotten @throws OperatorError `not_found`, `grant_not_found`, `nothing_left`,
 * `reference_mismatch`, `reference_used`, `unavailable`
 */
export async function reverseGrant(
  nodes: RedisNodes,
  accountId: string,
  { of, reference, amount, reason }: ReversalTerms,
  actor: Actor,
  readArchived?: ReadArchived,
): Promise<Booked<"reversed">> {
  requireAccountId(accountId);
  if (amount !== undefined && !(Number.isSafeInteger(amount) && amount >= 1 && amount <= CREDITS_MAX))
    throw new OperatorError(`amount must be a whole number from 1 to ${CREDITS_MAX}`, "invalid", "amount");
  const why = requireReason(reason);
  requireReference(reference);
  requireOf(of);
  const { partition, redis } = await writablePlace(nodes, accountId);
  return book(
    { nodes, partition, accountId, reference, standsFor: reversalText(of, amount), readArchived },
    "reversed",
    async (lookedUp) => {
      // A grant that leaves Redis before the script runs makes it answer `forgotten`, with more to look up.
      const granted = lookedUp > 0 ? await forgottenGrant(nodes, accountId, of, readArchived) : undefined;
      const call = { partition, accountId, of, amount, granted, reference, reason: why, lookedUp, actor };
      return scriptsOf(redis).run(reverse, call);
    },
    (reply) =>
      reply.outcome === "nothing_left"
        ? nothingLeft(of, reply)
        : new OperatorError(`the account has no grant ${of}; nothing is changed`, "grant_not_found", "of"),
  );
}

function requireOf(of: string): void {
  try {
    requireReference(of);
  } catch {
    throw new OperatorError("of is the reference of a grant", "invalid", "of");
  }
}

function nothingLeft(of: string, { left, balance }: { left: number; balance: number }): OperatorError {
  const why =
    left <= 0
      ? `all of the grant ${of} was reversed before`
      : `${left} credits of the grant ${of} were not reversed, and the account can spend ${balance}`;
  return new OperatorError(`${why}; nothing is changed`, "nothing_left", "of");
}

/** The meaning of a reference that Redis has forgotten. Without an archive, REVERSE refuses an account with forgotten references. */
async function forgottenGrant(
  nodes: RedisNodes,
  accountId: string,
  of: string,
  readArchived: ReadArchived | undefined,
): Promise<string | undefined> {
  const entry = readArchived && (await fromArchive(() => readArchived(nodes, accountId, of)));
  return entry && standsFor(entry);
}

/** Credits that reversals took back of grants, by the grants' references; of these entries of one account. */
export async function reversedOf(
  nodes: RedisNodes,
  accountId: string,
  entries: readonly LedgerEntry[],
): Promise<ReadonlyMap<string, number>> {
  const references = entries
    .filter((entry) => isGrant(kindOf(entry)) && entry.reference !== "")
    .map(({ reference }) => reference);
  if (references.length === 0) return new Map();
  const { partition, redis } = await placeOfAccount(nodes, accountId);
  const { reversed } = accountNames(partition, accountId);
  const credits = await redis.hmget(reversed, ...references);
  return new Map(references.map((reference, at) => [reference, Number(credits[at] ?? 0)]));
}
