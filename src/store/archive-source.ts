import { randomInt, randomUUID } from "node:crypto";
import type { ChainableCommander, Redis } from "ioredis";
import { type AuditRecord, auditRecord } from "./audit.ts";
import { readCut } from "./checkpoints.ts";
import type { Connection } from "./connection.ts";
import { compareIds } from "./entry-ids.ts";
import { membersOf, storeNowMs } from "./keys.ts";
import { LEDGER_START, type LedgerEntry, ledgerEntry, type StreamEntry } from "./ledger-entries.ts";
import { accountNames, archiveNames, keyNames, partitionNames, requestName } from "./names.ts";
import type { RedisNodes } from "./nodes.ts";
import { answersOf, many } from "./pipelines.ts";
import type { Primary } from "./primary.ts";
import type { AccountRecord, ArchiveRecord, KeyFields, RequestRecord } from "./records.ts";
import { type Archived, type ArchivedCall, archived } from "./scripts/archived.ts";
import { partitionsOf } from "./store-facts.ts";
import { type Trimmed, type TrimOptions, trimLedger } from "./trimming.ts";

/** What the archive has of a partition. */
export interface ArchivedState {
  /** The newest entry that counts; undefined for none. */
  newest: LedgerEntry | undefined;
  /** How many forks it has had. */
  forks: number;
  /** Id of the newest audit record; `LEDGER_START` for none. */
  audit: string;
  /** Number of its newest batch; 0 for none. */
  batch: number;
}

/** What a partition's reader has read so far, all of which the archive has. */
export interface ArchivePosition extends ArchivedState {
  readonly partition: number;
  /** Of the partition's record; see `ARCHIVE_FIELDS`. */
  readonly generation: string;
  /** What that record says of the archive. */
  readonly noted: { newest: string | undefined; batch: number };
  /** The score in `done` up to which ended requests were looked at, and how many of that score in full pages. */
  looked: { score: number; times: number };
  /** How many requests that may be collected were looked at; undefined unless that is asked for. */
  due: number | undefined;
}

/** An ended request, as its record is. */
export interface EndedRequest {
  requestId: string;
  record: RequestRecord;
}

/** An account or key, as its record is; one that the store has lost has no fields. `changes`: how many were noted before it was read. */
export type ChangedRecord = { what: string; changes: string } & (
  | { kind: "account"; accountId: string; record: AccountRecord }
  | { kind: "key"; keyId: string; record: KeyFields }
);

/** What a partition has that the archive has not. */
export interface ArchivePage {
  position: ArchivePosition;
  /** The position after this page. */
  next: ArchivePosition;
  /** Whether the ledger has lost the newest entry of the archive. Then nothing else is here. */
  isFork: boolean;
  /** Whether the store says of the archive what this reader has not seen. Then nothing else is here. */
  isUnseen: boolean;
  /** The last entry that has left the ledger, if the archive lacks some up to there; else undefined. */
  missingUntil: string | undefined;
  /** Oldest first. */
  entries: LedgerEntry[];
  requests: EndedRequest[];
  changed: ChangedRecord[];
  /** What operators changed, oldest first. */
  audit: AuditRecord[];
  /** When it was read by the store's clock, Unix ms. */
  readAtMs: number;
  /** Whether there may be more. */
  more: boolean;
}

const REQUEST_FIELDS_COPIED = [
  "state",
  "account_id",
  "key_id",
  "endpoint",
  "price",
  "status",
  "ended_by",
  "reason",
  "task_id",
  "admitted_at",
  "bound_at",
  "finished_at",
  "void_at",
  "uncollected",
  "archived",
] as const satisfies readonly (keyof RequestRecord)[];

/** The number of a batch is up to so much larger than the last one. No two batches have the same, also if one of them was lost. */
const BATCH_STEP_MAX = 2 ** 20;
/** Accounts or keys that are noted at a time. */
const LISTED_AT_ONCE = 500;

/** Pages of accounts and keys, each as `account <id>` or `key <id>`. */
export type NamedPages = AsyncIterable<readonly string[]>;

/** What is known of a partition before it is read. */
interface BeginOptions {
  archiveId: string;
  /** Its record in the store. */
  record: ArchiveRecord;
  /** What the archive has of it. */
  has: ArchivedState;
  /** The accounts and keys that the archive has of it. */
  listed: NamedPages;
}

