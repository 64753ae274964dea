import { setTimeout } from "node:timers/promises";
import { accountNames, keyNames, requestName } from "../records/names.ts";
import { pairsOf } from "../redis/pipelines.ts";
import { scriptsOf } from "../redis/script-runner.ts";
import type { LedgerPart } from "../scripts/ledger.ts";
import { type AccountSnapshot, FIRST_SLICE, type SlicePlace, snapshot } from "../scripts/snapshot.ts";
import { holding } from "../scripts/surveys.ts";
import { createCharges, partsOf } from "./charges.ts";
import { type AccountFold, emptyAccount, type Invariant, isCharged, resumeAt } from "./fold.ts";
import { type AccountPlace, createKeyCheck, type SliceHolds } from "./key-check.ts";
import { numbersOf } from "./usage.ts";
import { type Run, readConsistently, readRequests } from "./verify-run.ts";

const PAGE = 500;
/** Then only the number of references is compared. */
const REFERENCE_TRIES_MAX = 5;
const HELD_TRIES_MAX = 5;
/** GATHER may be adding missing slots. */
const GATHER_TRIES_MAX = 4;
const GATHER_MS = 500;
const MISSING_MAX = 1000;

type Add = (part: LedgerPart) => Promise<void>;

/** Checks an account while it changes, at one instant or slice by slice. Invariants 1, 3 and 4. Decision 0064. */
export async function checkAccount(run: Run, place: AccountPlace, add: Add): Promise<void> {
  const { fold, accountId, report } = place;
  const { first, referenced } = await readFirst(run, place, add);
  if (first.checkpoint) resumeAt(fold, accountId, first.checkpoint, report);
  checkNumbers(place, first, referenced, fold.accounts.get(accountId) ?? emptyAccount());
  const checkKeys = createKeyCheck(place);
  const holds: SliceHolds = { held: 0, stray: 0 };
  const slots = emptySlots();
  let slice = first;
  let stoodStill = true;
  for (;;) {
    const { held, stray } = await checkKeys(slice);
    holds.held += held;
    holds.stray += stray;
    addSlots(slots, slice);
    stoodStill &&= stateOf(slice) === stateOf(first);
    if (!slice.next) break;
    await run.step();
    slice = await takeSlice(run, place, add, slice.next);
  }
  const held = Number(first.account.held ?? 0);
  if (!first.next) compareHeld(place, held, holds.held);
  else if (!stoodStill || held !== holds.held) await checkHeld(run, place, add, holds.stray);
  await checkAccountSlots(run, place, slots, first, slice);
}

/** For later readings of a large ledger: only the charges of bound requests. */
export async function checkCharges(run: Run, place: AccountPlace, add: Add): Promise<void> {
  const { fold, accountId, report } = place;
  let from: SlicePlace | undefined = FIRST_SLICE;
  while (from) {
    const slice = await takeSlice(run, place, add, from);
    for (const { id, record } of slice.keys.flatMap(({ requests }) => requests)) {
      if (record.state === "bound" && record.uncollected === undefined && !isCharged(fold, id))
        report("requests", accountId, "is bound, but was never charged", id);
    }
    await run.step();
    from = slice.next;
  }
}

/** Reads a slice at one instant and the ledger up to it. */
export async function takeSlice(
  run: Pick<Run, "step">,
  { redis, partition, accountId, fold }: AccountPlace,
  add: Add,
  from: SlicePlace = FIRST_SLICE,
): Promise<AccountSnapshot> {
  for (;;) {
    const call = { partition, accountId, after: fold.lastId, from };
    const reply = await scriptsOf(redis).run(snapshot, call);
    await add(reply.tail);
    if (reply.outcome === "seen") return reply;
    await run.step();
  }
}

async function readFirst(run: Run, place: AccountPlace, add: Add) {
  for (let tries = 1; ; tries++) {
    const first = await takeSlice(run, place, add);
    const referenced = await sumReferences(run, place, first.references);
    if (referenced !== undefined || tries === REFERENCE_TRIES_MAX) return { first, referenced };
  }
}

/** A scan that finds as many as the snapshot counted found the same ones. @returns undefined if references changed since */
export async function sumReferences(
  run: Pick<Run, "step">,
  { redis, partition, accountId }: AccountPlace,
  counted: number,
): Promise<number | undefined> {
  const { references } = accountNames(partition, accountId);
  const parts = partsOf(counted);
  let [found, sum] = [0, 0];
  for (let part = 0; part < parts; part++) {
    /** A scan may return one twice. */
    const seen = createCharges({ part, parts });
    let cursor = "0";
    do {
      const [next, page] = await redis.hscan(references, cursor, "COUNT", PAGE);
      cursor = next;
      for (const [reference, value] of pairsOf(page)) {
        if (!seen.concerns(reference) || seen.get(reference) !== undefined) continue;
        // References of adjustments and refunds have no number.
        const credits = Number(value) || 0;
        seen.set(reference, credits);
        sum += credits;
        found++;
      }
      if (cursor !== "0") await run.step();
    } while (cursor !== "0");
  }
  return found === counted ? sum : undefined;
}

