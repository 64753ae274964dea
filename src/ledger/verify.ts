import type { ChainableCommander, Redis } from "ioredis";
import { isLater } from "../store/entry-ids.ts";
import { LEDGER_PAGE, type LedgerEntry } from "../store/ledger-entries.ts";
import type { SentCharge } from "../store/loss/confirmed-charges.ts";
import { keyNames, partitionNames, partitionOf, requestName } from "../store/names.ts";
import type { RedisNodes } from "../store/nodes.ts";
import { listLoss } from "../store/operator-loss.ts";
import { type PartitionReads, readsOfMost, type Unread } from "../store/partition-reads.ts";
import { answersOf, many } from "../store/pipelines.ts";
import type { RequestRecord } from "../store/records.ts";
import { scriptsOf } from "../store/script-runner.ts";
import { entries, type LedgerPart } from "../store/scripts/entries.ts";
import { listPages } from "../store/sorted-set-pages.ts";
import { partitionsOf } from "../store/store-facts.ts";
import { checkSnapshot, type Snapshot, sumReferences, takeSnapshot } from "./account-check.ts";
import {
  addEntry,
  compareRecord,
  emptyAccount,
  emptyFold,
  type Findings,
  goOnFrom,
  type Invariant,
  type LedgerFold,
  type Report,
  reportInto,
} from "./fold.ts";

export type { Invariant, Violation } from "./fold.ts";

/** An account that is credited faster than its references are read is compared by their number alone. */
const REFERENCE_TRIES_MAX = 5;

export interface Verification extends Findings {
  /** Accounts that were compared, and their ledger entries; of those that have left the ledger, what the checkpoints say. */
  accounts: number;
  entries: number;
  /** Credits that these entries moved, by what they were; all positive. */
  credits: { recharged: number; consumed: number; refunded: number; adjusted: number };
  /** Partitions of which not everything could be compared, because their servers are away. */
  unread?: Unread;
}

/** What the gateways of a machine have written down beside the store. */
export interface KnownHere {
  /** The journal's. */
  folder: string;
  /** Charges that wait in that folder's journal. */
  waiting: readonly SentCharge[];
}

/** One run: what it reads from, whom it asks about, and what it has found. */
interface Run {
  nodes: RedisNodes;
  reads: PartitionReads;
  partitions: number;
  /** Undefined for all accounts. */
  wanted: ReadonlySet<string> | undefined;
  /** Whether any of them lives in this partition. */
  has(partition: number): boolean;
  report: Report;
  result: Verification;
  /** Says that the run goes on; called after each page or account. */
  step(): void;
}

/**
 * Compares everything that the store can show with the invariants of docs/ARCHITECTURE.md, while traffic goes on: each
 * account as it is at one instant, with the ledger up to that instant. Memory grows with one partition's requests.
 * @param nodes get some thousand commands; better not the gateway's own connection
 * @param options.accountIds only these accounts
 * @param options.here what this machine knows of the store, beside what the store says itself
 * @param options.seen told after each page of work how far it is
 */
export async function verifyLedger(
  nodes: RedisNodes,
  options: {
    accountIds?: readonly string[] | undefined;
    here?: KnownHere | undefined;
    seen?: (partitions: { done: number; all: number }, result: Verification) => void;
  } = {},
): Promise<Verification> {
  const credits = { recharged: 0, consumed: 0, refunded: 0, adjusted: 0 };
  const result: Verification = { ok: true, accounts: 0, entries: 0, credits, violations: [] };
  const wanted = options.accountIds && new Set(options.accountIds);
  const report = reporter(result, wanted);
  const partitions = await partitionsOf(nodes);
  const places = wanted && new Set([...wanted].map((accountId) => partitionOf(accountId, partitions)));
  const has = (partition: number): boolean => !places || places.has(partition);
  let done = 0;
  const step = (): void => options.seen?.({ done, all: partitions }, result);
  const reads = readsOfMost(nodes);
  const run: Run = { nodes, reads, partitions, wanted, has, report, result, step };
  for (let partition = 0; partition < partitions; partition++) {
    if (has(partition)) await reads.at(partition, (redis) => verifyPartition(run, redis, partition));
    done = partition + 1;
    step();
  }
  await verifyRequests(run);
  await verifyHistory(run, options.here);
  const unread = reads.unread();
  return unread ? { ...result, ok: false, unread } : result;
}

/** What the store is known to have lost, and nobody sends again. What an operator has accepted is not known any more. */
async function verifyHistory(
  { nodes, reads, report, step }: Run,
  here: KnownHere | undefined,
): Promise<void> {
  const loss = await listLoss(nodes, here?.folder, here?.waiting ?? [], reads);
  const sentAgain = new Set(loss?.charges.map(({ requestId }) => requestId));
  for (const { kind, accountId, requestId, credits, reference, atMs } of loss?.lost.entries ?? []) {
    // A refund is made again by the next poll or sweep.
    if ((kind === "refund" && reference === "") || (requestId !== undefined && sentAgain.has(requestId)))
      continue;
    const what = reference === "" ? kind : `${kind} ${reference}`;
    const at = new Date(atMs).toISOString();
    report(
      "lost",
      accountId,
      `the ${what} of ${credits} at ${at} is lost; see \`tollgate store show\``,
      requestId,
    );
  }
  step();
}

