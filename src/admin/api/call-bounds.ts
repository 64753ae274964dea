import { dropOldest } from "../../domain/bounded.ts";
import { FairGate } from "../../domain/fair-gate.ts";
import { DAY_MS } from "../../domain/moments.ts";
import { Problem } from "./problems.ts";

const RUNNING_MAX = 8;
const WAITING_MAX = 32;

/** @throws Problem `overloaded` for more calls than may run and wait */
export function createCallLimit() {
  const gate = new FairGate({ inFlightMax: RUNNING_MAX, waitingMax: WAITING_MAX });
  return {
    run: <T>(owner: string, work: () => Promise<T>): Promise<T> => gate.run(owner, work, overloaded),
  };
}

const overloaded = (): Problem =>
  new Problem("overloaded", "too many calls at a time", { headers: { "Retry-After": "1" } });

const MINUTE_MS = 60_000;
/** Families that are counted. Operators make the first token of each. */
const FAMILIES_MAX = 10_000;
/** Added to the body of each write, for its audit record. */
const RECORD_BYTES = 512;

interface WriteBounds {
  writesPerMinute: number;
  bytesPerDay: number;
}

/** `ends`: it revokes, suspends or closes, which counts apart from what adds something. */
export type WriteKind = "ends" | "adds";

interface Used {
  minute: Count;
  day: Count;
}
interface Count {
  sum: number;
  sinceMs: number;
}

/** Bounds what tokens of the management API write: a small one must not fill the store. What they refuse does not count. */
export function createWriteBudget(bounds: () => WriteBounds, nowMs: () => number = Date.now) {
  const families = new Map<string, Used>();

  function usedBy(owner: string): Used {
    const now = nowMs();
    const used = families.get(owner) ?? { minute: { sum: 0, sinceMs: now }, day: { sum: 0, sinceMs: now } };
    if (!families.has(owner)) dropOldest(families, FAMILIES_MAX);
    families.set(owner, used);
    if (now - used.minute.sinceMs >= MINUTE_MS) used.minute = { sum: 0, sinceMs: now };
    if (now - used.day.sinceMs >= DAY_MS) used.day = { sum: 0, sinceMs: now };
    return used;
  }

  return {
    /** Counts a write. @param root the first token of the family; undefined: ADMIN_TOKEN, unbounded @throws Problem `too_many_writes` */
    take(root: string | undefined, kind: WriteKind, bodyBytes: number): void {
      if (root === undefined) return;
      const { minute, day } = usedBy(`${kind} ${root}`);
      const { writesPerMinute, bytesPerDay } = bounds();
      const bytes = bodyBytes + RECORD_BYTES;
      if (minute.sum + 1 > writesPerMinute) {
        throw tooMany(`${writesPerMinute} writes a minute`, minute.sinceMs + MINUTE_MS - nowMs());
      }
      if (day.sum + bytes > bytesPerDay) {
        throw tooMany(`${bytesPerDay} bytes a day`, day.sinceMs + DAY_MS - nowMs());
      }
      minute.sum++;
      day.sum += bytes;
    },
  };
}

const tooMany = (bound: string, waitMs: number): Problem =>
  new Problem("too_many_writes", `this token and those made with it may write ${bound}`, {
    headers: { "Retry-After": String(Math.max(1, Math.ceil(waitMs / 1000))) },
  });