function checkNumbers(
  { accountId, report }: AccountPlace,
  { account, references, reversed, checkpoint }: AccountSnapshot,
  referenced: number | undefined,
  inLedger: AccountFold,
): void {
  const complain = (invariant: Invariant, message: string): void => report(invariant, accountId, message);
  const { balance, held, total_used: totalUsed } = numbersOf(["balance", "held", "total_used"], account);
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
  const { forgotten = 0, forgotten_credits: forgottenCredits = 0 } = checkpoint ?? {};
  const times = inLedger.references - forgotten;
  const sum = inLedger.referenced - forgottenCredits;
  if (references !== times || (referenced ?? sum) !== sum) {
    complain(
      "references",
      `${references} of ${referenced ?? "unknown"} credits, in the ledger ${times} of ${sum}`,
    );
  }
  if (reversed !== inLedger.reversed)
    complain(
      "references",
      `${reversed} credits of grants are noted as reversed, in the ledger ${inLedger.reversed}`,
    );
  if (held > balance) complain("held", `${held} held of a balance of ${balance}`);
}

const stateOf = ({ account }: AccountSnapshot): string =>
  `${account.held} ${account.total_requests} ${account.last_entry}`;

/** If the account changed between slices, HOLDING adds up at one instant, or slices until two agree. @param stray holds it does not count */
async function checkHeld(run: Run, place: AccountPlace, add: Add, stray: number): Promise<void> {
  const reply = await scriptsOf(place.redis).run(holding, place);
  if (reply.outcome === "read") return compareHeld(place, reply.held, reply.holds + stray);
  let wrongBy = 0;
  for (let tries = 0; tries < HELD_TRIES_MAX; tries++) {
    const sum = await addUpHolds(run, place, add);
    if (!sum) continue;
    const { held, holds } = sum;
    if (held === holds) return;
    if (held - holds === wrongBy) return compareHeld(place, held, holds);
    wrongBy = held - holds;
  }
}

function compareHeld({ accountId, report }: AccountPlace, held: number, holds: number): void {
  if (held !== holds) report("held", accountId, `stored ${held}, its open holds make ${holds}`);
}

/** @returns undefined if the account changed meanwhile */
async function addUpHolds(run: Run, place: AccountPlace, add: Add) {
  const first = await takeSlice(run, place, add);
  let [slice, holds] = [first, 0];
  for (;;) {
    for (const { record } of slice.keys.flatMap(({ requests }) => requests))
      if (record.state === "held") holds += Number(record.price);
    if (stateOf(slice) !== stateOf(first)) return undefined;
    if (!slice.next) return { held: Number(first.account.held ?? 0), holds };
    await run.step();
    slice = await takeSlice(run, place, add, slice.next);
  }
}

interface AccountSlots {
  shared: number;
  /** Requests without an account slot although the account has limits. */
  missing: { id: string; keyId: string }[];
}

const emptySlots = (): AccountSlots => ({ shared: 0, missing: [] });

function addSlots(slots: AccountSlots, { account, keys }: AccountSnapshot): void {
  for (const { keyId, requests } of keys)
    for (const { id, isShared } of requests) {
      if (isShared) slots.shared++;
      else if (account.limited !== undefined && slots.missing.length < MISSING_MAX)
        slots.missing.push({ id, keyId });
    }
}

async function checkAccountSlots(
  run: Run,
  place: AccountPlace,
  { shared, missing }: AccountSlots,
  first: AccountSnapshot,
  last: AccountSnapshot,
): Promise<void> {
  const { redis, partition, accountId, report } = place;
  for (const { id } of await stillMissing(place, missing))
    report("slots", accountId, "has a slot of its key, but none of its account", id);
  const isRight = first === last && last.slots === (last.account.limited === undefined ? 0 : shared);
  if (isRight || last.slots === 0) return;
  const { slots } = accountNames(partition, accountId);
  for await (const ids of redis.sscanStream(slots, { count: PAGE }) as AsyncIterable<string[]>) {
    const records = await readRequests(redis, partition, ids);
    const items = ids.map((id, at) => ({ id, keyId: records[at]!.key_id ?? "" }));
    for (const [at, still] of (await readSlots(place, items)).entries())
      if (still?.ofAccount && !(still.isLimited && still.ofKey))
        report("slots", accountId, "has a slot of its account, but of none of its keys", ids[at]);
    await run.step();
  }
}

async function stillMissing(place: AccountPlace, missing: AccountSlots["missing"]) {
  let left = missing;
  for (let tries = 1; left.length > 0 && tries <= GATHER_TRIES_MAX; tries++) {
    const found = await readSlots(place, left);
    left = left.filter((_, at) => found[at]?.isLimited && !found[at].ofAccount && found[at].ofKey);
    if (left.length > 0 && tries < GATHER_TRIES_MAX) await setTimeout(GATHER_MS);
  }
  return left;
}

/** Which slots these requests have; undefined where a request or the account's limits changed meanwhile. */
async function readSlots(
  { redis, partition, accountId }: AccountPlace,
  requests: readonly { id: string; keyId: string }[],
) {
  const { account, slots } = accountNames(partition, accountId);
  const found = await readConsistently<[0 | 1, 0 | 1, 0 | 1, 0 | 1], (typeof requests)[number]>(
    redis,
    requests,
    ({ id }) => requestName(partition, id),
    (pipe, { id, keyId }) =>
      pipe
        .hexists(account, "limited")
        .sismember(slots, id)
        .sismember(keyNames(partition, keyId).slots, id)
        .hexists(account, "limited"),
  );
  return found.map((still) => {
    const [, limited, ofAccount, ofKey, limitedAfter] = still ?? [];
    if (limited !== limitedAfter || !still) return undefined;
    return { isLimited: limited === 1, ofAccount: ofAccount === 1, ofKey: ofKey === 1 };
  });
}
