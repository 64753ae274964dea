import type { Redis } from "ioredis";
import { requestName } from "../records/names.ts";
import type { RequestRecord } from "../records/records.ts";
import { many } from "../redis/pipelines.ts";

export interface EndedRequest {
  requestId: string;
  record: RequestRecord;
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

/** Their BIND may still come; they are copied once they may be collected. */
const UNKNOWN_OUTCOMES: ReadonlySet<string | undefined> = new Set(["due", "released"]);

export async function readEndedRequests(
  redis: Redis,
  { partition, generation }: { partition: number; generation: string },
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