/** Only what concerns these accounts is reported; undefined for all. */
function reporter(result: Verification, wanted: ReadonlySet<string> | undefined): Report {
  const report = reportInto(result);
  return wanted ? (...found) => wanted.has(found[1]) && report(...found) : report;
}

async function verifyPartition(run: Run, redis: Redis, partition: number): Promise<void> {
  const { report, result } = run;
  const fold = emptyFold();
  const { accounts, holds, polls, done } = partitionNames(partition);
  await readOn(run, partition, fold);
  const inLedger = [...fold.accounts.keys()];
  const listed = new Set<string>();
  for await (const page of listPages(redis, accounts)) for (const accountId of page) listed.add(accountId);
  for (const accountId of inLedger) {
    if (!listed.has(accountId)) report("accounts", accountId, "has ledger entries, but is not listed");
  }
  for (const accountId of new Set([...listed, ...inLedger])) {
    if (!isWanted(run, accountId)) continue;
    result.accounts++;
    const add = (part: LedgerPart): Promise<void> => addEntries(run, partition, fold, part);
    let snapshot: Snapshot;
    let referenced: number | undefined;
    let tries = 0;
    do {
      snapshot = await takeSnapshot(redis, partition, accountId, fold, add);
      await add(snapshot.tail);
      referenced = await sumReferences(redis, partition, accountId, snapshot.references);
    } while (referenced === undefined && ++tries < REFERENCE_TRIES_MAX);
    if (snapshot.checkpoint) goOnFrom(fold, accountId, snapshot.checkpoint, report);
    checkSnapshot(
      accountId,
      snapshot,
      referenced,
      fold,
      fold.accounts.get(accountId) ?? emptyAccount(),
      report,
    );
    run.step();
  }
  await verifyListed(run, partition, fold, done, "requests", (request) => endedWrong(fold, request));
  for (const [list, state] of [
    [holds, "held"],
    [polls, "bound"],
  ] as const) {
    await verifyListed(run, partition, fold, list, "due", ({ record }) =>
      record.state === state ? undefined : `is due, but ${record.state ?? "unknown"}`,
    );
  }
  for (const [accountId, { entries, recharged, consumed, refunded, adjusted }] of fold.accounts) {
    if (!isWanted(run, accountId)) continue;
    result.entries += entries;
    result.credits.recharged += recharged;
    result.credits.consumed += consumed;
    result.credits.refunded += refunded;
    result.credits.adjusted += adjusted;
  }
}

/** Reads a partition's ledger on to its end. */
async function readOn(run: Run, partition: number, fold: LedgerFold): Promise<void> {
  const { run: runScript } = scriptsOf(run.nodes.of(partition));
  let part: LedgerPart;
  do {
    part = await runScript(entries, { partition, after: fold.lastId });
    await addEntries(run, partition, fold, part);
    run.step();
  } while (part.entries.length === LEDGER_PAGE);
}

async function addEntries(
  run: Run,
  partition: number,
  fold: LedgerFold,
  { entries, cut, before }: LedgerPart,
): Promise<void> {
  const { nodes, report } = run;
  const comparable = entries.filter((entry) => {
    const { accountId, streamId, previous } = entry;
    const checkpoint = before.get(accountId);
    if (checkpoint?.entry === previous) goOnFrom(fold, accountId, checkpoint, report);
    if (!isLater(streamId, cut))
      report("chain", accountId, `entry ${streamId} is there, but ${cut} has left`);
    return addEntry(fold, entry, report);
  });
  const ofRequests = comparable.filter((entry) => isWanted(run, entry.accountId));
  const records = await many<RequestRecord, LedgerEntry>(
    nodes.of(partition),
    ofRequests,
    (pipe, { requestId }) => pipe.hgetall(requestName(partition, requestId)),
  );
  for (const [at, entry] of ofRequests.entries()) compareRecord(fold, entry, records[at] ?? {}, report);
}

/**
 * Checks that each listed request belongs in its list: a request in `done` has ended and was charged what it should, one in
 * `holds` is held, one in `polls` is bound. Invariants 2 and 3.
 * @param wrong what is wrong with a request of this list, in words
 */
async function verifyListed(
  run: Run,
  partition: number,
  fold: LedgerFold,
  list: string,
  invariant: Invariant,
  wrong: (request: ListedRequest) => string | undefined,
): Promise<void> {
  const { nodes, report } = run;
  const redis = nodes.of(partition);
  for await (const ids of sortedSetPages(redis, list)) {
    run.step();
    const suspects = (await recordsOf(run, partition, ids)).filter(wrong);
    if (suspects.length === 0) continue;
    // Some of it may just have happened: the ledger up to now, then the records again.
    await readOn(run, partition, fold);
    for (const { id } of suspects) {
      const name = requestName(partition, id);
      const still = await readStill<[string | null]>(redis, name, (pipe) => pipe.zscore(list, id));
      if (!still) continue;
      const [record, score] = still;
      const message = wrong({ id, record });
      if (message && score !== null) report(invariant, record.account_id ?? "", message, id);
    }
  }
}

