import type { Redis } from "ioredis";
import { requestName } from "../records/names.ts";
import type { RequestRecord } from "../records/records.ts";
import { many } from "../redis/pipelines.ts";
import { type Invariant, isCharged, type LedgerFold } from "./fold.ts";
import { readLedgerToEnd } from "./read-ledger.ts";
import { readStill } from "./read-still.ts";
import type { Run } from "./verify-run.ts";

/** Checks that each request in a list belongs there. Invariants 2 and 3. */
export async function verifyListed(
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
    await run.step();
    const suspects = (await recordsOf(run, partition, ids)).filter(wrong);
    if (suspects.length === 0) continue;
    // It may have just happened: read ledger and records again.
    await readLedgerToEnd(run, partition, fold);
    const found = await readStill<[string | null], ListedRequest>(
      redis,
      suspects,
      ({ id }) => requestName(partition, id),
      (pipe, { id }) => pipe.zscore(list, id),
    );
    for (const [at, still] of found.entries()) {
      if (!still) continue;
      const [record, score] = still;
      const { id } = suspects[at]!;
      const message = wrong({ id, record });
      if (message && score !== null) report(invariant, record.account_id ?? "", message, id);
    }
  }
}

interface ListedRequest {
  id: string;
  record: RequestRecord;
}

export function endedWrong(fold: LedgerFold, { id, record }: ListedRequest): string | undefined {
  switch (record.state) {
    case "held":
    case "bound":
      return `is ${record.state}, but kept among those that have ended`;
    case "finished":
      if (record.uncollected !== undefined || isCharged(fold, id)) return undefined;
      if (record.trimmed_charge !== undefined) return undefined;
      return "is finished, but was never charged";
    default:
      return undefined;
  }
}

async function recordsOf({ nodes, wanted }: Run, partition: number, ids: string[]) {
  const records = await many<RequestRecord, string>(nodes.of(partition), ids, (pipe, id) =>
    pipe.hgetall(requestName(partition, id)),
  );
  return ids
    .map((id, at) => ({ id, record: records[at] ?? {} }))
    .filter(({ record }) => !wanted || record.account_id === undefined || wanted.has(record.account_id));
}

async function* sortedSetPages(redis: Redis, name: string): AsyncGenerator<string[]> {
  for await (const page of redis.zscanStream(name, { count: 500 }) as AsyncIterable<string[]>) {
    yield page.filter((_, at) => at % 2 === 0);
  }
}
