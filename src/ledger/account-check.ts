import type { Redis } from "ioredis";
import { accountNames } from "../store/names.ts";
import type { RequestRecord } from "../store/records.ts";
import { scriptsOf } from "../store/script-runner.ts";
import type { LedgerPart } from "../store/scripts/entries.ts";
import { type AccountSnapshot, type KeySnapshot, snapshot } from "../store/scripts/snapshot.ts";
import { type AccountFold, dayOf, type Invariant, type LedgerFold, type Report } from "./fold.ts";

const WINDOW_MS = 60_000;
/** References read at a time: less than a millisecond of Redis. */
const REFERENCES_PAGE = 1000;

/** Everything of one account at one instant, with the ledger of its partition from `after` up to that instant. */
export type Snapshot = AccountSnapshot & { tail: LedgerPart };

/**
 * Reads an account at one instant, however fast it changes; traffic goes on meanwhile.
 * @param fold read up to here; while entries after it fill a page, they are handed to `passed`
 */
export async function takeSnapshot(
  redis: Redis,
  partition: number,
  accountId: string,
  fold: LedgerFold,
  passed: (part: LedgerPart) => Promise<void>,
): Promise<Snapshot> {
  for (;;) {
    const reply = await scriptsOf(redis).run(snapshot, { partition, accountId, after: fold.lastId });
    if (reply.outcome === "seen") return reply;
    await passed(reply.tail);
  }
}

/**
 * The credits of grants under an account's references at the instant of a snapshot, read afterwards in pages. References are added,
 * and, with an archive, forgotten after 400 days; a scan returns every reference that exists from its beginning to its end. A scan that returns
 * as many as the snapshot counted has therefore found the same ones.
 * @returns undefined if references were added or forgotten since
 */
export async function sumReferences(
  redis: Redis,
  partition: number,
  accountId: string,
  counted: number,
): Promise<number | undefined> {
  const { references } = accountNames(partition, accountId);
  /** A scan may show one twice. */
  const seen = new Set<string>();
  let sum = 0;
  for await (const page of redis.hscanStream(references, { count: REFERENCES_PAGE }) as AsyncIterable<
    string[]
  >) {
    for (let at = 0; at + 1 < page.length; at += 2) {
      const reference = page[at] ?? "";
      // Those of adjustments and refunds are no numbers.
      if (!seen.has(reference)) sum += Number(page[at + 1]) || 0;
      seen.add(reference);
    }
  }
  return seen.size === counted ? sum : undefined;
}

/**
 * Compares an account with the ledger as it was at the instant of the snapshot. Invariants 1, 3 and 4.
 * @param referenced credits under its references at that instant; undefined if that is not known
 */
export function checkSnapshot(
  accountId: string,
  seen: AccountSnapshot,
  referenced: number | undefined,
  fold: LedgerFold,
  inLedger: AccountFold,
  report: Report,
): void {
  const { account, references, keys } = seen;
  const complain = (invariant: Invariant, message: string): void => report(invariant, accountId, message);
  const [balance, held, totalUsed] = [account.balance, account.held, account.total_used].map((v) =>
    Number(v ?? 0),
  );

  if (account.balance === undefined) complain("accounts", "is listed, but has no balance");
  if (balance !== inLedger.balance)
    complain("balance", `stored ${balance}, by the ledger ${inLedger.balance}`);
  if (totalUsed !== inLedger.consumed - inLedger.refunded) {
    const { consumed, refunded } = inLedger;
    complain("total_used", `stored ${totalUsed}, by the ledger ${consumed} consumed, ${refunded} refunded`);
  }
  if ((account.last_entry ?? "") !== inLedger.last) {
    complain("chain", `stored ${account.last_entry ?? "none"} as last entry, by the ledger ${inLedger.last}`);
  }
  const { forgotten = 0, forgotten_credits: forgottenCredits = 0 } = seen.checkpoint ?? {};
  const times = inLedger.references - forgotten;
  const sum = inLedger.referenced - forgottenCredits;
  if (references !== times || (referenced ?? sum) !== sum) {
    complain(
      "references",
      `${references} of ${referenced ?? "unknown"} credits, in the ledger ${times} of ${sum}`,
    );
  }

  let holds = 0;
  for (const key of keys) holds += checkKey(accountId, key, seen, fold, report);
  checkAccountSlots(accountId, seen, report);
  if (held !== holds) complain("held", `stored ${held}, its open holds make ${holds}`);
  if (held! > balance!) complain("held", `${held} held of a balance of ${balance}`);
}

/** The slots of an account with limits over all its keys are those of its keys; others have none of their own. */
function checkAccountSlots(
  accountId: string,
  { account, keys, slots }: AccountSnapshot,
  report: Report,
): void {
  const open = account.limited === undefined ? [] : keys.flatMap((key) => key.slots);
  const extra = slots.filter((id) => !open.includes(id));
  const missing = open.filter((id) => !slots.includes(id));
  for (const id of extra)
    report("slots", accountId, "has a slot of its account, but of none of its keys", id);
  for (const id of missing) report("slots", accountId, "has a slot of its key, but none of its account", id);
}

