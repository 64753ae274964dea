import { expect, test } from "vitest";
import { isMet, judge, type Measured, quantile } from "../../attack/criteria.ts";
import type { Sample } from "../../attack/honest.ts";
import { page, unmetLines, withRecorded } from "../../attack/report.ts";

const MIB = 1024 * 1024;

const sample = (changes: Partial<Sample> = {}): Sample => ({
  kind: "credits",
  dueMs: 0,
  tookMs: 5,
  lateMs: 0,
  status: 200,
  reason: "",
  ...changes,
});

/** An attack that changed nothing. */
const measured = (changes: Partial<Measured> = {}): Measured => ({
  name: "some-attack",
  title: "some bytes are sent",
  sent: { requests: 1000, bytes: 43_000, connections: 10, answers: { "401": 990 }, checks: [] },
  attackSeconds: 5,
  baseline: Array.from({ length: 100 }, () => sample()),
  during: Array.from({ length: 100 }, () => sample()),
  residentBytes: { before: 100 * MIB, peak: 150 * MIB, after: 120 * MIB },
  recoverySeconds: 0.4,
  money: { videos: 3, charges: 3, freeVideos: [], chargesWithoutVideo: [] },
  livez: { requests: 20, failed: 0, slowestMs: 3 },
  alive: true,
  ...changes,
});

const unmet = (changes: Partial<Measured>): string[] =>
  judge(measured(changes))
    .filter(({ met }) => !met)
    .map(({ name, figure }) => `${name}: ${figure}`);

test("an attack that changes nothing meets all criteria", () => {
  expect(isMet(measured())).toBe(true);
});

const two = [sample({ tookMs: 151 }), sample({ tookMs: 400 })];
const rest = Array.from({ length: 98 }, () => sample());
const busy = sample({ kind: "poll", status: 503, reason: '{"code":503,"msg":"The service is busy"}' });

test.each<[string, Partial<Measured>, string]>([
  ["late answers", { during: [...rest, ...two] }, "honest p99 at most 150 ms: 151 ms of 100 requests"],
  [
    "a refusal",
    { during: [...rest, busy] },
    "no honest request refused: 1: 1 × poll 503 (The service is busy)",
  ],
  [
    "no answer",
    { during: [...rest, sample({ status: 0, reason: "ECONNRESET" })] },
    "no honest request refused: 1: 1 × credits no answer (ECONNRESET)",
  ],
  [
    "memory",
    { residentBytes: { before: 100 * MIB, peak: 301 * MIB, after: 100 * MIB } },
    "resident memory at most 200 MiB above idle: 201 MiB above",
  ],
  ["no recovery", { recoverySeconds: undefined }, "everything back within 10 s: not back"],
  ["a late recovery", { recoverySeconds: 10.2 }, "everything back within 10 s: 10.2 s"],
  [
    "a free video",
    { money: { videos: 4, charges: 3, freeVideos: ["task_1"], chargesWithoutVideo: [] } },
    "no free video: 1 of 4 videos",
  ],
  [
    "a charge without a video",
    { money: { videos: 2, charges: 3, freeVideos: [], chargesWithoutVideo: ["task_1"] } },
    "no charge without a video: 1 of 3 charges",
  ],
  [
    "a process that ended",
    { alive: false },
    "`/livez` answers and the process lives: 0 of 20 failed, slowest 3 ms",
  ],
  [
    "a check of the attack itself",
    {
      sent: {
        ...measured().sent,
        checks: [{ what: "all are refused", met: false, figure: "2 answered 200" }],
      },
    },
    "all are refused: 2 answered 200",
  ],
])("%s alone makes it unmet, and is named with its figure", (_what, changes, line) => {
  expect(unmet(changes)).toEqual([line]);
});

test("honest requests that were as late without the attack are not held against it; later ones are", () => {
  const baseline = [...rest, ...two];
  expect(unmet({ baseline, during: [...rest, sample({ tookMs: 151 }), sample({ tookMs: 400 })] })).toEqual(
    [],
  );
  expect(unmet({ baseline, during: [...rest, sample({ tookMs: 152 }), sample({ tookMs: 400 })] })).toEqual([
    "honest p99 at most 150 ms: 152 ms of 100 requests, 151 ms alone",
  ]);
});

