import type { Observation } from "../domain/answers.ts";
import type { Tiers } from "../domain/limits.ts";
import { type Actor, actorText } from "../records/actor.ts";
import {
  accountNames,
  archiveNames,
  type DueList,
  dueFrom,
  type KeyRef,
  keyRef,
  partitionNames,
  requestName,
  taskName,
} from "../records/names.ts";
import { type AccountStatus, statusOf } from "../records/records.ts";
import { clockOf, KEY_STATE_LENGTH, type KeyState, keyStateOf, NO_TIERS } from "./holds.ts";
import type { Script } from "./script-definition.ts";

// Tasks: what a customer asks, what the upstream says, which are due, and when their records go.

interface InspectCall {
  key: KeyRef;
  tiers: Tiers;
  task?: {
    taskId: string;
    /** How old a cached answer may be, ms. */
    cacheMs: number;
  };
}

/** The record of a polled task. `data` is JSON, empty before the first observation. */
export interface KnownTask {
  taskId: string;
  requestId: string;
  /** Key that created it: whose slot it holds. */
  creatorKeyId: string;
  fresh: boolean;
  status: string;
  data: string;
  /** When it was bound, Unix ms. */
  createdAtMs: number;
  /** How long ago that is by the store's clock. */
  ageMs: number;
  /** Fixed when it was bound; undefined while `fresh`, and for a task that was restored. */
  maxAgeMs: number | undefined;
  /** Which upstream made it; undefined as `maxAgeMs` is. */
  upstream: string | undefined;
}

export type Inspection = KeyState &
  (
    | { outcome: "unknown_key" }
    | { outcome: "account_suspended"; status: "closed" }
    | { outcome: "known" | "not_found"; status: AccountStatus }
    | { outcome: "task"; status: AccountStatus; task: KnownTask }
  );

export const inspect: Script<InspectCall, Inspection> = {
  name: "inspect",
  isBatched: true,
  keys({ key: { names, partition }, task }) {
    const keys = [names.key, names.window, names.slots, names.account];
    if (task) keys.push(taskName(task.taskId, partition));
    return keys;
  },
  tiers: ({ tiers }) => tiers,
  args: ({ task }) => [task?.cacheMs ?? 0],
  read(reply, call) {
    const common = keyStateOf(reply);
    if (reply[0] === "unknown_key") return { outcome: "unknown_key", ...common };
    const [accountStatus, ...rest] = reply.slice(KEY_STATE_LENGTH);
    const outcome = reply[0] as "known" | "not_found" | "account_suspended" | "task";
    if (outcome === "account_suspended") return { outcome, ...common, status: "closed" };
    const known = { ...common, status: statusOf(accountStatus) };
    if (outcome !== "task") return { outcome, ...known };
    const [requestId, creatorKeyId, fresh, status, data, createdAtMs, maxAgeMs, upstream] = rest;
    const task = {
      taskId: call.task!.taskId,
      requestId: String(requestId),
      creatorKeyId: String(creatorKeyId),
      fresh: fresh === 1,
      status: String(status),
      data: String(data),
      createdAtMs: Number(createdAtMs),
      ageMs: clockOf(reply) - Number(createdAtMs),
      maxAgeMs: maxAgeMs ? Number(maxAgeMs) : undefined,
      upstream: upstream ? String(upstream) : undefined,
    };
    return { outcome, ...known, task };
  },
};

/** Three 404s over a minute: the task is gone. */
const GONE_COUNT = 3;
const GONE_MS = 60_000;

export type ObservedTask = Pick<KnownTask, "taskId" | "requestId" | "creatorKeyId">;

interface ObserveCall {
  task: ObservedTask;
  accountId: string;
  partition: number;
  status: Observation;
  /** The task's data, JSON; for gone, expired and released: what is answered once it has ended as failed. */
  data: string;
  refundFailed: boolean;
  /** When the sweeper may poll again, ms from now. */
  pollMs: number;
  actor?: Actor;
  /** The key whose numbers are answered; without one they are zeros. */
  poller?: { key: KeyRef; tiers: Tiers };
}

/** `status` and `data` are the task's after this call; `refunded` is the credits that it refunded. */
type ObserveReply = KeyState & { status: string; data: string; refunded: number } & (
    | { outcome: "observed" | "finished" | "already_finished" | "missing" }
    /** The id was given to another request, too, and nothing is recorded. `maxAgeMs` is undefined for a restored task. */
    | { outcome: "disputed"; nowMs: number; boundAtMs: number; maxAgeMs: number | undefined }
  );

