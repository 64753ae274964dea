import type { Redis } from "ioredis";
import { keyNames } from "../records/names.ts";
import { countersOf } from "../records/packed-fields.ts";
import { answersOf, many } from "../redis/pipelines.ts";
import type { AccountSnapshot, KeyPart, SlotRequest } from "../scripts/snapshot.ts";
import { dayOf, type Invariant, isCharged, type LedgerFold, type Report } from "./fold.ts";
import { readRequests } from "./verify-run.ts";

const WINDOW_MS = 60_000;
const PAGE = 200;

export interface AccountPlace {
  redis: Redis;
  partition: number;
  accountId: string;
  fold: LedgerFold;
  report: Report;
}

/** Credits of holds in the slots of a slice, and of those that HOLDING does not count. */
export interface SliceHolds {
  held: number;
  stray: number;
}

interface LongKey {
  keyId: string;
  reported: Set<Invariant>;
  stamps: Map<string, number>;
  open: Map<string, string[]>;
  late: Set<string>;
}

/** Slice by slice. A key over several slices is judged after its last one; missing stamps are read again. */
export function createKeyCheck(place: AccountPlace) {
  let long: LongKey | undefined;
  return async ({ keys, next }: AccountSnapshot): Promise<SliceHolds> => {
    const holds = { held: 0, stray: 0 };
    for (const [at, key] of keys.entries()) {
      const open = checkSlots(place, key, holds);
      if (key.isWhole) {
        checkInstant(place, key, place.report);
        checkWindow(place, key, open);
        checkConcurrent(place, key, open.filter(wasAdmitted).length);
        continue;
      }
      if (long?.keyId !== key.keyId) long = emptyKey(key.keyId);
      addPart(place, long, key, open);
      if (at < keys.length - 1 || next?.slots === "0" || !next) await checkLongKey(place, long, key);
    }
    return holds;
  };
}

const emptyKey = (keyId: string): LongKey => ({
  keyId,
  reported: new Set(),
  stamps: new Map(),
  open: new Map(),
  late: new Set(),
});

function checkSlots(place: AccountPlace, key: KeyPart, holds: SliceHolds): SlotRequest[] {
  const { accountId, fold, report } = place;
  const { keyId, record } = key;
  const day = Number(record.day ?? -1);
  const known = fold.daily.get(keyId);
  let today = known?.day === day ? known.count : 0;
  const open: SlotRequest[] = [];
  for (const slot of key.requests) {
    const { id, record: request } = slot;
    const complain = (invariant: Invariant, message: string): void =>
      report(invariant, accountId, message, id);
    if (request.state !== "held" && request.state !== "bound") {
      complain("slots", `has a slot of ${keyId}, but is ${request.state ?? "unknown"}`);
      continue;
    }
    const isOwn = request.key_id === keyId;
    if (!isOwn) complain("slots", `has a slot of ${keyId}, but belongs to ${request.key_id}`);
    if (request.account_id !== accountId) complain("requests", `belongs to account ${request.account_id}`);
    if (request.state === "held") {
      holds.held += Number(request.price);
      if (!isOwn || !slot.isDue || request.account_id !== accountId) holds.stray += Number(request.price);
      if (dayOf(request.admitted_at ?? "") === day) today++;
    }
    if (request.state === "bound" && request.uncollected === undefined && !isCharged(fold, id)) {
      complain("requests", "is bound, but was never charged");
    }
    if (isOwn) open.push(slot);
  }
  if (today > Number(record.day_count ?? 0)) {
    report("day_count", accountId, `${keyId}: ${record.day_count ?? 0} counted, at least ${today} admitted`);
  }
  return open;
}

/** Compares numbers and stamps of one instant with the limits of the latest admission. BIND counts late requests of the day. */
function checkInstant({ accountId }: AccountPlace, key: KeyPart, report: Report): void {
  const { keyId, record, newer } = key;
  const stamps = key.stamps.map(Number);
  const latest = newer === "" ? Number(record.clock_ms ?? 0) : Number(newer);
  if (stamps.some((stamp, at) => !(stamp <= (stamps[at - 1] ?? latest)))) {
    report("window", accountId, `${keyId}: its stamps are not in order, newest first`);
  }
  const limits = limitsOf(key);
  if (!limits) {
    if (record.limits !== undefined)
      report("window", accountId, `${keyId}: its limits cannot be read: ${JSON.stringify(record.limits)}`);
    return;
  }
  const { rate, daily, shadow } = limits;
  if (key.live > rate && !shadow.includes("r"))
    report("window", accountId, `${keyId}: ${key.live} admitted in 60 s, ${rate} were allowed`);
  const late = record.late_day === record.day ? Number(record.late_count ?? 0) : 0;
  const counted = Number(record.day_count) - late;
  if (counted > daily && !shadow.includes("d"))
    report("day_count", accountId, `${keyId}: ${counted} admitted in a day, ${daily} were allowed`);
}

/** Late BINDs may exceed the limit. */
function checkConcurrent({ accountId, report }: AccountPlace, key: KeyPart, admitted: number): void {
  const { concurrent, shadow } = limitsOf(key) ?? { concurrent: Number.POSITIVE_INFINITY, shadow: "" };
  if (admitted > concurrent && !shadow.includes("c"))
    report("slots", accountId, `${key.keyId}: ${admitted} open at a time, ${concurrent} were allowed`);
}