/** The store is copied to another archive. */
export class OtherArchiveError extends Error {
  override readonly name = "OtherArchiveError";
}

/** Reasons of a void request whose BIND may still come. It is copied once it may be collected. */
const UNKNOWN_OUTCOMES: ReadonlySet<string | undefined> = new Set(["due", "released"]);

export type ArchiveSource = ReturnType<typeof createArchiveSource>;

/**
 * What an archive reads of the store, and what it notes there. Only partitions whose primary is usable are read.
 * @throws GatewayError `store_unavailable` from each
 */
export function createArchiveSource(connection: Connection) {
  return {
    storeId: (): string | undefined => connection.facts()?.id,
    /** Usable primaries, each with its partitions; without frozen ones. */
    primaries(): { primary: Primary; partitions: number[] }[] {
      const all = Array.from({ length: connection.facts()?.partitions ?? 0 }, (_, partition) => partition);
      const inUse = all.filter((partition) => !connection.isFrozen(partition));
      return connection.primaries().flatMap((primary) => {
        const partitions = inUse.filter((partition) => connection.of(partition) === primary);
        return primary.breaker.isOpen() || partitions.length === 0 ? [] : [{ primary, partitions }];
      });
    },
    takeTurns,
    endTurns,
    records,
    begin,
    renew,
    read: readPages,
    announce,
    oldestUncopied,
    entries: entriesOf,
    /** Id of the last entry that has left a ledger; `LEDGER_START` if none has. */
    cut: (primary: Primary, partition: number): Promise<string> =>
      primary.command(async (redis) => (await readCut(redis, partition)).lastEntry),
    /** Whether replicas have all that the primary has answered so far; true where that is not asked for. */
    async isConfirmed({ confirmation }: Primary): Promise<boolean> {
      return confirmation === undefined || (await confirmation.confirmed()) === "replicas";
    },
    trim: ({ run }: Primary, options: TrimOptions): Promise<Trimmed> => trimLedger(run, options),
    archived: (primary: Primary, call: ArchivedCall): Promise<Archived> =>
      primary.run(archived, call).then(({ outcome }) => outcome),
  };
}

/**
 * The partitions among these that this process copies. A turn ends by itself, so what another process has is taken over once
 * that has ended or hangs. Two processes may have a partition for a moment: the archive's primary keys decide.
 */
function takeTurns(
  primary: Primary,
  partitions: readonly number[],
  { holder, turnMs }: { holder: string; turnMs: number },
): Promise<number[]> {
  return primary.command(async (redis) => {
    const holders = await many<string | null, number>(redis, partitions, (pipe, partition) =>
      pipe.set(archiveNames(partition).archiver, holder, "PX", turnMs, "NX", "GET"),
    );
    const own = partitions.filter((_, at) => holders[at] === holder);
    await many(redis, own, (pipe, partition) => pipe.pexpire(archiveNames(partition).archiver, turnMs));
    return partitions.filter((_, at) => holders[at] === null || holders[at] === holder);
  });
}

/** Ends turns of this process, so that another one takes over at once. */
const endTurns = (primary: Primary, partitions: readonly number[], holder: string): Promise<void> =>
  primary.command(async (redis) => {
    const names = partitions.map((partition) => archiveNames(partition).archiver);
    const holders = await many<string | null, string>(redis, names, (pipe, name) => pipe.get(name));
    await many(
      redis,
      names.filter((_, at) => holders[at] === holder),
      (pipe, name) => pipe.del(name),
    );
  });

/** Those of these entries that the ledger has. */
const entriesOf = (primary: Primary, partition: number, ids: readonly string[]): Promise<LedgerEntry[]> =>
  primary.command(async (redis) => {
    const { ledger } = partitionNames(partition);
    const found = await many<StreamEntry[], string>(redis, ids, (pipe, id) => pipe.xrange(ledger, id, id));
    return found.flat().map((entry) => ledgerEntry(partition, entry));
  });

/**
 * Notes that an archive is in use, in a partition where that is not noted yet. From then on COLLECT keeps what the archive
 * has not got. All accounts and keys are noted as changed.
 * @returns where to read on
 */
