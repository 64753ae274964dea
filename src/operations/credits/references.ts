import type { Redis } from "ioredis";
import { isLine } from "../../domain/operator-texts.ts";
import { type LedgerEntry, ledgerEntry, standsFor } from "../../records/ledger-entries.ts";
import { accountNames, partitionNames, REFERENCE_ACCOUNTS_MAX, referencePlace } from "../../records/names.ts";
import { noAccount, OperatorError } from "../../records/operator-error.ts";
import { moneyOf } from "../../records/packed-fields.ts";
import { readsOfMost, type Unread } from "../../redis/partition-reads.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { partitionsOf, placeOfAccount, type RedisNodes } from "../../redis/store-facts.ts";
import { history } from "../../scripts/ledger.ts";

const REFERENCE = /^[\x20-\x7e]{1,200}$/;
const REASON_CHARS_MAX = 200;
/** References may be forgotten meanwhile. */
const LOOK_UPS_MAX = 3;
/** Each slice takes less than a millisecond of Redis. */
const SLICES_MAX = 400;
const SLICE = 50;

/** Undefined if the archive has none. @throws Error if it is unavailable, another store's, or not complete */
export type ReadArchived = (
  nodes: RedisNodes,
  accountId: string,
  reference: string,
) => Promise<LedgerEntry | undefined>;

export function requireReference(reference: string): void {
  if (REFERENCE.test(reference)) return;
  throw new OperatorError("a reference has 1 to 200 printable ASCII characters", "invalid", "reference");
}

/** Trimmed. @throws OperatorError */
export function requireReason(reason: string): string {
  const text = reason.trim();
  if (isLine(text, REASON_CHARS_MAX)) return text;
  throw new OperatorError(
    `a reason has 1 to ${REASON_CHARS_MAX} printable characters on one line, without those that turn its direction`,
    "invalid",
    "reason",
  );
}

/** The use of a reference in words, from its meaning; credits without a word are those of a purchase. */
const useOf = (text: string): string => /^(adjustment|refund|reversal) /.exec(text)?.[1] ?? "grant";

/** @param earlier what it stands for; undefined if that was forgotten meanwhile */
export function otherUse(reference: string, earlier: string | undefined, wanted: string): OperatorError {
  const isSame = earlier !== undefined && useOf(earlier) === useOf(wanted);
  return new OperatorError(
    isSame
      ? `the reference ${reference} was used for another ${useOf(wanted)} before (${earlier}); nothing is changed`
      : `the reference ${reference} stands for something else; nothing is changed`,
    isSame ? "reference_mismatch" : "reference_used",
    "reference",
  );
}

interface Reference {
  nodes: RedisNodes;
  accountId: string;
  reference: string;
  standsFor: string;
  readArchived: ReadArchived | undefined;
}

type WithReference = { outcome: string };
type Forgotten = { outcome: "forgotten"; balance: number; references: number };
type Mismatch = { outcome: "mismatch"; balance: number };
type AfterLookUp<Reply> = Exclude<Reply, { outcome: "forgotten" | "mismatch" }>;

interface FoundInArchive {
  outcome: "duplicate";
  balance: number;
  entry: LedgerEntry;
}

/**
 * Runs a script that acts once per reference; of forgotten ones the archive is asked first, and without it the account is refused.
 * @param run `lookedUp`: how many were forgotten when the archive did not have this one
 * @throws OperatorError `reference_mismatch`, `reference_used`, `unavailable`
 */
export async function oncePerReference<Reply extends WithReference>(
  what: Reference,
  run: (lookedUp: number) => Promise<Reply | Forgotten | Mismatch>,
): Promise<AfterLookUp<Reply> | FoundInArchive> {
  for (let lookUps = 0, lookedUp = 0; lookUps <= LOOK_UPS_MAX; lookUps++) {
    const reply = await run(lookedUp);
    if (reply.outcome === "mismatch") throw otherUse(what.reference, await useInRedis(what), what.standsFor);
    if (!isForgotten(reply)) return reply as AfterLookUp<Reply>;
    const archived = await lookUp(what);
    if (archived !== undefined) {
      const earlier = standsFor(archived);
      if (earlier !== what.standsFor) throw otherUse(what.reference, earlier, what.standsFor);
      return { outcome: "duplicate", balance: reply.balance, entry: archived };
    }
    lookedUp = reply.references;
  }
  throw new OperatorError("references are being forgotten; nothing is changed; try again", "unavailable");
}

export interface Booked<Done extends string> {
  outcome: Done | "duplicate";
  balance: number;
  /** Undefined where many more were made since. */
  entry: LedgerEntry | undefined;
}

/** As `oncePerReference`, with the entry. @param done the outcome of a first call @throws the error of `refused` for further outcomes */
export async function book<Done extends string, Reply extends { outcome: string }>(
  what: Reference & { partition: number },
  done: Done,
  run: (lookedUp: number) => Promise<Reply | Forgotten | Mismatch>,
  refused: (
    reply: Exclude<Reply, { outcome: "unknown_account" | "forgotten" | "mismatch" }>,
  ) => OperatorError,
  unknown: (accountId: string) => OperatorError = noAccount,
): Promise<Booked<Done>> {
  const reply = await oncePerReference(what, run);
  const { outcome, balance } = reply as { outcome: string; balance: number };
  if (outcome === "unknown_account") throw unknown(what.accountId);
  if (outcome !== done && outcome !== "duplicate") throw refused(reply as Parameters<typeof refused>[0]);
  const { readArchived } = what;
  // The change was made, so an unavailable archive is no error.
  const read: ReadArchived | undefined =
    readArchived && ((...of) => readArchived(...of).catch(() => undefined));
  const entry = (reply as { entry?: LedgerEntry }).entry ?? (await entryUnder(what.nodes, what, read));
  return { outcome: outcome as Done | "duplicate", balance, entry };
}

