import type { Redis } from "ioredis";
import type { SentCharge } from "../durability/losses/confirmed-charges.ts";
import { listLoss } from "../operations/store/operator-loss.ts";
import { partitionNames, partitionOf } from "../records/names.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import { readsOfMost } from "../redis/partition-reads.ts";
import { listPages } from "../redis/pipelines.ts";
import { partitionsOf } from "../redis/store-facts.ts";
import type { LedgerPart } from "../scripts/ledger.ts";
import { checkAccount, checkCharges } from "./account-check.ts";
import { partsOf } from "./charges.ts";
import { emptyFold, type LedgerFold, type Report, reportInto } from "./fold.ts";
import { verifyIndexes } from "./verify-indexes.ts";
import { dueWrong, endedWrong, verifyListed, verifyRequests } from "./verify-lists.ts";
import { addEntries, isWanted, type Run, readLedgerToEnd, type Verification } from "./verify-run.ts";

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
