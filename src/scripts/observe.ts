import type { Tiers } from "../domain/limits.ts";
import type { Observation } from "../domain/task-states.ts";
import { type Actor, actorText } from "../records/actor.ts";
import { type KeyRef, keyRef, requestName, taskName } from "../records/names.ts";
import { clockOf, KEY_STATE_LENGTH, type KeyState, keyStateOf, NO_TIERS } from "./include/limits.ts";
import type { KnownTask } from "./inspect.ts";
import type { Script } from "./script-definition.ts";

/** Three 404s over a minute: the task is gone. */
const GONE_COUNT = 3;
const GONE_MS = 60_000;

/** Which task an observation is about. */
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
  /** The operator who releases it. */
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
