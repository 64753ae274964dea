import type { Run } from "../store/script.ts";
import { type BindCall, type Binding, bind } from "../store/scripts/bind.ts";
import { claim } from "../store/scripts/claim.ts";
import { dispute } from "../store/scripts/dispute.ts";
import { unclaim } from "../store/scripts/unclaim.ts";
import type { VoidCall } from "../store/scripts/void.ts";

/** How long the mark of a disputed task id waits for the BIND of the request that owns it. */
const NOTED_MS = 3_600_000;

/** A settlement whose outcome in the store may be unknown. It can be sent again: scripts are idempotent. */
interface Waiting {
  /** The store that admitted the request; no other is sent it. Missing where that store had no id. */
  storeId?: string | undefined;
  /** When it was first sent, Unix ms by the store's clock. */
  atMs: number;
  /** How long it may be sent, ms from `atMs`; half of the retention that its request's record was given. */
  settleWithinMs?: number;
  /** Until when it may be sent, Unix ms by the store's clock; fixed when it is put. Lines of early releases have none. */
  untilMs?: number;
  /** Its outcome is in the metrics already: the store confirmed it once, and lost it. */
  isCounted?: boolean;
  /** The store has answered it. It is kept until a replica has it, too, and sent again to a primary that may lack it. */
  isAnswered?: boolean;
}

/** Charges a request for the task that it got. */
export interface Charge extends Waiting {
  script: "bind";
  call: BindCall;
}

/** Voids a hold. */
export interface VoidSettlement extends Waiting {
  script: "void";
  call: VoidCall;
}

export type Settlement = Charge | VoidSettlement;

/**
 * Runs BIND. On a Redis Cluster a task id that another request owns is a conflict before it, and is marked as disputed.
 * @param partitions how many there are
 */
export async function charge(run: Run, call: BindCall, partitions = 0): Promise<Binding> {
  if (call.clustered) {
    const { taskId } = call.task;
    const claimed = await run(claim, { taskId, requestId: call.requestId });
    if (claimed.outcome === "conflict") {
      await markDisputed(run, call, claimed.ownerId, partitions);
      return "conflict";
    }
  }
  const { outcome } = await run(bind, call);
  // Nobody else could use the task id that CLAIM has just taken.
  if (outcome === "forgotten" && call.clustered) {
    await run(unclaim, { taskId: call.task.taskId, requestId: call.requestId });
  }
  return outcome;
}

/** Marks the task's record in its partition; before it exists, leaves a mark in each partition where it may be written. */
async function markDisputed(run: Run, call: BindCall, ownerId: string, partitions: number): Promise<void> {
  const { key, task } = call;
  const common = { taskId: task.taskId, ownerId, accountId: key.accountId };
  for (const lifetimeMs of [0, NOTED_MS]) {
    const replies = await Promise.all(
      Array.from({ length: partitions }, (_, partition) =>
        run(dispute, { ...common, partition, lifetimeMs }),
      ),
    );
    if (replies.some(({ outcome }) => outcome === "disputed")) return;
  }
}
