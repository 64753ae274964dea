import type { Redis } from "ioredis";
import { endedTask } from "../domain/task-states.ts";
import { OperatorError } from "./accounts.ts";
import { claimName, keyRef, partitionNames, requestName, taskName } from "./names.ts";
import { many } from "./pipelines.ts";
import { type RequestRecord, type Sighting, taskRecord } from "./records.ts";
import { scriptsOf } from "./script-runner.ts";
import { observe } from "./scripts/observe.ts";
import { voidHold } from "./scripts/void.ts";
import { isCluster, partitionsOf } from "./store-facts.ts";

/** During an attempt a request may change from held to bound or from bound to finished, so a third one finds it ended. */
const ATTEMPTS_MAX = 3;

/** A request and its task, for operators. */
export interface TaskView {
  requestId: string;
  partition: number;
  record: RequestRecord;
  /** The latest observation of its task, if there is one. */
  seen: Sighting | undefined;
  /** When its hold ends, or the sweeper polls the upstream again, Unix ms; only while it is open. */
  dueAtMs: number | undefined;
}

export type Release =
  /** A task ended as failed; `refunded` credits went back. */
  | { outcome: "ended"; refunded: number }
  /** A hold was voided; `credits` can be spent again. */
  | { outcome: "voided"; credits: number }
  | { outcome: "already_finished" | "already_void" };

/**
 * Finds a request by its own id or by its task's. The partition does not follow from an id, so all are read.
 * @throws OperatorError when there is none
 */
export async function findTask(redis: Redis, id: string): Promise<TaskView> {
  const cluster = await isCluster(redis);
  const owner = await redis.get(cluster ? claimName(id) : taskName(id, 0, false));
  const requestId = owner === null ? id : taskRecord(owner).requestId;
  const places = Array.from({ length: await partitionsOf(redis) }, (_, partition) => partition);
  const records = await many<RequestRecord, number>(redis, places, (pipe, partition) =>
    pipe.hgetall(requestName(partition, requestId)),
  );
  const partition = records.findIndex((record) => record.state !== undefined);
  const record = records[partition];
  if (!record)
    throw new OperatorError(
      `no task or request ${id}; ended ones are forgotten after tasks.retention, and an X-Request-Id of the client's own ` +
        "is only in the log, as client_request_id beside ours",
    );
  const task = record.task_id ? await redis.get(taskName(record.task_id, partition, cluster)) : null;
  const dueAt =
    record.state === "bound" ? await redis.zscore(partitionNames(partition).polls, requestId) : record.due_at;
  const isOpen = record.state === "held" || record.state === "bound";
  const dueAtMs = isOpen && dueAt ? Number(dueAt) : undefined;
  const seen = task === null ? undefined : taskRecord(task).seen;
  return { requestId, partition, record, seen, dueAtMs };
}

/**
 * Releases a request that does not end by itself. A task ends as failed and is refunded, whatever `tasks.refund_failed` says
 * (lua/include/refund.lua). A hold is voided, and its outcome counts as unknown: if the upstream makes a task for it later,
 * that is bound and charged. This function checks no permission: the console requires ADMIN_TOKEN, and `tollgate tasks
 * release` works for everyone who has access to Redis.
 * @throws OperatorError when there is no such task or request
 */
export async function releaseTask(redis: Redis, id: string): Promise<Release> {
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    const view = await findTask(redis, id);
    switch (view.record.state) {
      case "finished":
        return { outcome: "already_finished" };
      case "void":
        return { outcome: "already_void" };
      case "held":
        if (await release(redis, view)) return { outcome: "voided", credits: Number(view.record.price) };
        break;
      default: {
        const refunded = await endTask(redis, view);
        if (refunded !== undefined) return { outcome: "ended", refunded };
      }
    }
  }
  throw new OperatorError("it changes while it is being released; look at it with `tollgate tasks show`");
}

async function release(redis: Redis, { requestId, partition, record }: TaskView): Promise<boolean> {
  const key = keyRef(record.key_id ?? "", record.account_id ?? "", partition);
  const idempotencyDigest = record.idempotency;
  const call = { key, requestId, idempotencyDigest, reason: "released" as const };
  return (await scriptsOf(redis).run(voidHold, call)).outcome === "void";
}

/** @returns credits refunded, or undefined when it had ended before */
async function endTask(redis: Redis, view: TaskView): Promise<number | undefined> {
  const { requestId, partition, record } = view;
  const taskId = record.task_id ?? "";
  const reply = await scriptsOf(redis).run(observe, {
    task: { taskId, requestId, creatorKeyId: record.key_id ?? "" },
    accountId: record.account_id ?? "",
    partition,
    clustered: await isCluster(redis),
    status: "released",
    data: endedTask(taskId, Number(record.bound_at ?? 0)),
    refundFailed: true,
    pollMs: 0,
  });
  return reply.outcome === "finished" ? reply.refunded : undefined;
}

/** Which upstreams have made open tasks, by their tags; of each partition the tasks that are due first. */
export async function upstreamTags(
  redis: Redis,
  partitions: number,
  mostOfPartition: number,
): Promise<(string | null)[]> {
  const lists = Array.from({ length: partitions }, (_, partition) => partitionNames(partition).polls);
  const open = await many<string[], string>(redis, lists, (pipe, list) =>
    pipe.zrange(list, "0", String(mostOfPartition - 1)),
  );
  const names = open.flatMap((ids, partition) => ids.map((id) => requestName(partition, id)));
  return many<string | null, string>(redis, names, (pipe, name) => pipe.hget(name, "upstream"));
}
