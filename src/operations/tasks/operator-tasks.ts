import { setImmediate as nextTick } from "node:timers/promises";
import { failedTaskJson } from "../../domain/answers.ts";
import type { Actor } from "../../records/actor.ts";
import { compareIds, type LedgerEntry } from "../../records/ledger-entries.ts";
import {
  accountNames,
  claimName,
  dueRange,
  dueTime,
  keyRef,
  partitionNames,
  requestName,
  taskName,
} from "../../records/names.ts";
import { OperatorError } from "../../records/operator-error.ts";
import { type RequestRecord, requestOf, type Sighting, taskRecord } from "../../records/records.ts";
import { readsOfMost, UnreadError, unreadInWords } from "../../redis/partition-reads.ts";
import { manyByNode } from "../../redis/pipelines.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { partitionsOf, type RedisNodes } from "../../redis/store-facts.ts";
import type { HistoryFilter } from "../../scripts/ledger.ts";
import { observe } from "../../scripts/tasks.ts";
import { voidHold } from "../../scripts/uncharged-holds.ts";
import { type ArchivedHistory, readHistory } from "../credits/account-history.ts";
import type { ReadArchived } from "../credits/references.ts";
import { transactionOfReference } from "../credits/transactions.ts";

/** A request changes at most twice: held, bound, finished. */
const ATTEMPTS_MAX = 3;

export interface FoundRequest {
  requestId: string;
  partition: number;
  record: RequestRecord;
  seen: Sighting | undefined;
  /** The task as customers see it, JSON; empty before the first observation. */
  data: string;
  /** When its hold ends or the next poll is due, Unix ms; only while it is open. */
  dueAtMs: number | undefined;
}

export type ReleaseResult =
  | { outcome: "ended"; refunded: number }
  | { outcome: "voided"; credits: number }
  | { outcome: "already_finished" | "already_void" };

export const noTask = (id: string): OperatorError =>
  new OperatorError(
    `no task or request ${id}; ended ones are forgotten after tasks.retention, and an X-Request-Id of the client's own ` +
      "is only in the log, as client_request_id beside ours",
    "not_found",
  );

/** Reads all partitions: an id does not name its own. @throws OperatorError `not_found`; UnreadError if a server is away */
export async function findTask(nodes: RedisNodes, id: string): Promise<FoundRequest> {
  const reads = readsOfMost(nodes);
  const owner = await textOf(nodes, claimName(id)).catch(reads.skip);
  const requestId = owner === undefined ? id : taskRecord(owner).requestId;
  const places = Array.from({ length: await partitionsOf(nodes) }, (_, partition) => ({ partition }));
  const records = await reads.many<string | null, { partition: number }>(places, (pipe, { partition }) =>
    pipe.get(requestName(partition, requestId)),
  );
  const partition = records.findIndex((text) => typeof text === "string");
  const record = partition === -1 ? undefined : requestOf(records[partition]);
  const unread = record ? undefined : reads.unread();
  if (unread)
    throw new UnreadError(`no task or request ${id} is found, but ${unreadInWords(unread)}; try it again`);
  // It may be among the losses of a stale server.
  if (!record) nodes.requireWritable?.(nodes.all());
  if (!record) throw noTask(id);
  const task = record.task_id ? await textOf(nodes, taskName(record.task_id, partition)) : undefined;
  const dueAt =
    record.state === "bound"
      ? await nodes.of(partition).zscore(partitionNames(partition).due, requestId)
      : record.due_at;
  const isOpen = record.state === "held" || record.state === "bound";
  const dueAtMs = isOpen && dueAt ? dueTime(Number(dueAt)).atMs : undefined;
  const { seen, data = "" } = task === undefined ? {} : taskRecord(task);
  return { requestId, partition, record, seen, data, dueAtMs };
}

/** Fails and refunds a task, whatever `tasks.refund_failed` says, or voids a hold. Permissions are the caller's. @throws OperatorError `not_found` */
export async function releaseTask(nodes: RedisNodes, id: string, actor: Actor): Promise<ReleaseResult> {
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    const view = await findTask(nodes, id);
    switch (view.record.state) {
      case "finished":
        return { outcome: "already_finished" };
      case "void":
        return { outcome: "already_void" };
      case "held":
        nodes.requireWritable?.([nodes.of(view.partition)]);
        if (await release(nodes, view, actor))
          return { outcome: "voided", credits: Number(view.record.price) };
        break;
      default: {
        nodes.requireWritable?.([nodes.of(view.partition)]);
        const refunded = await endTask(nodes, view, actor);
        if (refunded !== undefined) return { outcome: "ended", refunded };
      }
    }
  }
  throw new OperatorError(
    "it changes while it is being released; read it again",
    "task_changing",
    undefined,
    "`tollgate tasks show` shows it",
  );
}

