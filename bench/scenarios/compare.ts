import type { Limits } from "../../src/domain/limits.ts";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { type Interval, measure } from "../interval.ts";
import { issueKeys } from "../keys.ts";
import { type LoadResult, saturate, type Target, warmUp, writeTargets } from "../load/wrk.ts";
import type { Context, Table } from "../scenario.ts";
import { type RunningSubject, type Subject, warmUpOf } from "../subjects/subject.ts";
import { short } from "../targets.ts";
import type { Tree } from "../tree.ts";
import { apart, type World } from "../world.ts";

/** Unless an entry says otherwise. */
const CONNECTIONS = 64;

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
  /** Requests, or a file that wrk.lua reads. Anything that must exist before is made through the program that runs, or at its Redis. */
  targets(
    keys: readonly IssuedKey[],
    running: RunningSubject,
    own: World,
  ): Promise<Target[]> | Target[] | string;
  /** Runs before each slice, outside of what is measured. */
  before?(): Promise<void>;
  /** Throws when the answers were not those that are meant. */
  check(interval: Interval, running: RunningSubject): Promise<void> | void;
}

export type Intervals = Map<string, Interval[]>;

/**
 * All entries run at the same time, each on a Redis of its own, and take turns under load in short slices: what drifts on
 * the machine meets all of them. The order is reversed in every other slice.
 */
export async function compare(context: Context, entries: readonly Entry[]): Promise<Intervals> {
  const { world, rounds, seconds, warmUpSeconds, progress } = context;
  const intervals: Intervals = new Map(entries.map(({ label }) => [label, []]));
  const running: Running[] = [];
  try {
    for (const [nth, entry] of entries.entries()) {
      progress(`  ${entry.label}: warms up`);
      const started = await begin(await apart(world, `entry-${nth}`), entry);
      running.push(started);
      await warmUp(started.load, warmUpOf(entry.subject, warmUpSeconds));
    }
    for (let round = 1; round <= rounds; round++) {
      for (const { entry, subject, own, load } of round % 2 ? running : running.toReversed()) {
        await entry.before?.();
        const interval = await measure(world.calibration, subject.pid, own.redisPid, () => load(seconds));
        await entry.check(interval, subject);
        intervals.get(entry.label)!.push(interval);
        const { cpuUs, redisCpuUs, requestsPerSecond, disturbed } = interval;
        const cost = `${short(cpuUs)} us, Redis ${short(redisCpuUs)} us, ${requestsPerSecond.toFixed(0)}/s`;
        progress(`  slice ${round}, ${entry.label}: ${cost}${disturbed ? `; disturbed: ${disturbed}` : ""}`);
      }
    }
  } finally {
    for (const { subject, own } of running) {
      await subject.stop();
      await own.stop();
    }
  }
  return intervals;
}

interface Running {
  entry: Entry;
  own: World;
  subject: RunningSubject;
  load(seconds: number): Promise<LoadResult>;
}

async function begin(own: World, entry: Entry): Promise<Running> {
  try {
    const keys = await issueKeys(entry.tree, own.redis, entry.keys, entry.limits);
    const subject = await entry.subject.start(own, keys);
    const wanted = await entry.targets(keys, subject, own);
    const targets = typeof wanted === "string" ? wanted : writeTargets(own.folder, "targets", wanted);
    const { connections = CONNECTIONS } = entry;
    const load = (seconds: number) => saturate(own.folder, subject.url, targets, { seconds, connections });
    return { entry, own, subject, load };
  } catch (cause) {
    await own.stop();
    throw new Error(`${entry.label}: ${(cause as Error).message}`, { cause });
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
/** Of the program and its Redis together. */
export const costOf = (interval: Interval): number => interval.cpuUs + interval.redisCpuUs;

/** Throws unless every request was answered, and all of them in the way that is wanted. */
export function requireAnswers({ load }: Interval, wanted: "success" | "refusal"): void {
  const { requests, unsuccessful, broken } = load;
  if (broken === 0 && unsuccessful === (wanted === "refusal" ? requests : 0)) return;
  throw new Error(
    `of ${requests} answers ${unsuccessful} had a status of 400 or more and ${broken} broke; each should be a ${wanted}`,
  );
}

/** The median over the slices of what one entry costs beside another, slice by slice. */
export function ratioOf(
  intervals: Intervals,
  [label, beside]: readonly [string, string],
  figure: (interval: Interval) => number = cpuOf,
): number {
  const others = intervals.get(beside) ?? [];
  const ratios = (intervals.get(label) ?? []).map((interval, at) => {
    const other = others[at];
    return other ? figure(interval) / figure(other) : Number.NaN;
  });
  return median(ratios);
}

/** One row for each entry: medians over the slices, and how its cost compares with the first one's. */
export function tableOf(intervals: Intervals): Table {
  const [first = ""] = intervals.keys();
  return {
    columns: ["", "CPU us", `${first} is`, "Redis us", "both", "requests/s", "MiB", "CPU us by slice"],
    rows: [...intervals].map(([label, slices]) => [
      label,
      short(median(slices.map(cpuOf))),
      `${short(ratioOf(intervals, [first, label], cpuOf))} x`,
      short(median(slices.map(redisOf))),
      `${short(ratioOf(intervals, [first, label], costOf))} x`,
      median(slices.map((interval) => interval.requestsPerSecond)).toFixed(0),
      (median(slices.map((interval) => interval.residentBytes)) / 2 ** 20).toFixed(0),
      slices.map((interval) => short(interval.cpuUs) + (interval.disturbed ? " !" : "")).join(", "),
    ]),
  };
}

/** One line for each disturbed interval. */
export function disturbances(intervals: Intervals): string[] {
  return [...intervals].flatMap(([label, slices]) =>
    slices.flatMap(({ disturbed }, at) => (disturbed ? [`${label}, slice ${at + 1}: ${disturbed}`] : [])),
  );
}