async function begin(
  primary: Primary,
  partition: number,
  { archiveId, record, has, listed }: BeginOptions,
): Promise<ArchivePosition> {
  if (record.archive !== undefined && record.archive !== archiveId) throw new OtherArchiveError();
  if (record.archive === undefined || isOutOfStep(has, record)) {
    const renewed = await renew(primary, partition, archiveId);
    return begin(primary, partition, { archiveId, record: renewed, has, listed });
  }
  let noted = { newest: record.newest, batch: Number(record.batch ?? 0) };
  if (record.listed === undefined) {
    noted = { newest: has.newest?.streamId ?? noted.newest, batch: has.batch };
    await noteFirst(primary, partition, noted);
    await listAll(primary, partition, listed);
  }
  return {
    partition,
    generation: record.generation ?? "",
    noted,
    ...has,
    looked: { score: Number(record.looked_until ?? 0), times: 0 },
    due: 0,
  };
}

/** What the archive has when a generation begins: all of the store is copied again behind that. */
const noteFirst = (
  primary: Primary,
  partition: number,
  { newest, batch }: ArchivePosition["noted"],
): Promise<unknown> =>
  primary.command((redis) =>
    redis.hset(archiveNames(partition).archive, { batch, ...(newest === undefined ? {} : { newest }) }),
  );

/**
 * Whether the archive lacks what it once had, as after a restore from a backup, or the store lacks what was copied, as an older
 * copy of it does. The archive's newest batch is the one that is noted. Or it is the one that was announced behind that, and
 * its copier ended before it noted it: the store has all that was read for it, and still notes that as changed.
 */
function isOutOfStep({ newest, batch }: ArchivedState, record: ArchiveRecord): boolean {
  // Everything is to be listed.
  if (record.listed === undefined) return false;
  const isBehind = compareIds(newest?.streamId ?? LEDGER_START, record.newest ?? LEDGER_START) < 0;
  const noted = Number(record.batch ?? 0);
  return isBehind || (batch !== noted && record.writing !== writingOf(batch, noted));
}

const writingOf = (batch: number, noted: number): string => `${batch} after ${noted}`;

/**
 * Says in the store which batches are written next. A store that says so of the archive's newest batch is no older copy from
 * before that batch was read.
 */
const announce = (primary: Primary, pages: readonly ArchivePage[]): Promise<unknown> =>
  primary.command((redis) =>
    many(redis, pages, (pipe, { position: { partition, noted }, next }) =>
      pipe.hset(archiveNames(partition).archive, "writing", writingOf(next.batch, noted.batch)),
    ),
  );

/** What partitions' records say of their archive. */
const records = (primary: Primary, partitions: readonly number[]): Promise<Map<number, ArchiveRecord>> =>
  primary.command(async (redis) => {
    const found = await many<ArchiveRecord, number>(redis, partitions, (pipe, partition) =>
      pipe.hgetall(archiveNames(partition).archive),
    );
    return new Map(partitions.map((partition, at) => [partition, found[at]!]));
  });

/** Begins a new generation: accounts, keys and requests are copied again. */
async function renew(primary: Primary, partition: number, archiveId: string): Promise<ArchiveRecord> {
  const { archive } = archiveNames(partition);
  const record = { generation: randomUUID().slice(0, 8), archive: archiveId };
  await primary.command((redis) =>
    redis.hdel(archive, "listed", "newest", "batch", "writing", "looked_until"),
  );
  await primary.command((redis) => redis.hset(archive, record));
  return record;
}

/**
 * Notes all accounts and keys of a partition as changed, a page at a time.
 * @param archived those that the archive has: the store may have lost some of them
 */
async function listAll(primary: Primary, partition: number, archived: NamedPages): Promise<void> {
  const { archive } = archiveNames(partition);
  const { accounts } = partitionNames(partition);
  let cursor = "0";
  do {
    const [next, flat] = await primary.command((redis) =>
      redis.zscan(accounts, cursor, "COUNT", LISTED_AT_ONCE),
    );
    const accountIds = membersOf(flat);
    const keys = await primary.command((redis) =>
      many<string[], string>(redis, accountIds, (pipe, accountId) =>
        pipe.zrange(accountNames(partition, accountId).keys, "0", "-1"),
      ),
    );
    await noteChanged(primary, partition, [
      ...accountIds.map((id) => `account ${id}`),
      ...keys.flat().map((id) => `key ${id}`),
    ]);
    cursor = next;
  } while (cursor !== "0");
  for await (const page of archived) await noteChanged(primary, partition, page);
  await primary.command((redis) => redis.hset(archive, "listed", "1"));
}