/** Records an observation of a task; its end frees the slot, and a failed task is refunded once. */
export const observe: Script<ObserveCall, ObserveReply> = {
  name: "observe",
  isBatched: true,
  keys({ task, accountId, partition, poller }) {
    const { account, slots, due, ledger, done } = keyRef(task.creatorKeyId, accountId, partition).names;
    const keys = [taskName(task.taskId, partition), requestName(partition, task.requestId)];
    keys.push(account, slots, due, ledger, done);
    if (poller) keys.push(poller.key.names.key, poller.key.names.window, poller.key.names.slots);
    return keys;
  },
  tiers: ({ poller }) => poller?.tiers ?? NO_TIERS,
  args({ task, accountId, status, data, refundFailed, pollMs, actor }) {
    return [
      ...[task.requestId, accountId, status, data, refundFailed ? "1" : "0", pollMs, GONE_COUNT, GONE_MS],
      actor ? actorText(actor) : "",
    ];
  },
  read(reply) {
    const [status, data, refunded, boundAtMs, maxAgeMs] = reply.slice(KEY_STATE_LENGTH);
    const outcome = reply[0] as ObserveReply["outcome"];
    const seen = { status: String(status), data: String(data), refunded: Number(refunded) };
    const common = { ...keyStateOf(reply), ...seen };
    if (outcome !== "disputed") return { outcome, ...common };
    const fixed = { boundAtMs: Number(boundAtMs), maxAgeMs: Number(maxAgeMs) || undefined };
    return { outcome, ...common, nowMs: clockOf(reply), ...fixed };
  },
};

export interface ReclaimCall {
  partition: number;
  accountId: string;
  task: ObservedTask;
  data: string;
}

/** `charged_again`: completed now, at `credits`. `uncovered`: the balance does not allow it. `finished`: it has another end. */
interface Reclaimed {
  outcome: "charged_again" | "uncovered" | "finished";
  credits: number;
}

/** Charges a task again that ended as too old, was refunded and has completed after all. Once. */
export const reclaim: Script<ReclaimCall, Reclaimed> = {
  name: "reclaim",
  keys({ partition, accountId, task: { taskId, requestId, creatorKeyId } }) {
    const { account, ledger, done, key } = keyRef(creatorKeyId, accountId, partition).names;
    return [taskName(taskId, partition), requestName(partition, requestId), account, ledger, done, key];
  },
  args: ({ accountId, task, data }) => [task.requestId, accountId, data],
  read: ([outcome, , credits]) => ({
    outcome: outcome as Reclaimed["outcome"],
    credits: Number(credits ?? 0),
  }),
};

interface DisputeCall {
  taskId: string;
  /** Of the request that owns it. */
  partition: number;
  ownerId: string;
  accountId: string;
  /** How long a mark waits for the owner's BIND, which may come later. */
  lifetimeMs: number;
}

/** On a Redis Cluster: marks a task id that the upstream gave to a second request, in the partition of the first. */
export const dispute: Script<DisputeCall, { outcome: "disputed" | "noted" | "missing" }> = {
  name: "dispute",
  keys: ({ taskId, partition }) => [taskName(taskId, partition)],
  args: ({ ownerId, accountId, lifetimeMs }) => [ownerId, accountId, lifetimeMs],
  read: ([outcome]) => ({ outcome: outcome as "disputed" | "noted" | "missing" }),
};

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

export interface CollectCall {
  partition: number;
  requestId: string;
  taskId: string | undefined;
  /** The name of its task's claim, where the script can reach it. */
  claim?: string | undefined;
  /** Of a request that was restored; all others have their own in their record. */
  retentionMs: number;
}

/** `missing`: another collector was first. `unarchived`: the archive has not got it yet. */
export type Collected = "collected" | "kept" | "unarchived" | "missing";

export const collect: Script<CollectCall, { outcome: Collected }> = {
  name: "collect",
  keys({ partition, requestId, taskId, claim }) {
    const keys = [requestName(partition, requestId), partitionNames(partition).done];
    if (taskId) keys.push(taskName(taskId, partition));
    if (taskId && claim !== undefined) keys.push(claim);
    return keys;
  },
  args({ partition, requestId, retentionMs }) {
    const { account } = accountNames(partition, "");
    return [requestId, Math.round(retentionMs), account, archiveNames(partition).archive];
  },
  read: ([outcome]) => ({ outcome: outcome as Collected }),
};
