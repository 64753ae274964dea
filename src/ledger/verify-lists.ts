import type { Redis } from "ioredis";
import { type DueList, dueTime } from "../records/due-times.ts";
import { keyNames, partitionNames, requestName } from "../records/names.ts";
import type { RequestRecord } from "../records/records.ts";
import { requestOf } from "../records/requests.ts";
import { many } from "../redis/pipelines.ts";
import { type Invariant, isCharged, type LedgerFold } from "./fold.ts";
import { isOpen } from "./key-check.ts";
import { isWanted, type Run, readConsistently, readLedgerToEnd, readRequests } from "./verify-run.ts";

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

export function dueWrong({ record, score }: ListedRequest): string | undefined {
  const state = dueTime(score).list === "holds" ? "held" : "bound";
  return record.state === state ? undefined : `is due, but ${record.state ?? "unknown"}`;
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

async function recordsOf({ nodes, wanted }: Run, partition: number, listed: readonly Listed[]) {
  const ids = listed.map(({ id }) => id);
  const records = await readRequests(nodes.of(partition), partition, ids);
  return listed
    .map((one, at) => ({ ...one, record: records[at]! }))
    .filter(({ record }) => !wanted || record.account_id === undefined || wanted.has(record.account_id));
}

async function* sortedSetPages(redis: Redis, name: string): AsyncGenerator<Listed[]> {
  for await (const page of redis.zscanStream(name, { count: 500 }) as AsyncIterable<string[]>) {
    yield page.flatMap((id, at) => (at % 2 === 0 ? [{ id, score: Number(page[at + 1]) }] : []));
  }
}

/** Every open request is in a list and has its slot. Invariant 3. */
export async function verifyRequests(run: Run): Promise<void> {
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