/** @returns false if it had ended before, or is bound */
async function release(
  nodes: RedisNodes,
  { requestId, partition, record }: FoundRequest,
  actor: Actor,
): Promise<boolean> {
  const key = keyRef(record.key_id ?? "", record.account_id ?? "", partition);
  const idempotencyDigest = record.idempotency;
  const call = { key, requestId, idempotencyDigest, reason: "released" as const, actor };
  const { outcome, wasVoid } = await scriptsOf(nodes.of(partition)).run(voidHold, call);
  return outcome === "void" && !wasVoid;
}

/** Undefined if it had ended before. */
async function endTask(nodes: RedisNodes, view: FoundRequest, actor: Actor): Promise<number | undefined> {
  const { requestId, partition, record } = view;
  const taskId = record.task_id ?? "";
  const reply = await scriptsOf(nodes.of(partition)).run(observe, {
    task: { taskId, requestId, creatorKeyId: record.key_id ?? "" },
    accountId: record.account_id ?? "",
    partition,
    status: "released",
    data: failedTaskJson(taskId, Number(record.bound_at ?? 0)),
    refundFailed: true,
    pollMs: 0,
    actor,
  });
  return reply.outcome === "finished" ? reply.refunded : undefined;
}

async function textOf(nodes: RedisNodes, name: string): Promise<string | undefined> {
  return (await nodes.ofName(name).get(name)) ?? undefined;
}

/** How many open tasks each upstream made, by its tag (undefined: none); of each partition the first to be due. */
export async function upstreamTags(
  nodes: RedisNodes,
  partitions: number,
  mostOfPartition: number,
): Promise<Map<string | undefined, number>> {
  const all = Array.from({ length: partitions }, (_, partition) => partition);
  const open = await manyByNode<string[], number>(all, nodes.of, (pipe, partition) =>
    pipe.zrangebyscore(partitionNames(partition).due, ...dueRange("polls"), "LIMIT", 0, mostOfPartition),
  );
  const some = all.filter((partition) => open[partition]!.length > 0);
  const records = await manyByNode<(string | null)[], number>(some, nodes.of, (pipe, partition) =>
    pipe.mget(open[partition]!.map((id) => requestName(partition, id))),
  );
  const counts = new Map<string | undefined, number>();
  for (const ofPartition of records) {
    for (const text of ofPartition) {
      const { upstream } = requestOf(text);
      counts.set(upstream, (counts.get(upstream) ?? 0) + 1);
    }
    await nextTick();
  }
  return counts;
}

/** Ids of entries follow the clock of the server, which may be ahead of the time of the entry. */
const SLACK_MS = 2000;
const ENTRIES_MAX = 1000;

interface LookUps {
  history?: ArchivedHistory | undefined;
  readArchived?: ReadArchived | undefined;
}

/** Oldest first. The record of the request says where they are, so a long ledger costs no more. @throws OperatorError `unavailable` archive */
export async function transactionsOfTask(
  nodes: RedisNodes,
  { requestId, partition, record }: FoundRequest,
  { history, readArchived }: LookUps,
): Promise<LedgerEntry[]> {
  const { account_id: accountId = "", bound_at: boundAt, finished_at: finishedAt } = record;
  const redis = nodes.of(partition);
  const between = async (filter: HistoryFilter & { toMs: number }) => {
    const position = `(${filter.toMs + SLACK_MS}-0`;
    const { entries } = await readHistory({
      ...{ redis, partition, accountId, filter, position },
      ...{ limit: ENTRIES_MAX, archive: history },
    });
    return entries.filter((entry) => entry.requestId === requestId);
  };
  const at = (time: string | undefined) =>
    time === undefined ? [] : between({ fromMs: Number(time), toMs: Number(time) + 1 });
  const refundedBefore = async () => {
    const wanted = ["recharge/refund"];
    return record.charged_again === undefined
      ? []
      : between({ wanted, fromMs: Number(boundAt), toMs: Number(finishedAt) });
  };
  const byOperator = async () => {
    const reference = await redis.hget(accountNames(partition, accountId).refunds, requestId);
    const entry =
      reference === null
        ? undefined
        : await transactionOfReference(nodes, accountId, reference, readArchived);
    return entry ? [entry] : [];
  };
  const found = await Promise.all([at(boundAt), at(finishedAt), refundedBefore(), byOperator()]);
  const byId = new Map(found.flat().map((entry) => [entry.streamId, entry]));
  return [...byId.values()].sort((a, b) => compareIds(a.streamId, b.streamId));
}
