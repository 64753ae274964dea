import { LIMITS } from "../../domain/limits.ts";
import { isMomentMs } from "../../domain/moments.ts";
import { cursorOf, type Period, positionOf } from "../../records/cursors.ts";
import { recordOf, type StreamEntry } from "../../records/ledger-entries.ts";
import { partitionNames, partitionOf } from "../../records/names.ts";
import { statusOf } from "../../records/records.ts";
import { partitionsOf, type RedisNodes } from "../../redis/store-facts.ts";
import { newestFirst, positionText, readPosition, type StreamPosition } from "../newest-first.ts";
import { requireOrder } from "./operator-values.ts";

const READ_OF_ALL = 10;
const READ_OF_ONE = 200;
const LOOKED_AT_MAX = 2000;

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

interface AuditQuery extends Period {
  accountId?: string | undefined;
  /** Who: the whole `by`, its first word, such as a token's id, or what follows that, such as a token's label. */
  by?: string | undefined;
  action?: string | undefined;
  /** Of those that the rest lets through. */
  isWanted?(record: AuditRecord): boolean;
  limit: number;
}

/** Newest first. A bounded number is looked at: filtered pages may be short. @throws OperatorError for a cursor of another list */
export async function pageAudit(
  nodes: RedisNodes,
  { cursor, ...query }: AuditQuery & { cursor?: string | undefined },
): Promise<{ records: AuditRecord[]; next?: string }> {
  const { accountId, by, action, fromMs, toMs } = query;
  requireOrder(fromMs, toMs);
  const list = ["audit", accountId, by, action, fromMs, toMs];
  const after = cursor === undefined ? undefined : readPosition(positionOf(list, cursor));
  const { records, next } = await readAudit(nodes, query, after);
  return next === undefined ? { records } : { records, next: cursorOf(list, positionText(next)) };
}

export async function readAudit(
  nodes: RedisNodes,
  { accountId, by, action, fromMs, toMs, isWanted, limit }: AuditQuery,
  after: StreamPosition | undefined,
): Promise<{ records: AuditRecord[]; next: StreamPosition | undefined }> {
  const partitions = await partitionsOf(nodes);
  const isOfOne = accountId !== undefined;
  const { rows, next } = await newestFirst({
    nodes,
    partitions: isOfOne
      ? [partitionOf(accountId, partitions)]
      : Array.from({ length: partitions }, (_, at) => at),
    nameOf: (partition) => partitionNames(partition).audit,
    after,
    ...{ fromMs, toMs, limit, lookedAtMax: LOOKED_AT_MAX },
    pageSize: isOfOne ? READ_OF_ONE : READ_OF_ALL,
    rowOf(partition, entry) {
      const field = recordOf(entry[1]);
      if (isOfOne && field.account_id !== accountId) return undefined;
      if (by !== undefined && !isPerson(field.by ?? "", by)) return undefined;
      if (action !== undefined && field.action !== action) return undefined;
      const record = auditRecord(partition, entry);
      const isInTime = record.atMs >= (fromMs ?? 0) && record.atMs < (toMs ?? Infinity);
      return isInTime && (isWanted?.(record) ?? true) ? record : undefined;
    },
  });
  return { records: rows, next };
}

const isPerson = (by: string, wanted: string): boolean =>
  by === wanted || by.startsWith(`${wanted} `) || by.slice(by.indexOf(" ") + 1) === wanted;

// As in a transaction's id, 18 digits are enough for either half of a stream's id.
const AUDIT_ID = /^aud_(\d{1,4})_(\d{1,18}-\d{1,18})$/;

export function placeOfAudit(auditId: string): StreamPosition | undefined {
  const [, partition, id] = AUDIT_ID.exec(auditId) ?? [];
  return id === undefined ? undefined : { id, partition: Number(partition) };
}

export async function findAuditRecord(nodes: RedisNodes, id: string): Promise<AuditRecord | undefined> {
  const place = placeOfAudit(id);
  if (!place || place.partition >= (await partitionsOf(nodes))) return undefined;
  const { partition, id: streamId } = place;
  const [found] = await nodes.of(partition).xrange(partitionNames(partition).audit, streamId, streamId);
  return found && auditRecord(partition, found);
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
