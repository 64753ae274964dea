import { LIMITS } from "../../domain/limits.ts";
import { isMomentMs } from "../../domain/moments.ts";
import { badCursor, cursorOf, positionOf } from "../../records/cursors.ts";
import { recordOf, type StreamEntry } from "../../records/ledger-entries.ts";
import { partitionNames, partitionOf } from "../../records/names.ts";
import { statusOf } from "../../records/records.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { manyByNode } from "../../redis/pipelines.ts";
import { partitionsOf } from "../../redis/store-facts.ts";

const READ_OF_ALL = 10;
const READ_OF_ONE = 200;
const READS_MAX = 20;

/** Written by lua/include/audit.lua. */
export interface AuditRecord {
  auditId: string;
  atMs: number;
  /** `<token id> <label>`, `admin_token`, `console` or `cli <name>`. */
  by: string;
  action: string;
  accountId: string;
  target: string;
  /** Changed fields; null: was not set. Times are ISO 8601. */
  before: Readonly<Record<string, unknown>>;
  after: Readonly<Record<string, unknown>>;
  /** Empty for the command line. */
  requestId: string;
}

const NUMBERS = new Set<string>([
  ...LIMITS.map(({ name }) => name),
  ...["credits", "amount", "balance", "refunded", "price", "requested"],
]);
const TIMES = new Set(["expires_at", "revoked_at"]);
const JSON_TEXTS = new Set(["metadata", "scopes", "accounts"]);

/** Over all partitions, by id, then by partition, both descending. */
interface Position {
  id: string;
  partition: number;
}

/**
 * Changes by operators, newest first. A page of one account may be short and still have a `next`. @throws
 * OperatorError for a cursor of another list
 */
export async function pageAudit(
  nodes: RedisNodes,
  options: { accountId?: string | undefined; cursor?: string | undefined; limit: number },
): Promise<{ records: AuditRecord[]; next?: string }> {
  const { accountId, limit } = options;
  const list = ["audit", accountId];
  const after = options.cursor === undefined ? undefined : positionIn(list, options.cursor);
  const partitions = await partitionsOf(nodes);
  const isOfOne = accountId !== undefined;
  const first = isOfOne ? partitionOf(accountId, partitions) : 0;
  const lanes = Array.from({ length: isOfOne ? 1 : partitions }, (_, at) => laneOf(first + at, after));
  const records: AuditRecord[] = [];
  let reads = 0;
  let last: Position | undefined;
  while (records.length < limit) {
    const empty = lanes.filter((lane) => lane.buffer.length === 0 && !lane.done);
    if (empty.length > 0 && isOfOne && reads++ === READS_MAX) break;
    await refill(nodes, empty, isOfOne ? READ_OF_ONE : READ_OF_ALL);
    const lane = latest(lanes);
    if (!lane) return { records };
    const [id, fields] = lane.buffer.shift()!;
    last = { id, partition: lane.partition };
    const record = auditRecord(lane.partition, [id, fields]);
    if (!isOfOne || record.accountId === accountId) records.push(record);
  }
  const isEnd = lanes.every((lane) => lane.done && lane.buffer.length === 0);
  return isEnd || !last ? { records } : { records, next: cursorOf(list, `${last.id}.${last.partition}`) };
}

// As in a transaction's id, 18 digits are enough for either half of a stream's id.
const AUDIT_ID = /^aud_(\d{1,4})_(\d{1,18}-\d{1,18})$/;

export async function findAuditRecord(nodes: RedisNodes, id: string): Promise<AuditRecord | undefined> {
  const [, number, streamId] = AUDIT_ID.exec(id) ?? [];
  const partition = Number(number);
  if (streamId === undefined || partition >= (await partitionsOf(nodes))) return undefined;
  const [found] = await nodes.of(partition).xrange(partitionNames(partition).audit, streamId, streamId);
  return found && auditRecord(partition, found);
}

interface Lane {
  partition: number;
  buffer: StreamEntry[];
  from: string;
  done: boolean;
}

const laneOf = (partition: number, after: Position | undefined): Lane => ({
  partition,
  buffer: [],
  from: after === undefined ? "+" : partition < after.partition ? after.id : `(${after.id}`,
  done: false,
});

async function refill(nodes: RedisNodes, lanes: readonly Lane[], count: number): Promise<void> {
  const pages = await manyByNode<StreamEntry[], Lane>(
    lanes,
    ({ partition }) => nodes.of(partition),
    (pipe, { partition, from }) => pipe.xrevrange(partitionNames(partition).audit, from, "-", "COUNT", count),
  );
  for (const [at, lane] of lanes.entries()) {
    lane.buffer = [...pages[at]!];
    lane.done = lane.buffer.length < count;
    const oldest = lane.buffer.at(-1);
    if (oldest) lane.from = `(${oldest[0]}`;
  }
}

function latest(lanes: readonly Lane[]): Lane | undefined {
  let found: Lane | undefined;
  for (const lane of lanes) {
    if (lane.buffer.length === 0) continue;
    if (!found || isNewer(lane.buffer[0]![0], found.buffer[0]![0])) found = lane;
  }
  return found;
}

/** Of equal ids, that of the later partition comes first. */
function isNewer(id: string, other: string): boolean {
  const [ms = 0, sequence = 0] = id.split("-").map(Number);
  const [otherMs = 0, otherSequence = 0] = other.split("-").map(Number);
  return ms === otherMs ? sequence >= otherSequence : ms > otherMs;
}

function positionIn(list: readonly unknown[], cursor: string): Position {
  const found = /^(\d{1,16}-\d{1,19})\.(\d{1,4})$/.exec(positionOf(list, cursor));
  if (!found) throw badCursor();
  return { id: found[1]!, partition: Number(found[2]) };
}

export function auditRecord(partition: number, [id, flat]: StreamEntry): AuditRecord {
  const field = recordOf(flat);
  return {
    auditId: `aud_${partition}_${id}`,
    atMs: Number(field.at),
    by: field.by ?? "",
    action: field.action ?? "",
    accountId: field.account_id ?? "",
    target: field.target ?? "",
    before: valuesOf(field.before),
    after: valuesOf(field.after),
    requestId: field.request_id ?? "",
  };
}

/** The JSON of Lua keeps 14 digits of a number, so the scripts write texts. */
function valuesOf(text = "{}"): Record<string, unknown> {
  const texts = Object.entries((JSON.parse(text) ?? {}) as Record<string, string | null>);
  return Object.fromEntries(
    texts.map(([name, value]) => [name, value === null ? unset(name) : readable(name, value)]),
  );
}

const unset = (name: string): unknown => (name === "status" ? statusOf(undefined) : null);

function readable(name: string, text: string): unknown {
  if (NUMBERS.has(name)) return Number(text);
  // A damaged record does not hide the others.
  if (TIMES.has(name)) return isMomentMs(Number(text)) ? new Date(Number(text)).toISOString() : null;
  return JSON_TEXTS.has(name) ? parsed(text) : text;
}

/** Long values may be cut. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