/** @returns credits held through this key */
function checkKey(
  accountId: string,
  key: KeySnapshot,
  seen: AccountSnapshot,
  fold: LedgerFold,
  report: Report,
): number {
  const { keyId, record } = key;
  const day = Number(record.day ?? -1);
  const known = fold.daily.get(keyId);
  let today = known?.day === day ? known.count : 0;
  let holds = 0;
  const open: RequestRecord[] = [];
  for (const id of key.slots) {
    const request = seen.requests.get(id) ?? {};
    const complain = (invariant: Invariant, message: string): void =>
      report(invariant, accountId, message, id);
    if (request.state !== "held" && request.state !== "bound") {
      complain("slots", `has a slot of ${keyId}, but is ${request.state ?? "unknown"}`);
      continue;
    }
    if (request.key_id !== keyId)
      complain("slots", `has a slot of ${keyId}, but belongs to ${request.key_id}`);
    if (request.account_id !== accountId) complain("requests", `belongs to account ${request.account_id}`);
    if (request.state === "held") {
      holds += Number(request.price);
      if (dayOf(request.admitted_at ?? "") === day) today++;
    }
    if (request.state === "bound" && request.uncollected === undefined && !fold.charged.has(id)) {
      complain("requests", "is bound, but was never charged");
    }
    if (request.key_id === keyId) open.push(request);
  }
  if (today > Number(record.day_count ?? 0)) {
    report("day_count", accountId, `${keyId}: ${record.day_count ?? 0} counted, at least ${today} admitted`);
  }
  checkWindow(accountId, key, open, report);
  checkLimits(accountId, key, open, report);
  return holds;
}

/**
 * Checks the limits of the key's latest admission, which may differ from those in force. Requests that were bound after
 * their hold was void may exceed them; BIND counts those of the day.
 */
function checkLimits(accountId: string, key: KeySnapshot, open: RequestRecord[], report: Report): void {
  const { keyId, record } = key;
  // A later release may have further limits, whose numbers stand behind these.
  const [, rate, concurrent, daily, shadow = ""] =
    /^(\d+) (\d+) (\d+)(?: \d+)*([a-z]*)$/.exec(record.limits ?? "") ?? [];
  if (rate === undefined) {
    if (record.limits !== undefined)
      report("window", accountId, `${keyId}: its limits cannot be read: ${JSON.stringify(record.limits)}`);
    return;
  }
  const compare = (
    invariant: Invariant,
    letter: string,
    what: string,
    counted: number,
    limit: number,
  ): void => {
    if (counted <= limit || shadow.includes(letter)) return;
    report(invariant, accountId, `${keyId}: ${counted} ${what}, ${limit} were allowed`);
  };
  const live = key.window.filter((stamp) => Number(stamp) > Number(record.clock_ms) - WINDOW_MS);
  compare("window", "r", "admitted in 60 s", live.length, Number(rate));
  const late = record.late_day === record.day ? Number(record.late_count ?? 0) : 0;
  compare("day_count", "d", "admitted in a day", Number(record.day_count) - late, Number(daily));
  compare("slots", "c", "open at a time", open.filter(wasAdmitted).length, Number(concurrent));
}

/** Not one that was void before its task came, nor one that the store had forgotten. */
const wasAdmitted = ({ admitted_at, reason }: RequestRecord): boolean =>
  admitted_at !== undefined && reason === undefined;

/** In the last 60 s up to this moment. */
const isWithin = (stamp: number, clockMs: number): boolean => stamp > clockMs - WINDOW_MS && stamp <= clockMs;

function checkWindow(accountId: string, key: KeySnapshot, open: RequestRecord[], report: Report): void {
  const { keyId, record } = key;
  const stamps = key.window.map(Number);
  const clockMs = Number(record.clock_ms ?? 0);
  if (stamps.some((stamp, at) => !(stamp <= (stamps[at - 1] ?? clockMs)))) {
    report("window", accountId, `${keyId}: its stamps are not in order, newest first`);
  }
  const missing = new Map<string, number>();
  for (const request of open) {
    // A request that was void before its task came may have lost its place in the window. A stamp later than the key's clock
    // is from before an operator cleared that clock and the window (decision 0008).
    const stamp = request.admitted_at;
    if (!wasAdmitted(request) || !isWithin(Number(stamp), clockMs)) continue;
    missing.set(stamp!, (missing.get(stamp!) ?? 0) + 1);
  }
  for (const [stamp, admitted] of missing) {
    const counted = key.window.filter((entry) => entry === stamp).length;
    if (counted < admitted) {
      report("window", accountId, `${keyId}: ${admitted} admitted at ${stamp}, ${counted} counted`);
    }
  }
}
