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

/** In the order of bytes. One command per partition, and another for the few that have more than their share. */
export async function firstMembers(
  reads: PartitionReads,
  { partitions, nameOf, prefix, after }: SortedList,
  most: number,
): Promise<Listed[]> {
  const end = prefix === "" ? "+" : Buffer.concat([Buffer.from(`(${prefix}`), Buffer.from([0xff])]);
  const found = await firstOverAll<string>({
    ...{ partitions, most, compare: compareBytes, after: after === "" ? undefined : after },
    read: (parts, size) =>
      reads.many<string[], Part<string>>(parts, (pipe, { partition, last }) => {
        const start = last === undefined ? startOf(prefix) : `(${last}`;
        return pipe.zrange(nameOf(partition), start, end, "BYLEX", "LIMIT", 0, size);
      }),
  });
  return found.map(({ row, partition }) => ({ member: row, partition }));
}

interface Part<Row> {
  partition: number;
  last: Row | undefined;
}

/** Each list is read in pages of its share. @param options.read a page of each list, behind its `last`; undefined: unreadable */
export async function firstOverAll<Row>(options: {
  partitions: number;
  most: number;
  /** Exclusive; undefined for the first. */
  after: Row | undefined;
  compare(one: Row, other: Row): number;
  read(parts: readonly Part<Row>[], size: number): Promise<(readonly Row[] | undefined)[]>;
}): Promise<{ row: Row; partition: number }[]> {
  const { partitions, most, after, compare, read } = options;
  const size = Math.ceil(most / partitions) + SPARE;
  let parts = Array.from({ length: partitions }, (_, partition): Part<Row> => ({ partition, last: after }));
  let found: { row: Row; partition: number }[] = [];
  while (parts.length > 0) {
    const pages = await read(parts, size);
    for (const [at, part] of parts.entries()) {
      const page = pages[at] ?? [];
      found.push(...page.map((row) => ({ row, partition: part.partition })));
      part.last = page.length < size ? undefined : page.at(-1);
    }
    found = found.sort((one, other) => compare(one.row, other.row)).slice(0, most);
    const bound = found.length < most ? undefined : found.at(-1)!.row;
    parts = parts.filter(
      ({ last }) => last !== undefined && (bound === undefined || compare(last, bound) < 0),
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