function limitsOf({ record }: KeyPart) {
  // Later versions may append limits.
  const [, rate, concurrent, daily, shadow = ""] =
    /^(\d+) (\d+) (\d+)(?: \d+)*([a-z]*)$/.exec(record.limits ?? "") ?? [];
  if (rate === undefined) return undefined;
  return { rate: Number(rate), concurrent: Number(concurrent), daily: Number(daily), shadow };
}

const wasAdmitted = ({ record: { admitted_at, reason } }: SlotRequest): boolean =>
  admitted_at !== undefined && reason === undefined;

const isWithin = (stamp: number, clockMs: number): boolean => stamp > clockMs - WINDOW_MS && stamp <= clockMs;

/** Late requests may have no stamp; one after the key's clock is from before an operator reset it (decision 0008). */
const needed = ({ record }: KeyPart, open: readonly SlotRequest[]): [stamp: string, id: string][] =>
  open.flatMap((slot) => {
    const stamp = slot.record.admitted_at ?? "";
    const counts = wasAdmitted(slot) && isWithin(Number(stamp), Number(record.clock_ms ?? 0));
    return counts ? [[stamp, slot.id] as [string, string]] : [];
  });

function checkWindow({ accountId, report }: AccountPlace, key: KeyPart, open: readonly SlotRequest[]): void {
  const missing = new Map<string, number>();
  for (const [stamp] of needed(key, open)) missing.set(stamp, (missing.get(stamp) ?? 0) + 1);
  for (const [stamp, admitted] of missing) {
    const counted = key.stamps.filter((entry) => entry === stamp).length;
    if (counted < admitted) {
      report("window", accountId, `${key.keyId}: ${admitted} admitted at ${stamp}, ${counted} counted`);
    }
  }
}

function addPart(place: AccountPlace, long: LongKey, key: KeyPart, open: readonly SlotRequest[]): void {
  checkInstant(place, key, (invariant, ...found) => {
    if (!long.reported.has(invariant)) place.report(invariant, ...found);
    long.reported.add(invariant);
  });
  // A later stamp stays in the window for longer, so no moment is skipped.
  for (const stamp of key.stamps) {
    if (isWithin(Number(stamp), Number(key.record.clock_ms ?? 0)))
      long.stamps.set(stamp, (long.stamps.get(stamp) ?? 0) + 1);
  }
  for (const [stamp, id] of needed(key, open)) {
    const ids = long.open.get(stamp);
    if (ids) ids.push(id);
    else long.open.set(stamp, [id]);
  }
  for (const slot of open) if (!wasAdmitted(slot)) long.late.add(slot.id);
}

async function checkLongKey(place: AccountPlace, long: LongKey, key: KeyPart): Promise<void> {
  for (const [stamp, ids] of long.open) {
    const distinct = [...new Set(ids)];
    if (distinct.length <= (long.stamps.get(stamp) ?? 0)) continue;
    const missing = await readMoment(place, key.keyId, stamp, distinct);
    if (missing) place.report("window", place.accountId, `${key.keyId}: ${missing}`);
  }
  const { concurrent } = limitsOf(key) ?? { concurrent: Number.POSITIVE_INFINITY };
  if (key.slots - long.late.size <= concurrent) return;
  checkConcurrent(place, key, await countAdmitted(place, key));
}

/** @returns the violation, or undefined */
async function readMoment(
  { redis, partition }: AccountPlace,
  keyId: string,
  stamp: string,
  ids: readonly string[],
): Promise<string | undefined> {
  const { key, window } = keyNames(partition, keyId);
  const states = async () => (await readRequests(redis, partition, ids)).map(({ state }) => state);
  const before = await states();
  const pipe = redis.pipeline().lpos(window, stamp, "COUNT", ids.length).hget(key, "counters");
  const [places, counters] = answersOf<unknown>(await pipe.exec()) as [number[], string | null];
  const after = await states();
  const open = ids.filter((_, at) => isOpen(before[at]) && before[at] === after[at]).length;
  if (places.length >= open || !isWithin(Number(stamp), Number(countersOf(counters).clock_ms ?? 0)))
    return undefined;
  return `${open} admitted at ${stamp}, ${places.length} counted`;
}

export const isOpen = (state: string | null | undefined): boolean => state === "held" || state === "bound";

/** Requests that stay open while all are read were open together. */
async function countAdmitted({ redis, partition }: AccountPlace, { keyId }: KeyPart): Promise<number> {
  const { slots } = keyNames(partition, keyId);
  const admitted = new Set<string>();
  for await (const ids of redis.sscanStream(slots, { count: PAGE }) as AsyncIterable<string[]>) {
    const records = await readRequests(redis, partition, ids);
    for (const [at, { state, admitted_at, reason, key_id }] of records.entries())
      if (isOpen(state) && admitted_at && !reason && key_id === keyId) admitted.add(ids[at]!);
  }
  const open = await many<number, string>(redis, [...admitted], (pipe, id) => pipe.sismember(slots, id));
  return open.filter((one) => one === 1).length;
}
