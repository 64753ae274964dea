import { DAY_MS, dayText } from "../../domain/moments.ts";
import { badCursor } from "../../records/cursors.ts";
import { META, partitionNames, spentName } from "../../records/names.ts";
import type { PartitionReads } from "../../redis/partition-reads.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { storeNowMs } from "../../redis/server-info.ts";
import { partitionsOf, type RedisNodes } from "../../redis/store-facts.ts";
import { type RankedPlace, ranked } from "../../scripts/ledger.ts";
import { compareBytes, firstOverAll } from "./sorted-lists.ts";

// Accounts by balance and by spending. ROLLUP writes these lists about once a second.

export const ACCOUNT_SORTS = ["balance", "-balance", "-spent_today", "-spent_7d", "days_left"] as const;
export type AccountSort = (typeof ACCOUNT_SORTS)[number];

export const isDescending = (sort: AccountSort): boolean => sort.startsWith("-");

const WEEK_DAYS = 7;
/** Either takes half a millisecond of Redis: a page of a partition's list, and the spending of a day and partition. */
const [PARTITIONS_AT_ONCE, DAYS_AT_ONCE] = [16, 100];

interface RankedList {
  partitions: number;
  nameOf(partition: number): string;
  descending: boolean;
  after: RankedPlace | undefined;
}

/** In the order of the lists. */
export function comparePlaces(one: RankedPlace, other: RankedPlace, descending: boolean): number {
  const ascending = one.score - other.score || compareBytes(one.member, other.member);
  return descending ? -ascending : ascending;
}

export async function firstRanked(
  reads: PartitionReads,
  { partitions, nameOf, descending, after }: RankedList,
  most: number,
) {
  const found = await firstOverAll<RankedPlace>({
    ...{ partitions, most, after, compare: (one, other) => comparePlaces(one, other, descending) },
    async read(parts, size) {
      const found: (RankedPlace[] | undefined)[] = [];
      for (let from = 0; from < parts.length; from += PARTITIONS_AT_ONCE) {
        const page = parts.slice(from, from + PARTITIONS_AT_ONCE).map(({ partition, last }) => {
          const call = { list: nameOf(partition), after: last, most: size, descending };
          return reads.at(partition, (redis) => scriptsOf(redis).run(ranked, call));
        });
        found.push(...(await Promise.all(page)));
      }
      return found;
    },
  });
  return found.map(({ row, partition }) => ({ ...row, partition }));
}

/** The list that a sort goes by, from its beginning or behind a place. */
export async function rankingOf(
  nodes: RedisNodes,
  sort: AccountSort,
  after: RankedPlace | undefined,
): Promise<RankedList> {
  const partitions = await partitionsOf(nodes);
  return { partitions, descending: isDescending(sort), after, nameOf: await namesOf(nodes, sort) };
}

async function namesOf(nodes: RedisNodes, sort: AccountSort): Promise<RankedList["nameOf"]> {
  if (sort === "-spent_7d") return (partition) => partitionNames(partition).spentWeek;
  if (sort === "days_left") return (partition) => partitionNames(partition).daysLeft;
  if (sort !== "-spent_today") return (partition) => partitionNames(partition).byBalance;
  const [today = ""] = await spendingDays(nodes, 1);
  return (partition) => spentName(partition, today);
}

export const placeText = ({ score, member }: RankedPlace): string => `${score} ${member}`;

export function readPlace(text: string): RankedPlace {
  const [score = "", member = "", ...more] = text.split(" ");
  if (!/^-?\d{1,16}$/.test(score) || member === "" || more.length > 0) throw badCursor();
  return { score: Number(score), member };
}

/** Credits charged without what was refunded, about a second behind. */
export interface Spending {
  today: number;
  /** In seven UTC days, this one included. */
  week: number;
}

/** Days that a balance lasts at the pace of the week; undefined for one that nothing was spent of. */
export const daysLeft = (balance: number, { week }: Spending): number | undefined =>
  week > 0 ? (balance * WEEK_DAYS) / week : undefined;

/** More fits into no cursor. */
const DAYS_LEFT_MAX = 1e15;
/** As in lua/include/ranks.lua. @param balance that of the ledger */
export const daysLeftScore = (balance: number, { week }: Spending): number | undefined =>
  week > 0 ? Math.min(Math.floor((balance * WEEK_DAYS * 1000) / week), DAYS_LEFT_MAX) : undefined;

async function spendingDays(nodes: RedisNodes, count: number): Promise<string[]> {
  const nowMs = await storeNowMs(nodes.ofName(META));
  return Array.from({ length: count }, (_, at) => dayText(nowMs - at * DAY_MS));
}

export async function spendingOf(
  nodes: RedisNodes,
  reads: PartitionReads,
  accounts: readonly { accountId: string; partition: number }[],
): Promise<Map<string, Spending>> {
  const days = await spendingDays(nodes, WEEK_DAYS);
  const lists = [...Map.groupBy(accounts, ({ partition }) => partition)].flatMap(([partition, own]) =>
    days.map((day, ago) => ({ partition, ago, day, ids: own.map(({ accountId }) => accountId) })),
  );
  const scores = await reads.many<(string | null)[], (typeof lists)[number]>(
    lists,
    (pipe, { partition, day, ids }) => pipe.zmscore(spentName(partition, day), ids),
    DAYS_AT_ONCE,
  );
  const spending = new Map<string, Spending>(
    accounts.map(({ accountId }) => [accountId, { today: 0, week: 0 }]),
  );
  for (const [at, { ago, ids }] of lists.entries()) {
    for (const [index, id] of ids.entries()) {
      const amount = Number(scores[at]?.[index] ?? 0);
      const of = spending.get(id)!;
      of.week += amount;
      if (ago === 0) of.today += amount;
    }
  }
  return spending;
}