test("a machine on which the honest customer waits long without an attack excuses nothing beyond a bound", () => {
  const baseline = [...rest, sample({ tookMs: 2000 }), sample({ tookMs: 2000 })];
  const during = (tookMs: number) => [...rest, sample({ tookMs }), sample({ tookMs: 2000 })];
  expect(unmet({ baseline, during: during(300) })).toEqual([]);
  expect(unmet({ baseline, during: during(301) })).toEqual([
    "honest p99 at most 150 ms: 301 ms of 100 requests, 2000 ms alone",
  ]);
});

test("an attack without an honest request proves nothing", () => {
  expect(unmet({ during: [] })).toHaveLength(2);
});

test("a quantile is one of the values, rounded up", () => {
  expect([quantile([3, 1, 2], 0.5), quantile([3, 1, 2], 0.99), quantile([], 0.99)]).toEqual([2, 3, 0]);
});

test("the page names what is unmet, and every attack has a row, a section and its figures", () => {
  const failed = measured({ name: "bad-attack", recoverySeconds: undefined });
  const bug = { name: "some bug", attack: "some-attack", met: true, figure: "all are refused: 2 answered" };
  const missed = { ...bug, name: "another bug", met: false };
  const text = page([measured(), failed], [bug, missed], {
    seed: 7,
    commit: "abc",
    node: "Node 1",
    redis: "redis-server 7",
    machine: "2 cores",
    load: [1, 2],
    minutes: 3,
  });
  expect(text).toContain("**Not met in: `bad-attack`, `another bug`.**");
  expect(text).toContain(
    "| [some-attack](#some-attack) | 5 ms | 5 ms | 0 of 100 | 100, 150, 120 | 0.4 s | 0 | 0 | met |",
  );
  expect(text).toContain("Sent in 5.0 s: 1,000 requests, 43,000 bytes, 10 connections. Answered: 990 × 401.");
  expect(text).toContain("## bad-attack");
  expect(text).toContain("| some bug | [some-attack](#some-attack) | caught | all are refused: 2 answered |");
  expect(unmetLines([measured(), failed])).toEqual([
    "bad-attack: not met: everything back within 10 s: not back",
  ]);
});

test("attacks that ran alone replace theirs on the page or come after the others, and leave the rest", () => {
  const circumstances = { seed: 1, commit: "abc", node: "", redis: "", machine: "", minutes: 1 };
  const first = [measured({ name: "one", title: "first run" }), measured({ name: "two", title: "stays" })];
  const before = page(first, [], { ...circumstances, load: [0, 0] });
  const again = [measured({ name: "one", title: "again" }), measured({ name: "three", title: "new" })];
  const after = withRecorded(before, again, [], { seed: 7, commit: "def" });
  expect(after.match(/^## .*$/gm)).toEqual(["## Seeded bugs", "## one", "## two", "## three"]);
  expect(after.match(/^\| \[\w+\]/gm)).toEqual(["| [one]", "| [two]", "| [three]"]);
  expect(after).not.toContain("First run");
  for (const kept of ["Again. Run alone: seed 7, commit def.", "Stays.", "| seed | 1 |"])
    expect(after).toContain(kept);
  expect(withRecorded(after, [], [], { seed: 7, commit: "def" })).toBe(after);
});

test("seeded bugs that ran alone replace theirs on the page or come after the others", () => {
  const circumstances = { seed: 1, commit: "abc", node: "", redis: "", machine: "", minutes: 1 };
  const bug = { attack: "some-attack", met: true, figure: "2 answered" };
  const before = page([measured()], [{ ...bug, name: "first" }], { ...circumstances, load: [0, 0] });
  const caught = [
    { ...bug, name: "first", met: false },
    { ...bug, name: "second" },
  ];
  const after = withRecorded(before, [], caught, { seed: 7, commit: "def" });
  expect(after.match(/^\| (first|second) .*$/gm)).toEqual([
    "| first | [some-attack](#some-attack) | **not caught** | 2 answered |",
    "| second | [some-attack](#some-attack) | caught | 2 answered |",
  ]);
  expect(withRecorded(after, [], [], { seed: 7, commit: "def" })).toBe(after);
});
