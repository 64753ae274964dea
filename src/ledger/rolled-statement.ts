import type { Redis } from "ioredis";
import { dayText } from "../domain/moments.ts";
import { entryOfPlaces } from "../operations/credits/references.ts";
import {
  isLater,
  kindOf,
  type LedgerEntry,
  ledgerEntry,
  msOf,
  type StreamEntry,
} from "../records/ledger-entries.ts";
import { accountNames, partitionNames, referencePlace } from "../records/names.ts";
import { OperatorError } from "../records/operator-error.ts";
import { moneyOf } from "../records/packed-fields.ts";
import { many, pages, pairsOf } from "../redis/pipelines.ts";
import { scriptsOf } from "../redis/script-runner.ts";
import { storeNowMs } from "../redis/server-info.ts";
import { type History, history } from "../scripts/ledger.ts";
import { monthsOf } from "./account-usage.ts";
import { type CreditColumn, createStatement, type Statement } from "./statement-sums.ts";
import { dayStartMs, monthBounds } from "./usage.ts";
import { countUsage, type UsageNumbers, usageByDay } from "./usage-rollups.ts";

// A month of an account with many entries. Its credits are those that ROLLUP has counted and the entries behind its cursor; what was paid is
// read of the grants, which the account's references name. Equal to following all entries, or not answered.

export interface AccountPlace {
  redis: Redis;
  partition: number;
  accountId: string;
  /** Entries and records that may still be read. */
  budget: { left: number };
}

/** Of all accounts of a call; some seconds. */
export const LOOKED_AT_MAX = 200_000;
/** Half a millisecond of Redis. */
const SLICE = 50;

/** ROLLUP may count entries of the account while its records are read. */
const TRIES_MAX = 3;
/** More are dearer than to follow the entries. */
const REFERENCES_MAX = 5000;

/**
 * @returns undefined where the roll-up does not have everything, or changes too often
 */
export async function rolledStatement(place: AccountPlace, month: string): Promise<Statement | undefined> {
  const { redis, partition, accountId, budget } = place;
  const months = monthsOf(await storeNowMs(redis), `${month}-01`, undefined);
  if (months[0] !== month) return undefined;
  const fields = (await countUsage(redis, partition, accountId, months)).reduce((sum, one) => sum + one, 0);
  for (let tries = 0; tries < TRIES_MAX && fields <= budget.left; tries++) {
    budget.left -= fields;
    const counted = await cursorOf(place);
    if (counted === undefined) return undefined;
    const found = await addedUp(place, { months, counted });
    if (found) return found;
  }
  return undefined;
}

/** The last entry that ROLLUP has counted, if it has counted all since the first and none has left. */
async function cursorOf({ redis, partition }: AccountPlace): Promise<string | undefined> {
  const { rolled, trimmed } = partitionNames(partition);
  const [since, entry] = await redis.hmget(rolled, "since", "entry");
  if (since !== "0" || typeof entry !== "string" || (await redis.exists(trimmed)) !== 0) return undefined;
  return entry;
}

/** @returns undefined if ROLLUP has counted entries of the account meanwhile, or a grant is not found */
async function addedUp(
  place: AccountPlace,
  { months, counted }: { months: readonly string[]; counted: string },
): Promise<Statement | undefined> {
  const { redis, partition, accountId } = place;
  const [month = ""] = months;
  const { first, next } = monthBounds(month);
  const period = { fromMs: dayStartMs(first), toMs: dayStartMs(next) };
  const statement = createStatement(period);
  let granted = 0;
  for (const one of months)
    for (const [day, numbers] of await usageByDay(redis, { partition, accountId, month: one })) {
      const credits = creditsOf(numbers);
      statement.addDay(day, credits);
      if (one === month) granted += credits.purchases + credits.trials + credits.goodwill;
    }
  // In this order: an entry that is counted afterwards is behind `since`, and before `last`.
  const since = await cursorOf(place);
  const { last_entry: last = "" } = moneyOf(
    await redis.hget(accountNames(partition, accountId).account, "money"),
  );
  const { ledger } = partitionNames(partition);
  const [newest] = last === "" ? [] : await redis.xrange(ledger, last, last);
  if (since === undefined || !newest) return undefined;
  // While the clock of Redis was ahead, ROLLUP counted in months that are not read. Ids never go back.
  if (dayText(msOf(last)).slice(0, 7) > months.at(-1)!) return undefined;
  for await (const page of entriesBack(place, last, period.fromMs, month)) {
    if (page.outcome !== "read") return undefined;
    for (const entry of page.entries.filter(({ streamId }) => isLater(streamId, counted))) {
      if (!isLater(entry.streamId, since)) return undefined;
      statement.add(entry);
    }
    if (page.next === "" || !isLater(page.next, counted)) break;
  }
  if (granted > 0) {
    const grants = await grantsOf(place, period, counted);
    if (grants?.reduce((sum, { amount }) => sum + amount, 0) !== granted) return undefined;
    for (const grant of grants) statement.addPaid(grant);
  }
  return statement.end(ledgerEntry(partition, newest).balanceAfter);
}

