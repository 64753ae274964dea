import { cursorOf, type PageQuery, type Period, positionOf, requirePageSize } from "../../records/cursors.ts";
import { ENTRY_KINDS, type LedgerEntry } from "../../records/ledger-entries.ts";
import type { RedisNodes } from "../../redis/store-facts.ts";
import { type AuditRecord, placeOfAudit, readAudit } from "../access/audit.ts";
import { requireOrder } from "../access/operator-values.ts";
import { type ArchivedHistory, readHistory } from "../credits/account-history.ts";
import { wantedOf } from "../credits/transactions.ts";
import { positionText, readPosition } from "../newest-first.ts";
import { requireAccount } from "./accounts.ts";

type TimelineEvent =
  | { atMs: number; entry: LedgerEntry; record?: undefined }
  | { atMs: number; record: AuditRecord; entry?: undefined };

interface TimelineQuery extends PageQuery, Period {
  hasCharges: boolean;
  /** False: the audit alone. */
  hasLedger: boolean;
}

export interface Lane {
  events: readonly TimelineEvent[];
  /** Where the list goes on behind these; undefined at its end. */
  next: string | undefined;
  /** Where it goes on at an event that was read and is not shown. */
  positionAt(event: number): string;
}

const ENDED = "-";

/** These stand in the ledger, too. */
const isInLedger = ({ action }: AuditRecord): boolean =>
  action.startsWith("credits.") || action === "task.refund";

/** Ledger and audit in one order, newest first, each read for a bounded number. @throws OperatorError for an unknown account or another cursor */
export async function pageTimeline(
  nodes: RedisNodes,
  accountId: string,
  query: TimelineQuery,
  archive?: { history: ArchivedHistory },
): Promise<{ events: TimelineEvent[]; next: string | undefined }> {
  const { fromMs, toMs, hasCharges, hasLedger, cursor, limit } = query;
  requirePageSize(limit);
  requireOrder(fromMs, toMs);
  const place = await requireAccount(nodes, accountId);
  const list = ["timeline", accountId, fromMs, toMs, hasCharges, hasLedger];
  const [ofLedger = "", ofAudit = ""] = positionOf(list, cursor)?.split("|") ?? [];
  const lanes = await Promise.all([
    hasLedger ? ledgerLane(place, accountId, query, ofLedger, archive?.history) : noLane(),
    auditLane(nodes, accountId, query, ofAudit),
  ]);
  const { events, positions } = merged(lanes, limit);
  const isOver = positions.every((position) => position === ENDED);
  return { events, next: isOver ? undefined : cursorOf(list, positions.join("|")) };
}

const noLane = (): Lane => ({ events: [], next: undefined, positionAt: () => ENDED });

async function ledgerLane(
  place: Awaited<ReturnType<typeof requireAccount>>,
  accountId: string,
  { fromMs, toMs, hasCharges, limit }: TimelineQuery,
  position: string,
  archive: ArchivedHistory | undefined,
): Promise<Lane> {
  if (position === ENDED) return noLane();
  const kinds = ENTRY_KINDS.filter((kind) => kind !== "charge");
  const wanted = hasCharges ? undefined : kinds.flatMap((kind) => wantedOf(undefined, kind) ?? []);
  const { entries, next } = await readHistory({
    ...{ ...place, accountId, limit, archive },
    position: position || undefined,
    filter: { wanted, fromMs, toMs },
  });
  return {
    events: entries.map((entry) => ({ atMs: entry.atMs, entry })),
    next,
    positionAt: (at) => entries[at]!.streamId,
  };
}

async function auditLane(
  nodes: RedisNodes,
  accountId: string,
  { fromMs, toMs, hasLedger, limit }: TimelineQuery,
  position: string,
): Promise<Lane> {
  if (position === ENDED) return noLane();
  const after = position === "" ? undefined : readPosition(position);
  const isWanted = (record: AuditRecord) => !(hasLedger && isInLedger(record));
  const { records, next } = await readAudit(nodes, { accountId, fromMs, toMs, isWanted, limit }, after);
  return {
    events: records.map((record) => ({ atMs: record.atMs, record })),
    next: next && positionText(next),
    positionAt: (at) => (at === 0 ? position : positionText(placeOfAudit(records[at - 1]!.auditId)!)),
  };
}

/** Ends before a list that was not read to the next event: what follows there may be newer than all others. */
export function merged(
  lanes: readonly Lane[],
  limit: number,
): { events: TimelineEvent[]; positions: string[] } {
  const shown = lanes.map(() => 0);
  const events: TimelineEvent[] = [];
  while (events.length < limit) {
    const heads = lanes.map(({ events: own }, lane) => own[shown[lane]!]);
    if (lanes.some(({ next }, lane) => next !== undefined && heads[lane] === undefined)) break;
    const newest = Math.max(...heads.map((head) => head?.atMs ?? -1));
    const lane = heads.findIndex((head) => head?.atMs === newest);
    if (lane === -1) break;
    events.push(heads[lane]!);
    shown[lane]!++;
  }
  const positions = lanes.map(({ events: own, next = ENDED, positionAt }, lane) =>
    shown[lane]! < own.length ? positionAt(shown[lane]!) : next,
  );
  return { events, positions };
}
