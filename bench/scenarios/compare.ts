import type { Limits } from "../../src/domain/limits.ts";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { type Interval, measure } from "../interval.ts";
import { emptyStore, issueKeys } from "../keys.ts";
import { saturate, type Target, warmUp, writeTargets } from "../load/wrk.ts";
import type { Context, Table } from "../scenario.ts";
import { type RunningSubject, type Subject, warmUpOf } from "../subjects/subject.ts";
import { short } from "../targets.ts";
import type { Tree } from "../tree.ts";

/** Intervals of one scenario that may be measured once more because they were disturbed. */
const REPEATS_MAX = 3;
/** Unless an entry says otherwise. */
const CONNECTIONS = 64;
/** How long a program runs under load before it is measured. */

/** One program under one kind of load. */
export interface Entry {
  /** As the table names it. */
  label: string;
  subject: Subject;
  /** Whose code makes the keys. */
  tree: Tree;
  keys: number;
  limits?: Limits;
  connections?: number;
  /** What is sent, or a file that wrk.lua reads; `running` is there for what must be prepared through it. */
  targets(keys: readonly IssuedKey[], running: RunningSubject): Promise<Target[]> | Target[] | string;
  /** Throws when the answers were not those that are meant. */
  check(interval: Interval, running: RunningSubject): Promise<void> | void;
}

export type Intervals = Map<string, Interval[]>;

/** Every entry once in each round, so that what drifts meets all of them. Redis is empty before each. */
export async function compare(context: Context, entries: readonly Entry[]): Promise<Intervals> {
  const { progress, rounds } = context;
  const intervals: Intervals = new Map(entries.map(({ label }) => [label, []]));
  let repeats = REPEATS_MAX;
  for (let round = 1; round <= rounds; round++) {
    for (const entry of entries) {
      // A busy machine may spoil one altogether; twice is no accident.
      let interval = await once(context, entry).catch((error: Error) => {
        progress(`  once more: ${error.message}`);
        return once(context, entry);
      });
      if (interval.disturbed && repeats > 0) {
        repeats--;
        progress(`  ${entry.label}: once more, ${interval.disturbed}`);
        interval = await once(context, entry);
      }
      intervals.get(entry.label)!.push(interval);
      const { cpuUs, redisCpuUs, requestsPerSecond, disturbed } = interval;
      const cost = `${short(cpuUs)} us, Redis ${short(redisCpuUs)} us, ${requestsPerSecond.toFixed(0)}/s`;
      progress(`  round ${round}, ${entry.label}: ${cost}${disturbed ? `; disturbed: ${disturbed}` : ""}`);
    }
  }
  return intervals;
}

async function once(context: Context, entry: Entry): Promise<Interval> {
  const { world, seconds, warmUpSeconds } = context;
  await emptyStore(world);
  const keys = await issueKeys(entry.tree, world.redis, entry.keys, entry.limits);
  const running = await entry.subject.start(world, keys);
  try {
    const wanted = await entry.targets(keys, running);
    const targets = typeof wanted === "string" ? wanted : writeTargets(world.folder, "targets", wanted);
    const { connections = CONNECTIONS } = entry;
    const load = (length: number) =>
      saturate(world.folder, running.url, targets, { seconds: length, connections });
    await warmUp(load, warmUpOf(entry.subject, warmUpSeconds));
    const interval = await measure(world.calibration, running.pid, world.redisPid, () => load(seconds));
    await entry.check(interval, running);
    return interval;
  } catch (error) {
    throw new Error(`${entry.label}: ${(error as Error).message}`, { cause: error });
  } finally {
    await running.stop();
  }
}

/** The middle one; of an even number the lower of the two. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) / 2)] ?? Number.NaN;
}

/** The median of one figure of an entry; NaN where the entry was not measured. */
export const medianOf = (
  intervals: Intervals,
  label: string,
  figure: (interval: Interval) => number,
): number => median((intervals.get(label) ?? []).map(figure));

export const cpuOf = (interval: Interval): number => interval.cpuUs;
export const redisOf = (interval: Interval): number => interval.redisCpuUs;

/** Throws unless every request was answered, and all of them in the way that is wanted. */
export function requireAnswers({ load }: Interval, wanted: "success" | "refusal"): void {
  const { requests, unsuccessful, broken } = load;
  if (broken === 0 && unsuccessful === (wanted === "refusal" ? requests : 0)) return;
  throw new Error(
    `of ${requests} answers ${unsuccessful} had a status of 400 or more and ${broken} broke; each should be a ${wanted}`,
  );
}

/** One row for each entry: medians over the rounds, and how its cost compares with the first one's. */
export function tableOf(intervals: Intervals): Table {
  const [first] = intervals.keys();
  const base = medianOf(intervals, first!, cpuOf);
  return {
    columns: ["", "CPU us", `${first} is`, "Redis us", "requests/s", "MiB", "CPU us by round"],
    rows: [...intervals].map(([label, rounds]) => [
      label,
      short(median(rounds.map(cpuOf))),
      `${short(base / median(rounds.map(cpuOf)))} x`,
      short(median(rounds.map(redisOf))),
      median(rounds.map((interval) => interval.requestsPerSecond)).toFixed(0),
      (median(rounds.map((interval) => interval.residentBytes)) / 2 ** 20).toFixed(0),
      rounds.map((interval) => short(interval.cpuUs) + (interval.disturbed ? " !" : "")).join(", "),
    ]),
  };
}

/** One line for each disturbed interval. */
export function disturbances(intervals: Intervals): string[] {
  return [...intervals].flatMap(([label, rounds]) =>
    rounds.flatMap(({ disturbed }, at) => (disturbed ? [`${label}, round ${at + 1}: ${disturbed}`] : [])),
  );
}
