import type { Redis } from "ioredis";
import { requestName } from "../records/names.ts";
import type { RequestRecord } from "../records/records.ts";
import { requestOf } from "../records/requests.ts";
import { many } from "../redis/pipelines.ts";

export interface EndedRequest {
  requestId: string;
  record: RequestRecord;
}

/** Their BIND may still come; they are copied once they may be collected. */
const UNKNOWN_OUTCOMES: ReadonlySet<string | undefined> = new Set(["due", "released"]);

export async function readEndedRequests(
  redis: Redis,
  { partition, generation }: { partition: number; generation: string },
  ids: readonly string[],
  isDue: boolean,
): Promise<EndedRequest[]> {
  const records = await many<string | null, string>(redis, ids, (pipe, id) =>
    pipe.get(requestName(partition, id)),
  );
  return records.flatMap((stored, at) => {
    const record = requestOf(stored);
    const { state, reason } = record;
    if (state !== "finished" && state !== "void") return [];
    if (record.archived === `${generation}/${state}`) return [];
    if (state === "void" && !isDue && UNKNOWN_OUTCOMES.has(reason)) return [];
    return [{ requestId: ids[at]!, record }];
  });
}
