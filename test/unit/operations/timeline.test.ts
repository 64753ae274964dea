import fc from "fast-check";
import { expect, test } from "vitest";
import { type Lane, merged } from "../../../src/operations/accounts/timeline.ts";

type Event = Lane["events"][number];

/** A list that answers pages shorter than asked for, even empty ones, as one does that looks at a bounded number. */
function laneOf(list: readonly Event[], position: string, limit: number, short: number): Lane {
  if (position === "-") return { events: [], next: undefined, positionAt: () => "-" };
  const from = Number(position);
  const events = list.slice(from, from + Math.min(limit, short));
  const end = from + events.length;
  return {
    events,
    next: end < list.length ? String(end) : undefined,
    positionAt: (event) => String(from + event),
  };
}

// Guarantee: what is behind a short page of one list is not overtaken by later events of the other.
test("lists that are read in pages of any size are one list in the order of time", () => {
  const times = fc.array(fc.integer({ min: 0, max: 50 }), { maxLength: 12 });
  const property = fc.property(
    fc.tuple(times, times),
    fc.integer({ min: 1, max: 5 }),
    fc.array(fc.integer({ min: 0, max: 5 }), { minLength: 1, maxLength: 10 }),
    (both, limit, shorts) => {
      const lists = both.map((own) => own.toSorted((a, b) => b - a).map((atMs) => ({ atMs }) as Event));
      const events: Event[] = [];
      let positions = ["0", "0"];
      let reads = 0;
      while (positions.some((position) => position !== "-")) {
        // A page is short for some reads only.
        const short = reads < 100 ? shorts[reads % shorts.length]! : limit;
        reads++;
        const lanes = lists.map((list, at) => laneOf(list, positions[at]!, limit, at === 0 ? short : limit));
        const page = merged(lanes, limit);
        expect(page.events.length).toBeLessThanOrEqual(limit);
        events.push(...page.events);
        positions = page.positions;
      }
      const all = lists.flat().map(({ atMs }) => atMs);
      expect(events.map(({ atMs }) => atMs)).toEqual(all.sort((a, b) => b - a));
      expect(new Set(events).size).toBe(events.length);
    },
  );
  fc.assert(property, { numRuns: 300 });
});
