import type { ChainableCommander, Redis } from "ioredis";
import { isLater } from "../records/ledger-entries.ts";
import { requestName } from "../records/names.ts";
import { type RequestRecord, requestOf } from "../records/records.ts";
import type { PartitionReads, Unread } from "../redis/partition-reads.ts";
import { answersOf, many } from "../redis/pipelines.ts";
import { scriptsOf } from "../redis/script-runner.ts";
import type { RedisNodes } from "../redis/store-facts.ts";
import { ENTRIES_AT_ONCE, entries, type LedgerPart } from "../scripts/ledger.ts";
import { addEntry, compareRecord, type Findings, type LedgerFold, type Report, resumeAt } from "./fold.ts";

export interface Verification extends Findings {
  /** Trimmed entries count by their checkpoints. */
  accounts: number;
  entries: number;
  credits: Record<"recharged" | "consumed" | "refunded" | "adjusted" | "reversed", number>;
  unread?: Unread;
}

export interface Run {
  nodes: RedisNodes;
  reads: PartitionReads;
  partitions: number;
  wanted: ReadonlySet<string> | undefined;
  has(partition: number): boolean;
  report: Report;
  result: Verification;
  step(): Promise<void>;
}

export const isWanted = ({ wanted }: Run, accountId: string): boolean => !wanted || wanted.has(accountId);

export const readRequests = async (
  redis: Redis,
  partition: number,
  ids: readonly string[],
): Promise<RequestRecord[]> =>
  (await many<string | null, string>(redis, ids, (pipe, id) => pipe.get(requestName(partition, id)))).map(
    requestOf,
  );

export async function readLedgerToEnd(run: Run, partition: number, fold: LedgerFold): Promise<void> {
  const { run: runScript } = scriptsOf(run.nodes.of(partition));
  let part: LedgerPart;
  do {
    part = await runScript(entries, { partition, after: fold.lastId });
    await addEntries(run, partition, fold, part);
    await run.step();
  } while (part.entries.length === ENTRIES_AT_ONCE);
}

export async function addEntries(
  run: Run,
  partition: number,
  fold: LedgerFold,
  { entries, cut, before }: LedgerPart,
): Promise<void> {
  const { nodes, report } = run;
  const comparable = entries.filter((entry) => {
    const { accountId, streamId, previous } = entry;
    const checkpoint = before.get(accountId);
    if (checkpoint?.entry === previous) resumeAt(fold, accountId, checkpoint, report);
    if (fold.isFirst && !isLater(streamId, cut))
      report("chain", accountId, `entry ${streamId} is there, but ${cut} has left`);
    return addEntry(fold, entry, report);
  });
  if (!fold.isFirst) return;
  const ofRequests = comparable.filter((entry) => isWanted(run, entry.accountId));
  const ids = ofRequests.map(({ requestId }) => requestId);
  const records = await readRequests(nodes.of(partition), partition, ids);
  for (const [at, entry] of ofRequests.entries()) compareRecord(fold, entry, records[at]!, report);
}

/** States never return, so equal ones before and after mean that it held during the reads. No MULTI: a full Redis refuses it. */
export async function readConsistently<Answers extends unknown[], Item>(
  redis: Redis,
  items: readonly Item[],
  nameOf: (item: Item) => string,
  reads: (pipe: ChainableCommander, item: Item) => ChainableCommander,
): Promise<([RequestRecord, ...Answers] | undefined)[]> {
  if (items.length === 0) return [];
  const pipe = redis.pipeline();
  for (const item of items) reads(pipe.get(nameOf(item)), item).get(nameOf(item));
  const answers = answersOf<unknown>(await pipe.exec());
  const each = answers.length / items.length;
  return items.map((_, at) => {
    const read = answers.slice(at * each, (at + 1) * each);
    const after = requestOf(read.pop() as string | null);
    const [text, ...related] = read as [string | null, ...Answers];
    const record = requestOf(text);
    return record.state === after.state ? [record, ...related] : undefined;
  });
}