async function noteChanged(primary: Primary, partition: number, all: readonly string[]): Promise<void> {
  const { changed } = archiveNames(partition);
  for (let at = 0; at < all.length; at += LISTED_AT_ONCE) {
    const some = all.slice(at, at + LISTED_AT_ONCE);
    await primary.command((redis) => many(redis, some, (pipe, what) => pipe.hincrby(changed, what, 1)));
  }
}

/** Up to about `most` entries, requests and changed records each, of several partitions of one primary. */
function readPages(
  primary: Primary,
  positions: readonly ArchivePosition[],
  most: number,
): Promise<ArchivePage[]> {
  const each = Math.max(1, Math.floor(most / positions.length));
  return primary.command(async (redis) => {
    const nowMs = await storeNowMs(redis);
    const pipe = redis.pipeline();
    for (const position of positions) askFor(pipe, position, each, nowMs);
    const answers = answersOf<unknown>(await pipe.exec());
    return Promise.all(
      positions.map((position, at) =>
        pageOf(redis, position, answers.slice(7 * at, 7 * at + 7), { each, nowMs }),
      ),
    );
  });
}

/** Seven commands, whose answers `pageOf` reads. */
function askFor(pipe: ChainableCommander, position: ArchivePosition, each: number, nowMs: number): void {
  const { partition, newest, looked, due } = position;
  const { ledger, done, trimmed, audit } = partitionNames(partition);
  // The newest entry again: it must still be there.
  pipe.xrange(ledger, newest?.streamId ?? LEDGER_START, "+", "COUNT", newest ? each + 1 : each);
  pipe.zrangebyscore(done, looked.score, "+inf", "WITHSCORES", "LIMIT", looked.times, each);
  pipe.zrangebyscore(done, "-inf", nowMs, "LIMIT", due ?? 0, due === undefined ? 0 : each);
  pipe.hrandfield(archiveNames(partition).changed, each, "WITHVALUES");
  pipe.hget(trimmed, "last_entry");
  pipe.xrange(audit, `(${position.audit}`, "+", "COUNT", each);
  pipe.hmget(archiveNames(partition).archive, "generation", "batch");
}

