import type { Redis } from "ioredis";
import type { SentCharge } from "../durability/losses/confirmed-charges.ts";
import { listLoss } from "../operations/store/operator-loss.ts";
import {
  type DueList,
  dueTime,
  keyNames,
  partitionNames,
  partitionOf,
  requestName,
} from "../records/names.ts";
import { type RequestRecord, requestOf } from "../records/records.ts";
import { readsOfMost } from "../redis/partition-reads.ts";
import { listPages, many, pairsOf } from "../redis/pipelines.ts";
import { partitionsOf, type RedisNodes } from "../redis/store-facts.ts";
import type { LedgerPart } from "../scripts/ledger.ts";
import { checkAccount, checkCharges } from "./account-check.ts";
import { partsOf } from "./charges.ts";
import { emptyFold, type Invariant, isCharged, type LedgerFold, type Report, reportInto } from "./fold.ts";
import { isOpen } from "./key-check.ts";
import { verifyIndexes } from "./verify-indexes.ts";
import {
  addEntries,
  isWanted,
  type Run,
  readConsistently,
  readLedgerToEnd,
  readRequests,
  type Verification,
} from "./verify-run.ts";

export interface KnownHere {
  folder: string;
  waiting(): readonly SentCharge[];
}

/**
 * Checks the invariants of docs/ARCHITECTURE.md under traffic. Memory grows with a partition's accounts and keys. Decision 0064.
 * @param nodes get thousands of commands: a connection of its own @param options.rest awaited after each page; an error ends the run
 */
export async function verifyLedger(
  nodes: RedisNodes,
  options: {
    accountIds?: readonly string[] | undefined;
    chargesAtOnce?: number;
    here?: KnownHere | undefined;
    seen?: (partitions: { done: number; all: number }, result: Verification) => void;
    rest?: () => Promise<void>;
  } = {},
): Promise<Verification> {
  const credits = { recharged: 0, consumed: 0, refunded: 0, adjusted: 0, reversed: 0 };
  const result: Verification = { ok: true, accounts: 0, entries: 0, credits, violations: [] };
  const wanted = options.accountIds && new Set(options.accountIds);
  const report = reporter(result, wanted);
  const partitions = await partitionsOf(nodes);
  const places = wanted && new Set([...wanted].map((accountId) => partitionOf(accountId, partitions)));
  const has = (partition: number): boolean => !places || places.has(partition);
  let done = 0;
  const step = async (): Promise<void> => {
    options.seen?.({ done, all: partitions }, result);
    await options.rest?.();
  };
  const reads = readsOfMost(nodes);
  const run: Run = { nodes, reads, partitions, wanted, has, report, result, step };
  for (let partition = 0; partition < partitions; partition++) {
    if (has(partition))
      await reads.at(partition, (redis) => verifyPartition(run, redis, partition, options.chargesAtOnce));
    done = partition + 1;
    await step();
  }
  await verifyRequests(run);
  await verifyHistory(run, options.here);
  const unread = reads.unread();
  return unread ? { ...result, ok: false, unread } : result;
}

/** Reports known losses that nobody sends again or has accepted. */
async function verifyHistory(
  { nodes, reads, report, step }: Run,
  here: KnownHere | undefined,
): Promise<void> {
  const loss = await listLoss(nodes, here?.folder, here?.waiting ?? (() => []), reads);
  const sentAgain = new Set(loss?.charges.map(({ requestId }) => requestId));
  for (const { kind, accountId, requestId, credits, reference, atMs } of loss?.lost.entries ?? []) {
    // The next poll or sweep repeats a refund.
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
  await step();
}

function reporter(result: Verification, wanted: ReadonlySet<string> | undefined): Report {
  const report = reportInto(result);
  return wanted ? (...found) => wanted.has(found[1]) && report(...found) : report;
}

async function verifyPartition(
  run: Run,
  redis: Redis,
  partition: number,
  chargesAtOnce: number | undefined,
): Promise<void> {
  const parts = partsOf(await redis.xlen(partitionNames(partition).ledger), chargesAtOnce);
  const refundsOfLeft: LedgerFold["refundsOfLeft"] = new Map();
  for (let part = 0; part < parts; part++) {
    const fold = emptyFold(part, parts, refundsOfLeft);
    await readLedgerToEnd(run, partition, fold);
    await verifyAccounts(run, redis, partition, fold);
    const { done } = partitionNames(partition);
    await verifyListed(run, partition, fold, done, "requests", (request) => endedWrong(fold, request));
    if (fold.isFirst) await verifyOnce(run, partition, fold);
  }
  await verifyIndexes(run, redis, partition);
}

async function verifyAccounts(run: Run, redis: Redis, partition: number, fold: LedgerFold): Promise<void> {
  const { report, result } = run;
  const inLedger = [...fold.accounts.keys()];
  const listed = new Set<string>();
  for await (const page of listPages(redis, partitionNames(partition).accounts)) {
    for (const accountId of page) listed.add(accountId);
  }
  const add = (part: LedgerPart): Promise<void> => addEntries(run, partition, fold, part);
  for (const accountId of new Set([...listed, ...inLedger])) {
    if (!isWanted(run, accountId)) continue;
    const place = { redis, partition, accountId, fold, report };
    if (!fold.isFirst) {
      await checkCharges(run, place, add);
      continue;
    }
    if (!listed.has(accountId)) report("accounts", accountId, "has ledger entries, but is not listed");
    result.accounts++;
    await checkAccount(run, place, add);
    await run.step();
  }
}

async function verifyOnce(run: Run, partition: number, fold: LedgerFold): Promise<void> {
  await verifyListed(run, partition, fold, partitionNames(partition).due, "due", dueWrong);
  const { result } = run;
  for (const [accountId, account] of fold.accounts) {
    if (!isWanted(run, accountId)) continue;
    result.entries += account.entries;
    for (const name of Object.keys(result.credits) as (keyof Verification["credits"])[])
      result.credits[name] += account[name];
  }
}

/** Checks that each request in a list belongs there. Invariants 2 and 3. */
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
  for await (const listed of sortedSetPages(redis, list)) {
    await run.step();
    const suspects = (await recordsOf(run, partition, listed)).filter(wrong);
    if (suspects.length === 0) continue;
    // It may have just happened: read ledger and records again.
    await readLedgerToEnd(run, partition, fold);
    const found = await readConsistently<[string | null], ListedRequest>(
      redis,
      suspects,
      ({ id }) => requestName(partition, id),
      (pipe, { id }) => pipe.zscore(list, id),
    );
    for (const [at, still] of found.entries()) {
      if (!still) continue;
      const [record, score] = still;
      const { id } = suspects[at]!;
      if (score === null) continue;
      const message = wrong({ id, record, score: Number(score) });
      if (message) report(invariant, record.account_id ?? "", message, id);
    }
  }
}

