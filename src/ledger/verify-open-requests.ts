import type { Redis } from "ioredis";
import { keyNames, partitionNames, requestName } from "../store/names.ts";
import { many } from "../store/pipelines.ts";
import type { RequestRecord } from "../store/records.ts";
import { readStill } from "./read-still.ts";
import { isWanted, type Run } from "./verify-run.ts";

/** Every open request is due and has its slot: the only way to find one that is in neither. Invariant 3. */
export async function verifyRequests(run: Run): Promise<void> {
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
  if (slot === 0 && record.unmetered === undefined)
    report("slots", accountId, `is ${record.state}, but has no slot of ${keyId}`, id);
}

interface Place {
  partition: number;
  id: string;
}

function requestPlace(name: string): Place | undefined {
  const [, digits, id] = /^tg:\{p(\d+)\}:request:(.*)$/s.exec(name) ?? [];
  return id === undefined ? undefined : { partition: Number(digits), id };
}

const isOpen = (record: RequestRecord): boolean => record.state === "held" || record.state === "bound";
