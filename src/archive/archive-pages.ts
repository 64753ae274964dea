import { randomInt } from "node:crypto";
import type { ChainableCommander, Redis } from "ioredis";
import { type AuditRecord, auditRecord } from "../operations/access/audit.ts";
import {
  compareIds,
  LEDGER_START,
  type LedgerEntry,
  ledgerEntry,
  type StreamEntry,
} from "../records/ledger-entries.ts";
import { archiveNames, partitionNames } from "../records/names.ts";
import { answersOf, pairsOf } from "../redis/pipelines.ts";
import type { Primary } from "../redis/primary.ts";
import { storeNowMs } from "../redis/server-info.ts";
import {
  type ChangedRecord,
  type EndedRequest,
  readChangedRecords,
  readEndedRequests,
} from "./changed-records.ts";

export interface ArchivedState {
  newest: LedgerEntry | undefined;
  forks: number;
  audit: string;
  /** Number of its newest batch; 0 for none. */
  batch: number;
}

/** Position of a partition's reader; the archive has everything before it. */
export interface ArchivePosition extends ArchivedState {
  readonly partition: number;
  readonly generation: string;
  /** From the partition's record in Redis. */
  readonly noted: { newest: string | undefined; batch: number };
  /** The score in `done` up to which ended requests were looked at, and how many of that score in full pages. */
  looked: { score: number; times: number };
  /** Requests that may be collected and were read; undefined if not requested. */
  due: number | undefined;
}

export interface ArchivePage {
  position: ArchivePosition;
  next: ArchivePosition;
  /** The ledger has lost the archive's newest entry. All other fields are empty. */
  isFork: boolean;
  /** The store's record names a batch that this reader does not know. All other fields are empty. */
  isUnseen: boolean;
  /** The last entry that has left the ledger, if the archive lacks some up to there; else undefined. */
  missingUntil: string | undefined;
  entries: LedgerEntry[];
  requests: EndedRequest[];
  changed: ChangedRecord[];
  audit: AuditRecord[];
  /** When it was read by the store's clock, Unix ms. */
  readAtMs: number;
  more: boolean;
}

/** Largest step between two batch numbers, so that a lost batch and its successor differ. */
const BATCH_STEP_MAX = 2 ** 20;

/** Up to about `most` entries, requests and changed records each, of several partitions of one primary. */
export function readPages(
  primary: Primary,
  positions: readonly ArchivePosition[],
  most: number,
): Promise<ArchivePage[]> {
  const each = Math.max(1, Math.floor(most / positions.length));
  return primary.command(async (redis) => {
    const nowMs = await storeNowMs(redis);
    const pipe = redis.pipeline();
    for (const position of positions) queueReads(pipe, position, each, nowMs);
    const answers = answersOf<unknown>(await pipe.exec());
    return Promise.all(
      positions.map((position, at) =>
        pageOf(redis, position, answers.slice(7 * at, 7 * at + 7), { each, nowMs }),
      ),
    );
  });
}

/** Seven commands; `pageOf` reads the replies. */
function queueReads(pipe: ChainableCommander, position: ArchivePosition, each: number, nowMs: number): void {
  const { partition, newest, looked, due } = position;
  const { ledger, done, trimmed, audit } = partitionNames(partition);
  // The newest entry again: it must still be there.
  pipe.xrange(ledger, newest?.streamId ?? LEDGER_START, "+", "COUNT", newest ? each + 1 : each);
  pipe.zrangebyscore(done, looked.score, "+inf", "WITHSCORES", "LIMIT", looked.times, each);
  pipe.zrangebyscore(done, "-inf", nowMs, "LIMIT", due ?? 0, due === undefined ? 0 : each);
  pipe.hrandfield(archiveNames(partition).changed, each, "WITHVALUES");
  pipe.hget(trimmed, "last_entry");
  pipe.xrange(audit, `(${position.audit}`, "+", "COUNT", each);
  pipe.hmget(archiveNames(partition).archive, "generation", "batch", "listed");
}

const NOTHING = {
  ...{ entries: [], requests: [], changed: [], audit: [] },
  ...{ missingUntil: undefined, more: false },
};

async function pageOf(
  redis: Redis,
  position: ArchivePosition,
  [stream, ended, due, changed, cut, audited, record]: unknown[],
  { each, nowMs }: { each: number; nowMs: number },
): Promise<ArchivePage> {
  const { partition, newest } = position;
  const found = (stream as StreamEntry[]).map((entry) => ledgerEntry(partition, entry));
  // Entries left the ledger before the archive had them: it is new, or was restored from a backup.
  const behindCut = cut === null ? 1 : compareIds(newest?.streamId ?? LEDGER_START, String(cut));
  const isInLedger = newest !== undefined && behindCut > 0;
  const entries = isInLedger ? found.slice(1) : found;
  const isFork = isInLedger && !(found[0] && isSameEntry(found[0], newest));
  // Also in a page that has nothing else: the store may be an older copy by now.
  const [generation, batch, listed] = record as (string | null)[];
  const isUnseen =
    generation !== position.generation ||
    listed !== generation ||
    Number(batch ?? 0) !== position.noted.batch;
  if (isFork || isUnseen) return { ...NOTHING, position, next: position, isFork, isUnseen, readAtMs: nowMs };
  const fresh = pairsOf(ended as string[]);
  const overdue = due as string[];
  const audit = audited as StreamEntry[];
  const freshIds = fresh.map(([id]) => id);
  const contents = {
    entries,
    requests: [
      ...(await readEndedRequests(redis, position, freshIds, false)),
      ...(await readEndedRequests(redis, position, overdue, true)),
    ],
    changed: await readChangedRecords(redis, partition, pairsOf(changed as string[])),
    audit: audit.map((one) => auditRecord(partition, one)),
  };
  return {
    position,
    next: {
      ...position,
      newest: entries.at(-1) ?? newest,
      batch: position.batch + (hasRows(contents) ? randomInt(1, BATCH_STEP_MAX) : 0),
      audit: audit.at(-1)?.[0] ?? position.audit,
      looked: lookedAfter(position.looked, fresh, fresh.length >= each),
      due: overdue.length < each ? undefined : position.due! + overdue.length,
    },
    isFork: false,
    isUnseen: false,
    missingUntil: behindCut < 0 ? String(cut) : undefined,
    ...contents,
    readAtMs: nowMs,
    more: [
      ...[entries.length, fresh.length, overdue.length],
      ...[(changed as string[]).length / 2, audit.length],
    ].some((n) => n >= each),
  };
}

/** The score of the last page is looked at again: more may end in that millisecond. */
function lookedAfter(
  looked: ArchivePosition["looked"],
  page: readonly [id: string, score: string][],
  isFull: boolean,
): ArchivePosition["looked"] {
  const last = page.at(-1);
  if (!last) return { ...looked, times: 0 };
  const score = Number(last[1]);
  if (!isFull) return { score, times: 0 };
  const times = page.filter((one) => Number(one[1]) === score).length;
  return { score, times: score === looked.score ? looked.times + times : times };
}

export const hasRows = ({
  entries,
  requests,
  changed,
  audit,
}: Pick<ArchivePage, "entries" | "requests" | "changed" | "audit">): boolean =>
  entries.length + requests.length + changed.length + audit.length > 0;

export const isSameEntry = (one: LedgerEntry, other: LedgerEntry): boolean =>
  one.streamId === other.streamId &&
  one.accountId === other.accountId &&
  one.amount === other.amount &&
  one.balanceAfter === other.balanceAfter &&
  one.requestId === other.requestId &&
  one.reference === other.reference;
