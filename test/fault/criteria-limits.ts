import { monthOf } from "../../src/domain/moments.ts";
import { countsForEver, type Finding } from "./criteria-money.ts";
import type { ClientEvent } from "./history.ts";
import type { AccountRecord, Ledger, RequestRecord } from "./ledger.ts";

const WINDOW_MS = 60_000;
const DAY_MS = 86_400_000;

/** In no 60 s more admissions than the limit, and the store's window is what the records say. */
export function windowKept({ accounts }: Ledger): Finding {
  const violations: string[] = [];
  let admissions = 0;
  let fullest = 0;
  for (const { keyId, rate_limit, window, clockMs, requests } of accounts) {
    const stamps = stampsOf(requests.filter(countsForEver));
    admissions += stamps.length;
    for (let at = 0; at + rate_limit < stamps.length; at++) {
      const spanMs = stamps[at + rate_limit]! - stamps[at]!;
      if (spanMs < WINDOW_MS) violations.push(`${keyId}: ${rate_limit + 1} admissions within ${spanMs} ms`);
    }
    for (const stamp of stamps) fullest = Math.max(fullest, countIn(stamps, stamp) / rate_limit);
    const left = [...window].sort((a, b) => a - b);
    const wanted = stamps.filter((stamp) => stamp > clockMs - WINDOW_MS);
    const live = left.filter((stamp) => stamp > clockMs - WINDOW_MS);
    if (live.join() !== wanted.join()) {
      violations.push(`${keyId}: ${live.length} live entries in the window, ${wanted.length} admissions`);
    }
    if (left.length > stamps.length)
      violations.push(`${keyId}: ${left.length - stamps.length} entries too many`);
  }
  const share = Math.round(fullest * 100);
  return { figure: `${admissions} admissions, fullest window ${share} % of its limit`, violations };
}

/** 2001 only when the window was full at some moment between question and answer; 2002 and 2003 likewise. */
export function noFalseRefusal({ accounts, generations, history }: Ledger): Finding {
  const violations: string[] = [];
  const byKey = new Map(accounts.map((account) => [account.keyId, occupancyOf(account)]));
  const refused = { 2001: 0, 2002: 0, 2003: 0 };
  for (const event of generations) {
    const account = byKey.get(event.keyId);
    if (!account || (event.code !== 2001 && event.code !== 2002 && event.code !== 2003)) continue;
    refused[event.code]++;
    const from = event.sentMs - history.meta.toleranceMs;
    const to = event.endedMs + history.meta.toleranceMs;
    if (!account.wasFull(event.code, from, to)) {
      violations.push(
        `${event.keyId}: ${event.code} at ${event.sentMs} though there was room (${inWords(event)})`,
      );
    }
  }
  return {
    figure: `${refused[2001]} times 2001, ${refused[2002]} times 2002, ${refused[2003]} times 2003`,
    violations,
  };
}

const inWords = ({ requestId, endedMs, sentMs }: ClientEvent): string =>
  `${requestId}, ${endedMs - sentMs} ms`;

/** Never more tasks at a time, or requests a day, than the key may have. Late bindings may: invariant 3 of docs/ARCHITECTURE.md. */
export function slotsAndDaysKept({ accounts }: Ledger): Finding {
  const violations: string[] = [];
  let late = 0;
  for (const { keyId, max_concurrent, daily_limit, requests, keyDay, dayCount } of accounts) {
    const admitted = requests.filter(({ admitted }) => admitted);
    late += admitted.filter(isLate).length;
    const most = highest(admitted.flatMap((request) => slotSteps(request).slice(0, 2)));
    if (most > max_concurrent)
      violations.push(`${keyId}: ${most} tasks at a time, ${max_concurrent} allowed`);
    for (const [day, own] of Map.groupBy(admitted, dayOf)) {
      const busiest = highest(own.flatMap(daySteps));
      if (busiest > daily_limit)
        violations.push(`${keyId}: ${busiest} requests on day ${day}, ${daily_limit} allowed`);
    }
    const today = admitted.filter((request) => dayOf(request) === keyDay && request.state !== "void");
    if (keyDay >= 0 && dayCount !== today.length) {
      violations.push(`${keyId}: day_count ${dayCount}, ${today.length} requests count`);
    }
  }
  return { figure: `${late} late bindings`, violations };
}

/**
 * A key's credits of the month are what its requests of that month were charged and did not get back; without late bindings
 * never more than its cap.
 */
export function capsKept({ accounts, entries, generations, history }: Ledger): Finding {
  const violations: string[] = [];
  const refunded = new Set(
    entries.filter(({ reason }) => reason === "refund").map(({ requestId }) => requestId),
  );
  // Accounts that another store has lost count nowhere.
  const known = history.forgotten.length === 0 ? accounts : [];
  for (const { keyId, requests, month, spent, monthly_credits = Number.POSITIVE_INFINITY } of known) {
    const own = requests.filter(
      (request) =>
        request.keyId === keyId &&
        request.state !== "void" &&
        !request.uncollected &&
        (request.chargedAgain || !refunded.has(request.id)) &&
        monthOf(request.admitted ? request.admittedMs : request.boundMs) === month,
    );
    const charged = sumOf(own);
    if (spent !== charged) violations.push(`${keyId}: ${spent} spent, ${charged} charged and not refunded`);
    const inTime = sumOf(own.filter((request) => request.admitted && !isLate(request)));
    if (inTime > monthly_credits) violations.push(`${keyId}: ${inTime} spent of ${monthly_credits}`);
  }
  const capped = generations.filter(({ code }) => code === 2006).length;
  return { figure: `${known.length} keys, ${capped} times 2006`, violations };
}

