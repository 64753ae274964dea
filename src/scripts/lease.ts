import { type DueList, dueFrom } from "../records/due-times.ts";
import { partitionNames, requestName } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

interface LeaseCall {
  list: DueList;
  partition: number;
  most: number;
  /** How long leased requests are hidden from other sweepers. */
  leaseMs: number;
}

/** A request that is due: a hold to void, or a bound task to poll. */
export interface OpenRequest {
  requestId: string;
  partition: number;
  accountId: string;
  creatorKeyId: string;
  state: "held" | "bound";
  idempotencyDigest: string | undefined;
  /** Empty while held. */
  taskId: string;
  boundAtMs: number;
  /** The store's clock at its lease, Unix ms; a task's age is counted up to it. */
  leasedAtMs: number;
  /** Fixed when the task was bound; undefined for one that was restored. */
  maxAgeMs: number | undefined;
  /** Which upstream made the task; undefined as `maxAgeMs` is. */
  upstream: string | undefined;
}

/** `leased`: how many were due, including those that have ended. */
export interface Leased {
  leased: number;
  requests: OpenRequest[];
}

/** Leases up to `most` due holds or tasks of a partition. Two calls never lease the same ones at a time. */
export const lease: Script<LeaseCall, Leased> = {
  name: "lease",
  keys: ({ partition }) => [partitionNames(partition).due],
  args: ({ list, partition, most, leaseMs }) => [dueFrom(list), most, leaseMs, requestName(partition, "")],
  read(reply, { partition }) {
    const [leasedAtMs, ...rows] = reply as [number, ...Row[]];
    const requests = rows.flatMap((row) => openRequest(row, partition, leasedAtMs) ?? []);
    return { leased: rows.length, requests };
  },
};

/** One request in the reply of LEASE; texts are empty where there is nothing. */
type Row = [
  requestId: string,
  state: string,
  accountId: string,
  creatorKeyId: string,
  taskId: string,
  boundAtMs: string,
  idempotencyDigest: string,
  maxAgeMs: string,
  upstream: string,
];

/** Undefined when it is not open. */
function openRequest(row: Row, partition: number, leasedAtMs: number): OpenRequest | undefined {
  const [requestId, state, accountId, creatorKeyId, taskId, boundAtMs, digest, maxAgeMs, upstream] = row;
  if (state !== "held" && state !== "bound") return undefined;
  return {
    requestId,
    partition,
    accountId,
    creatorKeyId,
    state,
    idempotencyDigest: digest === "" ? undefined : digest,
    taskId,
    boundAtMs: Number(boundAtMs),
    leasedAtMs,
    maxAgeMs: maxAgeMs === "" ? undefined : Number(maxAgeMs),
    upstream: upstream === "" ? undefined : upstream,
  };
}
