import { badCursor } from "../records/cursors.ts";
import type { StreamEntry } from "../records/ledger-entries.ts";
import { manyByNode } from "../redis/pipelines.ts";
import type { RedisNodes } from "../redis/store-facts.ts";

/** Over all partitions, by id, then by partition, both descending. */
export interface StreamPosition {
  id: string;
  partition: number;
}

/** Ids follow the server's clock, which may have been put back. */
export const CLOCK_SLACK_MS = 5 * 60_000;

interface NewestFirst<Row> {
  nodes: RedisNodes;
  partitions: readonly number[];
  nameOf(partition: number): string;
  after: StreamPosition | undefined;
  /** Unix ms: entries outside are not looked at, but for those within five minutes of it. */
  fromMs?: number | undefined;
  toMs?: number | undefined;
  limit: number;
  /** Entries of one partition that are read at a time. */
  pageSize: number;
  lookedAtMax: number;
  rowOf(partition: number, entry: StreamEntry): Row | undefined;
}

/** Over streams of several partitions. Looks at a bounded number: a page may be short and still have a `next`. */
export async function newestFirst<Row>(
  options: NewestFirst<Row>,
): Promise<{ rows: Row[]; next: StreamPosition | undefined }> {
  const { partitions, after, toMs, limit, lookedAtMax, rowOf } = options;
  const lanes = partitions.map((partition) => laneOf(partition, after, toMs));
  const rows: Row[] = [];
  let last: StreamPosition | undefined;
  for (let lookedAt = 0; rows.length < limit && lookedAt < lookedAtMax; lookedAt++) {
    const empty = lanes.filter((lane) => lane.buffer.length === 0 && !lane.done);
    if (empty.length > 0) await refill(options, empty);
    const lane = latest(lanes);
    if (!lane) return { rows, next: undefined };
    const { entry } = lane.buffer.shift()!;
    last = { id: entry[0], partition: lane.partition };
    const row = rowOf(lane.partition, entry);
    if (row !== undefined) rows.push(row);
  }
  const isEnd = lanes.every((lane) => lane.done && lane.buffer.length === 0);
  return { rows, next: isEnd ? undefined : last };
}

interface Lane {
  partition: number;
  /** With the two halves of their ids. */
  buffer: { entry: StreamEntry; ms: number; sequence: number }[];
  from: string;
  done: boolean;
}

function laneOf(partition: number, after: StreamPosition | undefined, toMs: number | undefined): Lane {
  const newest = toMs === undefined ? "+" : `${Math.max(0, toMs + CLOCK_SLACK_MS)}`;
  const from = after === undefined ? newest : partition < after.partition ? after.id : `(${after.id}`;
  return { partition, buffer: [], from, done: false };
}

async function refill<Row>(
  { nodes, nameOf, fromMs, pageSize }: NewestFirst<Row>,
  lanes: readonly Lane[],
): Promise<void> {
  const oldestMs = fromMs === undefined ? undefined : Math.max(0, fromMs - CLOCK_SLACK_MS);
  const pages = await manyByNode<StreamEntry[], Lane>(
    lanes,
    ({ partition }) => nodes.of(partition),
    (pipe, { partition, from }) =>
      pipe.xrevrange(
        nameOf(partition),
        from,
        oldestMs === undefined ? "-" : `${oldestMs}`,
        "COUNT",
        pageSize,
      ),
  );
  for (const [at, lane] of lanes.entries()) {
    lane.buffer = pages[at]!.map((entry) => {
      const [ms = 0, sequence = 0] = entry[0].split("-").map(Number);
      return { entry, ms, sequence };
    });
    lane.done = lane.buffer.length < pageSize;
    const oldest = lane.buffer.at(-1);
    if (oldest) lane.from = `(${oldest.entry[0]}`;
  }
}

/** Of equal ids, that of the later partition comes first. */
function latest(lanes: readonly Lane[]): Lane | undefined {
  let found: Lane | undefined;
  for (const lane of lanes) {
    const [one] = lane.buffer;
    if (!one) continue;
    const other = found?.buffer[0];
    if (!other || one.ms > other.ms || (one.ms === other.ms && one.sequence >= other.sequence)) found = lane;
  }
  return found;
}

export const positionText = ({ id, partition }: StreamPosition): string => `${id}.${partition}`;

export function readPosition(text: string): StreamPosition {
  const found = /^(\d{1,16}-\d{1,19})\.(\d{1,4})$/.exec(text);
  if (!found) throw badCursor();
  return { id: found[1]!, partition: Number(found[2]) };
}