const sumOf = (requests: readonly RequestRecord[]): number =>
  requests.reduce((sum, { price }) => sum + price, 0);

/** Slot sets are empty, nothing is due: all tasks and holds have ended. */
export function slotsFree({ accounts, requests, due }: Ledger): Finding {
  const violations: string[] = [];
  for (const { keyId, slots } of accounts) {
    if (slots.length > 0)
      violations.push(`${keyId}: ${slots.length} slots leaked: ${slots.slice(0, 3).join(", ")}`);
  }
  const open = [...requests.values()].filter(({ state }) => state === "bound");
  for (const { id } of open) violations.push(`${id} never ended`);
  for (const id of due) violations.push(`${id} is still due`);
  return { figure: `${accounts.length} keys`, violations };
}

const isLate = ({ state, voidMs }: RequestRecord): boolean => state !== "void" && voidMs > 0;

const dayOf = ({ admittedMs }: RequestRecord): number => Math.floor(admittedMs / DAY_MS);

const stampsOf = (requests: readonly RequestRecord[]): number[] =>
  requests.map(({ admittedMs }) => admittedMs).sort((a, b) => a - b);

/** How many of the sorted stamps are above a bound: the index of the first. */
function firstAbove(sorted: readonly number[], bound: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle]! > bound) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Entries of the window (at - 60 s, at]. */
const countIn = (sorted: readonly number[], at: number): number =>
  firstAbove(sorted, at) - firstAbove(sorted, at - WINDOW_MS);

/** A step of a count at a moment; ends come before beginnings of the same millisecond. */
interface Step {
  atMs: number;
  by: 1 | -1;
}

function slotSteps(request: RequestRecord): Step[] {
  const { admittedMs, voidMs, boundMs, finishedMs } = request;
  const end = Number.isNaN(voidMs) ? finishedMs : voidMs;
  const steps: Step[] = [{ atMs: admittedMs, by: 1 }];
  if (!Number.isNaN(end)) steps.push({ atMs: end, by: -1 });
  if (isLate(request)) steps.push({ atMs: boundMs, by: 1 }, { atMs: finishedMs, by: -1 });
  return steps;
}

function daySteps({ admittedMs, voidMs }: RequestRecord): Step[] {
  const steps: Step[] = [{ atMs: admittedMs, by: 1 }];
  if (voidMs > 0) steps.push({ atMs: voidMs, by: -1 });
  return steps;
}

/** A late binding takes its place in the day again, above the limit if need be. */
const lateDaySteps = (request: RequestRecord): Step[] =>
  isLate(request) ? [{ atMs: request.boundMs, by: 1 }] : [];

const sorted = (steps: Step[]): Step[] => steps.sort((a, b) => a.atMs - b.atMs || a.by - b.by);

function highest(steps: Step[]): number {
  let now = 0;
  let most = 0;
  for (const { by } of sorted(steps)) {
    now += by;
    most = Math.max(most, now);
  }
  return most;
}

/** Answers whether a limit was reached at some moment; what was taken back later did count while it was there. */
function occupancyOf(account: AccountRecord) {
  const admitted = account.requests.filter((request) => request.admitted);
  const stamps = stampsOf(admitted);
  const slots = timeline(admitted.flatMap(slotSteps));
  const days = new Map(
    [...Map.groupBy(admitted, dayOf)].map(([day, own]) => [
      day,
      timeline(own.flatMap((request) => [...daySteps(request), ...lateDaySteps(request)])),
    ]),
  );
  return {
    wasFull(code: 2001 | 2002 | 2003, fromMs: number, toMs: number): boolean {
      if (code === 2002) return slots(fromMs, toMs) >= account.max_concurrent;
      if (code === 2003) {
        const touched = [fromMs, toMs].map((ms) => days.get(Math.floor(ms / DAY_MS))?.(fromMs, toMs) ?? 0);
        return Math.max(...touched) >= account.daily_limit;
      }
      const inside = stamps.slice(firstAbove(stamps, fromMs), firstAbove(stamps, toMs));
      return [fromMs, ...inside].some((at) => countIn(stamps, at) >= account.rate_limit);
    },
  };
}

/** The highest count between two moments, both included. */
function timeline(steps: Step[]): (fromMs: number, toMs: number) => number {
  const times: number[] = [];
  const counts: number[] = [];
  let now = 0;
  // Beginnings first here: a count that was reached for no whole millisecond was reached.
  for (const { atMs, by } of steps.sort((a, b) => a.atMs - b.atMs || b.by - a.by)) {
    now += by;
    times.push(atMs);
    counts.push(now);
  }
  return (fromMs, toMs) => {
    const first = firstAbove(times, fromMs - 1);
    const last = firstAbove(times, toMs);
    return Math.max(counts[first - 1] ?? 0, ...counts.slice(first, last));
  };
}