interface ListedRequest {
  id: string;
  record: RequestRecord;
}

/** What is wrong with an ended request, in words. */
function endedWrong(fold: LedgerFold, { id, record }: ListedRequest): string | undefined {
  switch (record.state) {
    case "held":
    case "bound":
      return `is ${record.state}, but kept among those that have ended`;
    case "finished":
      if (record.uncollected !== undefined || fold.charged.has(id)) return undefined;
      if (record.trimmed_charge !== undefined) return undefined;
      return "is finished, but was never charged";
    default:
      return undefined;
  }
}

/** Every open request is due and has its slot: the only way to find one that is in neither. Invariant 3. */
async function verifyRequests(run: Run): Promise<void> {
  const { nodes, reads, partitions, has } = run;
  for (const redis of nodes.all()) {
    const own = Array.from({ length: partitions }, (_, partition) => partition).filter(
      (partition) => nodes.of(partition) === redis && has(partition),
    );
    await reads.onServer(own, () => verifyRequestsOn(run, redis));
  }
}

/** The same for the requests of one server. */
async function verifyRequestsOn(run: Run, redis: Redis): Promise<void> {
  for await (const page of redis.scanStream({ match: "tg:{p*}:request:*", count: 1000 })) {
    run.step();
    const places = (page as string[]).flatMap((name) => requestPlace(name) ?? []);
    const among = places.filter(
      ({ partition }) =>
        partition < run.partitions && run.has(partition) && run.nodes.of(partition) === redis,
    );
    const records = await many<(string | null)[], Place>(redis, among, (pipe, { partition, id }) =>
      pipe.hmget(requestName(partition, id), "state", "account_id"),
    );
    for (const [at, place] of among.entries()) {
      const [state, accountId] = records[at] ?? [];
      if (!isOpen({ state: state ?? "" }) || !isWanted(run, accountId ?? "")) continue;
      await verifyOpen(run, place);
    }
  }
}

async function verifyOpen({ nodes, report }: Run, { partition, id }: Place): Promise<void> {
  const redis = nodes.of(partition);
  const name = requestName(partition, id);
  const keyId = (await redis.hget(name, "key_id")) ?? "";
  const { holds, polls } = partitionNames(partition);
  const { slots } = keyNames(partition, keyId);
  const still = await readStill<[string | null, string | null, number]>(redis, name, (pipe) =>
    pipe.zscore(holds, id).zscore(polls, id).sismember(slots, id),
  );
  if (!still) return;
  const [record, hold, poll, slot] = still;
  if (!isOpen(record)) return;
  const due = record.state === "held" ? hold : poll;
  const accountId = record.account_id ?? "";
  if (due === null) report("due", accountId, `is ${record.state}, but not among those that are due`, id);
  if (slot === 0) report("slots", accountId, `is ${record.state}, but has no slot of ${keyId}`, id);
}

interface Place {
  partition: number;
  id: string;
}

function requestPlace(name: string): Place | undefined {
  const [, digits, id] = /^tg:\{p(\d+)\}:request:(.*)$/s.exec(name) ?? [];
  return id === undefined ? undefined : { partition: Number(digits), id };
}

const isWanted = ({ wanted }: Run, accountId: string): boolean => !wanted || wanted.has(accountId);

const isOpen = (record: RequestRecord): boolean => record.state === "held" || record.state === "bound";

/** The records behind some ids; with a choice of accounts, only theirs and those without a record. */
async function recordsOf({ nodes, wanted }: Run, partition: number, ids: string[]) {
  const records = await many<RequestRecord, string>(nodes.of(partition), ids, (pipe, id) =>
    pipe.hgetall(requestName(partition, id)),
  );
  return ids
    .map((id, at) => ({ id, record: records[at] ?? {} }))
    .filter(({ record }) => !wanted || record.account_id === undefined || wanted.has(record.account_id));
}

async function* sortedSetPages(redis: Redis, name: string): AsyncGenerator<string[]> {
  for await (const page of redis.zscanStream(name, { count: 1000 }) as AsyncIterable<string[]>) {
    yield page.filter((_, at) => at % 2 === 0);
  }
}

/**
 * Reads a request's record and related data at one state of the request. A request never returns to a state that it has
 * left, so the same state before and after the reads held during them. Undefined if it changed; the next run checks it.
 * No MULTI: a Redis without memory refuses even reads there.
 */
async function readStill<Answers extends unknown[]>(
  redis: Redis,
  name: string,
  reads: (pipe: ChainableCommander) => ChainableCommander,
): Promise<[RequestRecord, ...Answers] | undefined> {
  const pipe = reads(redis.pipeline().hgetall(name)).hget(name, "state");
  const answers = answersOf<unknown>(await pipe.exec());
  const stateAfter = answers.pop();
  const read = answers as [RequestRecord, ...Answers];
  return (read[0].state ?? null) === stateAfter ? read : undefined;
}
