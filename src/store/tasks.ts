import type { Redis } from "ioredis";
import { endedTask } from "../core/tasks.ts";
import { OperatorError } from "./accounts.ts";
import { observeArgs, observeKeys, packTiers, voidKeys } from "./calls.ts";
import { many } from "./keys.ts";
import { claimName, keyRef, requestName, taskName } from "./names.ts";
import { partitionsOf } from "./partitions.ts";
import { scriptsOf } from "./scripts.ts";

/** The scripts want tiers for the numbers that they answer; nobody reads them here. */
const NO_TIERS = { standard: { rateLimit: 0, maxConcurrent: 0, dailyLimit: 0 } };
/** Each end can overtake one release; a third attempt would mean that requests go backwards. */
const ATTEMPTS_MAX = 3;

/** A request and its task as operators see them. */
export interface TaskView {
  requestId: string;
  partition: number;
  /** The request's record, as its names in the store say. Times are Unix ms. */
  record: Readonly<Record<string, string>>;
  /** What was last seen of its task; empty while it has none. */
  task: Readonly<Record<string, string>>;
}

export type Release =
  /** A task ended as failed; `refunded` credits went back. */
  | { outcome: "ended"; refunded: number }
  /** A hold was taken back; `credits` can be spent again. */
  | { outcome: "voided"; credits: number }
  | { outcome: "already_finished" | "already_void" };

/**
 * Finds a request by its own id or by its task's. A claim does not say which partition it points to, so all are asked.
 * @throws OperatorError when there is none
 */
export async function findTask(redis: Redis, id: string): Promise<TaskView> {
  const requestId = (await redis.get(claimName(id))) ?? id;
  const places = Array.from({ length: await partitionsOf(redis) }, (_, partition) => partition);
  const records = await many<Record<string, string>, number>(redis, places, (pipe, partition) =>
    pipe.hgetall(requestName(partition, requestId)),
  );
  const partition = records.findIndex((record) => record.state !== undefined);
  const record = records[partition];
  if (!record)
    throw new OperatorError(
      `no task or request ${id}; ended ones are forgotten after tasks.retention, and an X-Request-Id of the client's own ` +
        "is only in the log, as client_request_id beside ours",
    );
  const task = record.task_id ? await redis.hgetall(taskName(partition, record.task_id)) : {};
  return { requestId, partition, record, task };
}

/**
 * Ends what will not end by itself: a task as failed, with refund and its slot back; a hold as if the upstream had
 * refused. If the upstream gives a task for it later, that is bound and charged after all.
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
        if (await voidHold(redis, view)) return { outcome: "voided", credits: Number(view.record.price) };
        break;
      default: {
        const refunded = await endTask(redis, view);
        if (refunded !== undefined) return { outcome: "ended", refunded };
      }
    }
  }
  throw new OperatorError("it changes while it is being released; look at it with `tollgate tasks show`");
}

async function voidHold(redis: Redis, { requestId, partition, record }: TaskView): Promise<boolean> {
  const key = keyRef(record.key_id ?? "", record.account_id ?? "", partition);
  const keys = voidKeys(key, requestId, record.idempotency);
  const [outcome] = await scriptsOf(redis).void(keys, ["", packTiers(NO_TIERS), requestId, "released", 0]);
  return outcome === "void";
}

/** @returns credits refunded, or undefined when somebody else ended it first */
async function endTask(redis: Redis, view: TaskView): Promise<number | undefined> {
  const { requestId, partition, record } = view;
  const accountId = record.account_id ?? "";
  const taskId = record.task_id ?? "";
  const task = { taskId, requestId, creatorKeyId: record.key_id ?? "" };
  const said = { status: "released" as const, data: endedTask(taskId, Number(record.bound_at ?? 0)) };
  const reply = await scriptsOf(redis).observe(
    observeKeys(task, accountId, partition),
    observeArgs("", NO_TIERS, requestId, accountId, said, true, 0),
  );
  return reply[0] === "finished" ? Number(reply[10]) : undefined;
}