async function useInRedis({ nodes, accountId, reference }: Reference): Promise<string | undefined> {
  const { partition, redis } = await placeOfAccount(nodes, accountId);
  const found = await redis.hget(accountNames(partition, accountId).references, reference);
  return found ?? undefined;
}

const isForgotten = (reply: WithReference): reply is Forgotten => reply.outcome === "forgotten";

async function lookUp({
  readArchived,
  nodes,
  accountId,
  reference,
}: Reference): Promise<LedgerEntry | undefined> {
  if (!readArchived) {
    throw new OperatorError(`${NEEDS_ARCHIVE}; set ARCHIVE_URL and run this again`, "unavailable");
  }
  return fromArchive(
    () => readArchived(nodes, accountId, reference),
    (why) => `${NEEDS_ARCHIVE}, which cannot be used (${why}); run this again later`,
  );
}

/** @param inWords the message where the archive cannot be read, and why @throws OperatorError `unavailable` */
export async function fromArchive<T>(
  read: () => Promise<T>,
  inWords = (why: string) => `the archive cannot be read now (${why}); try again later`,
  path?: string,
): Promise<T> {
  try {
    return await read();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new OperatorError(inWords(why), "unavailable", path);
  }
}

const NEEDS_ARCHIVE = "nothing is changed: only the archive knows whether this reference was used long ago";

/** @throws the error of `readArchived` */
export async function entryUnder(
  nodes: RedisNodes,
  { partition, accountId, reference }: { partition: number; accountId: string; reference: string },
  readArchived: ReadArchived | undefined,
): Promise<LedgerEntry | undefined> {
  const redis = nodes.of(partition);
  const id = await entryIdOf(redis, partition, accountId, reference);
  const [found] = id === undefined ? [] : await redis.xrange(partitionNames(partition).ledger, id, id);
  const entry = found && ledgerEntry(partition, found);
  if (entry?.accountId === accountId && entry.reference === reference) return entry;
  const latest = await amongLatest(redis, partition, accountId, reference);
  return latest ?? readArchived?.(nodes, accountId, reference);
}

async function amongLatest(
  redis: Redis,
  partition: number,
  accountId: string,
  reference: string,
): Promise<LedgerEntry | undefined> {
  const money = await redis.hget(accountNames(partition, accountId).account, "money");
  for (let from = moneyOf(money).last_entry ?? "", slices = 0; from !== "" && slices < SLICES_MAX; slices++) {
    const size = slices === 0 ? 2 : SLICE;
    const call = { partition, accountId, from, lookedAtMax: size, answeredMax: size };
    const page = await scriptsOf(redis).run(history, call);
    const found = page.entries.find((entry) => entry.reference === reference);
    if (found || page.outcome !== "read") return found;
    from = page.next;
  }
  return undefined;
}

interface Indexed {
  accountId: string;
  entry: string;
}

/** As written by lua/include/references.lua. */
export const readPlace = (text: string | null | undefined): Indexed[] =>
  (text ?? "")
    .split(" ")
    .filter((one) => one !== "")
    .map((one) => {
      const [accountId = "", entry = ""] = one.split("@");
      return { accountId, entry };
    });

export const placeText = (indexed: readonly Indexed[]): string =>
  indexed.map(({ accountId, entry }) => `${accountId}@${entry}`).join(" ");

/** It may be another reference's, or trimmed. */
export async function entryIdOf(
  redis: Redis,
  partition: number,
  accountId: string,
  reference: string,
): Promise<string | undefined> {
  const { name, field } = referencePlace(partition, reference);
  const [listed, beyond] = await redis.hmget(name, field, `${field} ${accountId}`);
  return entryOfPlaces(accountId, listed, beyond);
}

/** @param listed all accounts of the place @param beyond the account's own field */
export const entryOfPlaces = (
  accountId: string,
  listed: string | null | undefined,
  beyond: string | null | undefined,
): string | undefined =>
  readPlace(listed).find((one) => one.accountId === accountId)?.entry || beyond || undefined;

/** Accounts that have used this reference, by the index of each partition. `complete` is false if a place is full. */
export async function accountsOfReference(
  nodes: RedisNodes,
  reference: string,
): Promise<{ accountIds: string[]; complete: boolean; unread: Unread | undefined }> {
  const reads = readsOfMost(nodes);
  const places = Array.from({ length: await partitionsOf(nodes) }, (_, partition) => ({
    partition,
    ...referencePlace(partition, reference),
  }));
  const texts = await reads.many<string | null, (typeof places)[number]>(places, (pipe, { name, field }) =>
    pipe.hget(name, field),
  );
  const lists = texts.map((text, partition) =>
    readPlace(text).map(({ accountId }) => ({ partition, accountId })),
  );
  const listed = lists.flat();
  const has = await reads.many<number, (typeof listed)[number]>(listed, (pipe, { partition, accountId }) =>
    pipe.hexists(accountNames(partition, accountId).references, reference),
  );
  return {
    accountIds: listed.filter((_, at) => has[at] === 1).map(({ accountId }) => accountId),
    complete: lists.every(({ length }) => length < REFERENCE_ACCOUNTS_MAX),
    unread: reads.unread(),
  };
}