export const creditsOf = (numbers: UsageNumbers): Record<CreditColumn, number> => ({
  purchases: numbers.purchased,
  trials: numbers.trials,
  goodwill: numbers.goodwill,
  charges: numbers.charged,
  refunds: numbers.refunded,
  adjustments: numbers.adjusted,
  reversals: numbers.reversed,
});

const GRANT = /^(trial |goodwill )?\d+$/;

/** Grants of a period up to an entry, each once, by the account's references; the index may lack some. */
async function grantsOf(
  { redis, partition, accountId, budget }: AccountPlace,
  { fromMs, toMs }: { fromMs: number; toMs: number },
  until: string,
): Promise<LedgerEntry[] | undefined> {
  const { references } = accountNames(partition, accountId);
  const count = await redis.hlen(references);
  if (count > REFERENCES_MAX) return undefined;
  budget.left -= count;
  const named = new Set<string>();
  for await (const flat of redis.hscanStream(references, { count: 500 }) as AsyncIterable<string[]>) {
    for (const [reference, value] of pairsOf(flat)) if (GRANT.test(value)) named.add(reference);
  }
  const grants: LedgerEntry[] = [];
  for (const page of pages([...named])) {
    const texts = await many<(string | null)[], string>(redis, page, (pipe, reference) => {
      const { name, field } = referencePlace(partition, reference);
      return pipe.hmget(name, field, `${field} ${accountId}`);
    });
    const ids = texts.flatMap(([listed, beyond]) => entryOfPlaces(accountId, listed, beyond) ?? []);
    const entries = await many<StreamEntry[], string>(redis, ids, (pipe, id) =>
      pipe.xrange(partitionNames(partition).ledger, id, id),
    );
    for (const entry of entries.flatMap(([one]) => (one ? [ledgerEntry(partition, one)] : []))) {
      const isGrant = ["purchase", "trial", "goodwill"].includes(kindOf(entry));
      const isDue = entry.atMs >= fromMs && entry.atMs < toMs && !isLater(entry.streamId, until);
      if (isGrant && isDue && entry.accountId === accountId && named.delete(entry.reference))
        grants.push(entry);
    }
  }
  return grants;
}

/** An account's entries from one on, newest first, in slices. @throws OperatorError `unavailable` if the budget is spent */
export async function* entriesBack(
  { redis, partition, accountId, budget }: AccountPlace,
  from: string,
  fromMs: number,
  month: string,
): AsyncGenerator<History> {
  for (let next = from; next !== ""; ) {
    if (budget.left <= 0) throw tooMuch(month);
    const bounds = { lookedAtMax: SLICE, answeredMax: SLICE };
    const page = await scriptsOf(redis).run(history, { partition, accountId, from: next, fromMs, ...bounds });
    budget.left -= SLICE;
    yield page;
    next = page.outcome === "left" ? "" : page.next;
  }
}

const tooMuch = (month: string): OperatorError =>
  new OperatorError(
    `Redis has more than ${LOOKED_AT_MAX} entries of these accounts since ${month}; ask for fewer accounts, or set up an archive`,
    "unavailable",
  );
