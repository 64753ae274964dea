import type { Redis } from "ioredis";
import { keyNames, partitionNames, requestName } from "../records/names.ts";
import { many } from "../redis/pipelines.ts";
import { readStill } from "./read-still.ts";
import { isWanted, type Run } from "./verify-run.ts";

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
    const records = await many<(string | null)[], Place>(redis, among, (pipe, { partition, id }) =>
      pipe.hmget(requestName(partition, id), "state", "account_id", "key_id"),
    );
    const open = among.flatMap((place, at) => {
      const [state, accountId, keyId] = records[at] ?? [];
      return isOpen(state) && isWanted(run, accountId ?? "") ? [{ ...place, keyId: keyId ?? "" }] : [];
    });
    await verifyOpen(run, redis, open);
  }
}

async function verifyOpen(
  { report }: Run,
  redis: Redis,
  places: readonly (Place & { keyId: string })[],
): Promise<void> {
  const found = await readStill<[string | null, string | null, number], Place & { keyId: string }>(
    redis,
    places,
    ({ partition, id }) => requestName(partition, id),
    (pipe, { partition, id, keyId }) => {
      const { holds, polls } = partitionNames(partition);
      return pipe.zscore(holds, id).zscore(polls, id).sismember(keyNames(partition, keyId).slots, id);
    },
  );
  for (const [at, still] of found.entries()) {
    const [record, hold, poll, slot] = still ?? [];
    if (!record || !isOpen(record.state)) continue;
    const { id, keyId } = places[at]!;
    const due = record.state === "held" ? hold : poll;
    const accountId = record.account_id ?? "";
    if (due === null) report("due", accountId, `is ${record.state}, but not among those that are due`, id);
    if (slot === 0 && record.unmetered === undefined)
      report("slots", accountId, `is ${record.state}, but has no slot of ${keyId}`, id);
  }
}

interface Place {
  partition: number;
  id: string;
}

function requestPlace(name: string): Place | undefined {
  const [, digits, id] = /^tg:\{p(\d+)\}:request:(.*)$/s.exec(name) ?? [];
  return id === undefined ? undefined : { partition: Number(digits), id };
}

const isOpen = (state: string | null | undefined): boolean => state === "held" || state === "bound";