async function pageOf(
  redis: Redis,
  position: ArchivePosition,
  [stream, ended, due, changed, cut, audited, record]: unknown[],
  { each, nowMs }: { each: number; nowMs: number },
): Promise<ArchivePage> {
  const { partition, newest } = position;
  const found = (stream as StreamEntry[]).map((entry) => ledgerEntry(partition, entry));
  // What the archive lacked when it left the ledger is nowhere: an archive that was restored from a backup, or a new one.
  const behindCut = cut === null ? 1 : compareIds(newest?.streamId ?? LEDGER_START, String(cut));
  const isInLedger = newest !== undefined && behindCut > 0;
  const entries = isInLedger ? found.slice(1) : found;
  const isFork = isInLedger && !(found[0] && isSameEntry(found[0], newest));
  // Also in a page that has nothing else: the store may be an older copy by now.
  const [generation, batch] = record as (string | null)[];
  const isUnseen = generation !== position.generation || Number(batch ?? 0) !== position.noted.batch;
  if (isFork || isUnseen)
    return {
      position,
      next: position,
      isFork,
      isUnseen,
      missingUntil: undefined,
      entries: [],
      requests: [],
      changed: [],
      audit: [],
      more: false,
      readAtMs: nowMs,
    };
  const fresh = pairs(ended as string[]);
  const overdue = due as string[];
  const audit = audited as StreamEntry[];
  const freshIds = fresh.map(([id]) => id);
  const contents = {
    entries,
    requests: [
      ...(await readRequests(redis, position, freshIds, false)),
      ...(await readRequests(redis, position, overdue, true)),
    ],
    changed: await readChanged(redis, partition, pairs(changed as string[])),
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

/** Whether a page has anything that is written to the archive. */
export const hasRows = ({
  entries,
  requests,
  changed,
  audit,
}: Pick<ArchivePage, "entries" | "requests" | "changed" | "audit">): boolean =>
  entries.length + requests.length + changed.length + audit.length > 0;

/** Whether an entry of the ledger is the one that the archive has under its id. */
export const isSameEntry = (one: LedgerEntry, other: LedgerEntry): boolean =>
  one.streamId === other.streamId &&
  one.accountId === other.accountId &&
  one.amount === other.amount &&
  one.balanceAfter === other.balanceAfter &&
  one.requestId === other.requestId &&
  one.reference === other.reference;

/**
 * Requests of the same score may be in several pages. After the last page its score is looked at again: more may end in
 * that millisecond, and Redis lists those of the same score by their ids.
 */
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

/** Those among these that have ended and that the archive has not got as they are now. */
async function readRequests(
  redis: Redis,
  { partition, generation }: ArchivePosition,
  ids: readonly string[],
  isDue: boolean,
): Promise<EndedRequest[]> {
  const rows = await many<(string | null)[], string>(redis, ids, (pipe, id) =>
    pipe.hmget(requestName(partition, id), ...REQUEST_FIELDS_COPIED),
  );
  return rows.flatMap((row, at) => {
    const record = recordWith(row);
    const { state, reason } = record;
    if (state !== "finished" && state !== "void") return [];
    if (record.archived === `${generation} ${state}`) return [];
    if (state === "void" && !isDue && UNKNOWN_OUTCOMES.has(reason)) return [];
    return [{ requestId: ids[at]!, record }];
  });
}

const recordWith = (row: readonly (string | null)[]): RequestRecord =>
  Object.fromEntries(
    REQUEST_FIELDS_COPIED.flatMap((field, at) => (row[at] == null ? [] : [[field, row[at]]])),
  );

async function readChanged(
  redis: Redis,
  partition: number,
  noted: readonly [what: string, changes: string][],
): Promise<ChangedRecord[]> {
  const places = noted.map(([what, changes]) => {
    const [kind = "", id = ""] = what.split(" ");
    const isAccount = kind === "account";
    const name = isAccount ? accountNames(partition, id).account : keyNames(partition, id).key;
    return { what, changes, isAccount, id, name };
  });
  const records = await many<Readonly<Record<string, string>>, { name: string }>(
    redis,
    places,
    (pipe, { name }) => pipe.hgetall(name),
  );
  return places.map(({ what, changes, isAccount, id }, at) =>
    isAccount
      ? { what, changes, kind: "account", accountId: id, record: records[at]! }
      : { what, changes, kind: "key", keyId: id, record: records[at]! },
  );
}

/** Two values each of a flat list. */
function pairs(flat: readonly string[]): [string, string][] {
  return Array.from({ length: flat.length / 2 }, (_, at) => [flat[2 * at]!, flat[2 * at + 1]!]);
}

/** When the oldest entry was made that the archive is not known to have, Unix ms; undefined if it has all. */
async function oldestUncopied(
  primary: Primary,
  partitions: readonly number[],
): Promise<(number | undefined)[]> {
  return primary.command(async (redis) => {
    const noted = await many<string | null, number>(redis, partitions, (pipe, partition) =>
      pipe.hget(archiveNames(partition).archive, "newest"),
    );
    const firsts = await many<StreamEntry[], number>(redis, [...partitions.keys()], (pipe, at) =>
      pipe.xrange(partitionNames(partitions[at]!).ledger, `(${noted[at] ?? LEDGER_START}`, "+", "COUNT", 1),
    );
    return firsts.map(([first], at) => first && ledgerEntry(partitions[at]!, first).atMs);
  });
}

/** Ends the use of an archive: nothing is noted or kept for it any more. @returns how many partitions had one */
export async function detachArchive(nodes: RedisNodes): Promise<number> {
  nodes.requireWritable?.(nodes.all());
  const partitions = await partitionsOf(nodes);
  let detached = 0;
  for (let partition = 0; partition < partitions; partition++) {
    const { archive, changed, archiver } = archiveNames(partition);
    const redis = nodes.of(partition);
    detached += await redis.del(archive);
    await redis.del(changed, archiver);
  }
  return detached;
}
