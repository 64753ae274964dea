import type { Redis } from "ioredis";
import { type DueList, dueRange, listsOfOpenRequests } from "../../records/names.ts";
import type { Connection } from "../../redis/connection.ts";
import { many } from "../../redis/pipelines.ts";
import type { Primary } from "../../redis/primary.ts";
import { takeLease } from "../../redis/repeated-work.ts";
import { thawedPartitions } from "../../redis/topology/frozen-partitions.ts";
import { createWriteWatch } from "../../redis/write-watch.ts";
import type { Run } from "../../scripts/script-definition.ts";
import { AGES, OPEN_STATES, type OpenState, survey } from "../../scripts/surveys.ts";

const SURVEY_LEASE = "tg:survey-lease";
const LEDGER_LEASE = "tg:ledger-lease";
const SURVEY = "tg:survey";
const LEDGER_REPORT = "tg:ledger-report";

export const SURVEY_LIFETIME_MS = 60_000;
/** Requests of a primary that are looked at, and of each list at least: counts of a longer list are extrapolated. */
const LOOKED_AT_MAX = 6400;
const LOOKED_AT_OF_LIST = 50;
/** So that no call blocks Redis for long. */
const AT_A_TIME = 50;
/** A longer list is looked at in so many places at least. */
const PLACES = 5;

interface OpenRequests {
  atMs: number;
  open: Record<OpenState, number[]>;
  oldestMs: Record<OpenState, number>;
  /** 0 when no hold is past its due time. */
  holdOverdueMs: number;
  /** 0 when nothing is overdue. */
  overdueMs: number;
}

export interface Survey extends OpenRequests {
  /** Of unavailable primaries, and frozen ones. */
  unreadPartitions: number;
}

export interface LedgerReport {
  atMs: number;
  violations: number;
  credits: { recharged: number; consumed: number; refunded: number };
  /** Undefined without a comparison. */
  archiveViolations?: number;
}

export type Surveys = ReturnType<typeof createSurveys>;

/** One gateway counts and stores the figures; all report them. @throws GatewayError `store_unavailable` from each */
export function createSurveys(connection: Connection) {
  const command = <T>(name: string, run: (redis: Redis) => Promise<T>): Promise<T> =>
    connection.ofName(name).command(run);

  async function read<T>(name: string): Promise<T | undefined> {
    const text = await command(name, (redis) => redis.get(name));
    return text === null ? undefined : (JSON.parse(text) as T);
  }

  const occupiedOf = createOccupied();
  return {
    lease: (intervalMs: number) => takeLease(connection, SURVEY_LEASE, intervalMs),
    async ledgerLease(intervalMs: number): Promise<boolean> {
      if (await takeLease(connection, LEDGER_LEASE, intervalMs)) return true;
      // For an interval that was shortened meanwhile.
      await command(LEDGER_LEASE, (redis) => redis.pexpire(LEDGER_LEASE, intervalMs, "LT"));
      return false;
    },
    /** Skips unavailable primaries and frozen partitions. @throws if all are unavailable */
    async take(): Promise<Survey> {
      const { partitions = 0 } = connection.known.facts ?? {};
      const parts: OpenRequests[] = [];
      const read = new Set<number>();
      let failed: unknown;
      for (const primary of connection.primaries()) {
        const own = thawedPartitions(connection, primary).flatMap(listsOfOpenRequests);
        try {
          parts.push(await surveyOf(primary.run, await occupiedOf(primary, own)));
          for (const { partition } of own) read.add(partition);
        } catch (error) {
          failed ??= error;
        }
      }
      if (parts.length === 0 && failed !== undefined) throw failed;
      const sum = emptySurvey(Math.round(connection.nowMs()));
      for (const part of parts) add(sum, part);
      return { ...sum, unreadPartitions: partitions - read.size };
    },
    async publish(survey: Survey): Promise<void> {
      await command(SURVEY, (redis) => redis.set(SURVEY, JSON.stringify(survey), "PX", SURVEY_LIFETIME_MS));
    },
    async publishLedger(report: LedgerReport): Promise<void> {
      await command(LEDGER_REPORT, (redis) => redis.set(LEDGER_REPORT, JSON.stringify(report)));
    },
    latest: () => read<Survey>(SURVEY),
    latestLedger: () => read<LedgerReport>(LEDGER_REPORT),
  };
}

/** The lists of a primary that are not empty, looked at again once something was written. */
function createOccupied() {
  const watch = createWriteWatch();
  /** Not empty at the last complete read. */
  const occupied = new WeakMap<Primary, OpenLists>();

  return (primary: Primary, lists: OpenLists): Promise<OpenLists> =>
    primary.command(async (redis) => {
      const looked = await watch.news(redis, lists.map(({ partition }) => partition).join());
      if (looked) {
        const sizes = await many<number, OpenLists[number]>(redis, lists, (pipe, { name, list }) =>
          pipe.zcount(name, ...dueRange(list)),
        );
        occupied.set(
          primary,
          lists.filter((_, at) => sizes[at]! > 0),
        );
        looked();
      }
      return occupied.get(primary) ?? [];
    });
}

type OpenLists = ReturnType<typeof listsOfOpenRequests>;

async function surveyOf(run: Run, lists: OpenLists): Promise<OpenRequests> {
  const sum = emptySurvey(0);
  const most = Math.max(LOOKED_AT_OF_LIST, Math.floor(LOOKED_AT_MAX / lists.length));
  for (const { list, partition } of lists) add(sum, await look(run, { partition, list, most }));
  return sum;
}

function add(sum: OpenRequests, part: Omit<OpenRequests, "atMs">): void {
  const { open, oldestMs } = part;
  sum.overdueMs = Math.max(sum.overdueMs, part.overdueMs);
  sum.holdOverdueMs = Math.max(sum.holdOverdueMs, part.holdOverdueMs);
  for (const state of OPEN_STATES) {
    sum.oldestMs[state] = Math.max(sum.oldestMs[state], oldestMs[state]);
    for (const age of AGES.keys()) sum.open[state][age]! += open[state][age]!;
  }
}

const emptySurvey = (atMs: number): OpenRequests => ({
  atMs,
  open: { held: AGES.map(() => 0), bound: AGES.map(() => 0) },
  oldestMs: { held: 0, bound: 0 },
  holdOverdueMs: 0,
  overdueMs: 0,
});

/** Every open request is in a list: invariant 3 of docs/ARCHITECTURE.md. */
async function look(
  run: Run,
  { partition, list, most }: { partition: number; list: DueList; most: number },
): Promise<OpenRequests> {
  const atATime = Math.min(AT_A_TIME, Math.ceil(most / PLACES));
  const seen = emptySurvey(0);
  let total = 1;
  let lookedAt = 0;
  for (let first = 0; first < total && lookedAt < most; ) {
    const found = await run(survey, { list, partition, first, most: atATime });
    add(seen, { ...found, overdueMs: found.nowMs - found.dueAtMs });
    if (found.seen === 0) break;
    total = found.total;
    lookedAt += found.seen;
    // Evenly over a longer list.
    first += Math.max(atATime, Math.floor((total * atATime) / most));
  }
  const ofAll = (counts: readonly number[]) => counts.map((count) => (count * total) / Math.max(1, lookedAt));
  return { ...seen, open: { held: ofAll(seen.open.held), bound: ofAll(seen.open.bound) } };
}
