import { CREDITS_MAX } from "../../domain/money.ts";
import type { Actor } from "../../records/actor.ts";
import { readCheckpoint } from "../../records/checkpoints.ts";
import { isGrant, kindOf, type LedgerEntry, reversalText, standsFor } from "../../records/ledger-entries.ts";
import { accountNames } from "../../records/names.ts";
import { OperatorError } from "../../records/operator-error.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { placeOfAccount, type RedisNodes, writablePlace } from "../../redis/store-facts.ts";
import { reverse } from "../../scripts/credit-changes.ts";
import { requireAccountId } from "../access/operator-values.ts";
import { type Booked, book, type ReadArchived, requireReason, requireReference } from "./references.ts";
import { transactionOfReference } from "./transactions.ts";

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
  const granted = await forgottenGrant(nodes, partition, accountId, of, readArchived);
  return book(
    { nodes, partition, accountId, reference, standsFor: reversalText(of, amount), readArchived },
    "reversed",
    (lookedUp) =>
      scriptsOf(redis).run(reverse, {
        ...{ partition, accountId, of, amount, granted, reference, reason: why, lookedUp, actor },
      }),
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

/** The meaning of a grant's reference that Redis has forgotten; undefined for all others. */
async function forgottenGrant(
  nodes: RedisNodes,
  partition: number,
  accountId: string,
  of: string,
  readArchived: ReadArchived | undefined,
): Promise<string | undefined> {
  const checkpoint = await readCheckpoint(nodes.of(partition), partition, accountId);
  if (!checkpoint?.forgotten) return undefined;
  const entry = await transactionOfReference(nodes, accountId, of, readArchived);
  if (entry) return isGrant(kindOf(entry)) ? standsFor(entry) : undefined;
  if (readArchived || (await isKnown(nodes, partition, accountId, of))) return undefined;
  throw new OperatorError(
    `nothing is changed: only the archive knows whether there was a grant ${of} long ago; set ARCHIVE_URL and run this again`,
    "unavailable",
  );
}

async function isKnown(
  nodes: RedisNodes,
  partition: number,
  accountId: string,
  of: string,
): Promise<boolean> {
  const { references } = accountNames(partition, accountId);
  return (await nodes.of(partition).hexists(references, of)) === 1;
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
