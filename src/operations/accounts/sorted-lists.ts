import type { PartitionReads } from "../../redis/partition-reads.ts";

/** Ids are spread by a hash, so few partitions have more than their share. */
const SPARE = 4;

export interface Listed {
  member: string;
  partition: number;
}

interface SortedList {
  partitions: number;
  /** A sorted set whose scores are all the same. */
  nameOf(partition: number): string;
  prefix: string;
  /** Exclusive; empty for the first. */
  after: string;
}

/**
 * The first members of a list over all partitions, in the order of their bytes. One command per partition, and
 * another for the few that have more than their share.
 */
export async function firstMembers(
  reads: PartitionReads,
  { partitions, nameOf, prefix, after }: SortedList,
  most: number,
): Promise<Listed[]> {
  const size = Math.ceil(most / partitions) + SPARE;
  const parts = Array.from({ length: partitions }, (_, partition) => ({
    partition,
    last: after,
    isWhole: false,
  }));
  const end = prefix === "" ? "+" : Buffer.concat([Buffer.from(`(${prefix}`), Buffer.from([0xff])]);
  let found: Listed[] = [];
  for (let wanting = parts; wanting.length > 0; ) {
    const pages = await reads.many<string[], (typeof parts)[number]>(wanting, (pipe, { partition, last }) =>
      pipe.zrange(
        nameOf(partition),
        last === "" ? startOf(prefix) : `(${last}`,
        end,
        "BYLEX",
        "LIMIT",
        0,
        size,
      ),
    );
    for (const [at, part] of wanting.entries()) {
      const page = pages[at] ?? [];
      found.push(...page.map((member) => ({ member, partition: part.partition })));
      part.last = page.at(-1) ?? part.last;
      part.isWhole = page.length < size;
    }
    found = found.sort((one, other) => compareBytes(one.member, other.member)).slice(0, most);
    const bound = found.length < most ? undefined : found.at(-1)!.member;
    wanting = parts.filter(
      ({ isWhole, last }) => !isWhole && (bound === undefined || compareBytes(last, bound) < 0),
    );
  }
  return found;
}

const startOf = (prefix: string): string => (prefix === "" ? "-" : `[${prefix}`);

const SURROGATE = /[\ud800-\udfff]/;

/** The order of Redis; JavaScript's differs outside the basic plane. */
export function compareBytes(one: string, other: string): number {
  if (one === other) return 0;
  if (SURROGATE.test(one) || SURROGATE.test(other))
    return Buffer.compare(Buffer.from(one), Buffer.from(other));
  return one < other ? -1 : 1;
}