interface Listed {
  id: string;
  score: number;
}

interface ListedRequest extends Listed {
  record: RequestRecord;
}

function dueWrong({ record, score }: ListedRequest): string | undefined {
  const state = dueTime(score).list === "holds" ? "held" : "bound";
  return record.state === state ? undefined : `is due, but ${record.state ?? "unknown"}`;
}

function endedWrong(fold: LedgerFold, { id, record }: ListedRequest): string | undefined {
  switch (record.state) {
    case "held":
    case "bound":
      return fold.isFirst ? `is ${record.state}, but kept among those that have ended` : undefined;
    case "finished":
      if (record.uncollected !== undefined || isCharged(fold, id)) return undefined;
      if (record.trimmed_charge !== undefined) return undefined;
      return "is finished, but was never charged";
    default:
      return undefined;
  }
}

async function recordsOf({ nodes, wanted }: Run, partition: number, listed: readonly Listed[]) {
  const ids = listed.map(({ id }) => id);
  const records = await readRequests(nodes.of(partition), partition, ids);
  return listed
    .map((one, at) => ({ ...one, record: records[at]! }))
    .filter(({ record }) => !wanted || record.account_id === undefined || wanted.has(record.account_id));
}

async function* sortedSetPages(redis: Redis, name: string): AsyncGenerator<Listed[]> {
  for await (const page of redis.zscanStream(name, { count: 500 }) as AsyncIterable<string[]>) {
    yield pairsOf(page).map(([id, score]) => ({ id, score: Number(score) }));
  }
}

/** Every open request is in a list and has its slot. Invariant 3. */
async function verifyRequests(run: Run): Promise<void> {
  const { nodes, reads, partitions, has } = run;
  for (const redis of nodes.all()) {
    const own = Array.from({ length: partitions }, (_, partition) => partition).filter(
      (partition) => nodes.of(partition) === redis && has(partition),
    );
    await reads.onServer(own, () => verifyRequestsOn(run, redis));
  }
}

async function verifyRequestsOn(run: Run, redis: Redis): Promise<void> {
  for await (const page of redis.scanStream({ match: "tg:{p*}:request:*", count: 500 })) {
    await run.step();
    const places = (page as string[]).flatMap((name) => requestPlace(name) ?? []);
    const among = places.filter(
      ({ partition }) =>
        partition < run.partitions && run.has(partition) && run.nodes.of(partition) === redis,
    );
    const records = await many<string | null, Place>(redis, among, (pipe, { partition, id }) =>
      pipe.get(requestName(partition, id)),
    );
    const open = among.flatMap((place, at) => {
      const { state, account_id: accountId = "", key_id: keyId = "" } = requestOf(records[at]);
      return isOpen(state) && isWanted(run, accountId) ? [{ ...place, keyId }] : [];
    });
    await verifyOpen(run, redis, open);
  }
}

async function verifyOpen(
  { report }: Run,
  redis: Redis,
  places: readonly (Place & { keyId: string })[],
): Promise<void> {
  const found = await readConsistently<[string | null, number], Place & { keyId: string }>(
    redis,
    places,
    ({ partition, id }) => requestName(partition, id),
    (pipe, { partition, id, keyId }) => {
      return pipe.zscore(partitionNames(partition).due, id).sismember(keyNames(partition, keyId).slots, id);
    },
  );
  for (const [at, still] of found.entries()) {
    const [record, score, slot] = still ?? [];
    if (!record || !isOpen(record.state)) continue;
    const { id, keyId } = places[at]!;
    const list = record.state === "held" ? "holds" : "polls";
    const accountId = record.account_id ?? "";
    if (!isListed(list, score))
      report("due", accountId, `is ${record.state}, but not among those that are due`, id);
    if (slot === 0 && record.unmetered === undefined)
      report("slots", accountId, `is ${record.state}, but has no slot of ${keyId}`, id);
  }
}

const isListed = (list: DueList, score: string | null | undefined): boolean =>
  typeof score === "string" && dueTime(Number(score)).list === list;

interface Place {
  partition: number;
  id: string;
}

function requestPlace(name: string): Place | undefined {
  const [, digits, id] = /^tg:\{p(\d+)\}:request:(.*)$/s.exec(name) ?? [];
  return id === undefined ? undefined : { partition: Number(digits), id };
}
