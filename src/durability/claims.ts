import { claimName, claimText, readClaim, unclaimedName } from "../records/names.ts";
import { pipelineOfTick } from "../redis/pipelines.ts";
import { isOfSlot, isOutOfMemory, isRefusedByStore } from "../redis/script-errors.ts";
import { type BindCall, type Binding, bindClaimed } from "../scripts/holds.ts";
import { type CollectCall, type Collected, collect, dispute } from "../scripts/tasks.ts";
import type { TaskStore } from "./task-ids.ts";

/** The dispute flag of a task id waits so long for the BIND of its owner. */
const NOTED_MS = 3_600_000;
/** A gateway tries a waiting claim again, and notes it again, every second. */
const UNCLAIMED_MS = 60_000;
/** Longer than any task and its record live (60 and twice 366 days): a claim whose owner was lost expires. */
const CLAIM_MS = 800 * 86_400_000;

/** The claim's primary is unavailable or refuses it, or its slot moves. Nothing was charged, and the account's primary has not failed. */
export class ClaimError extends Error {
  constructor(cause: unknown) {
    super("the primary of the task id's claim does not answer as it should", { cause });
  }
}

/** BIND and COLLECT on a Redis Cluster, where a script cannot reach the claim of the task id. */
export function createClaims(store: TaskStore) {
  const take = createTaking(store);
  const failUnclaimed = createNotes(store);
  const read = async (name: string): Promise<string | undefined> => {
    const owner = await store.ofName(name).command((redis) => redis.get(name));
    return owner === null ? undefined : readClaim(owner).requestId;
  };
  const remove = (name: string): Promise<number> => store.ofName(name).command((redis) => redis.del(name));
  const leftClaims = createLeftClaims(read, remove);

  /** Failures that stop only this claim: of another primary, of the claim's slot, and refusals (no permission). @throws ClaimError */
  async function elsewhere<T>(account: { partition: number }, server: unknown, work: Promise<T>): Promise<T> {
    try {
      return await work;
    } catch (error) {
      const { cause = error } = error as Error;
      const isClaims = isOfSlot(cause) || isRefusedByStore(cause);
      throw server === store.of(account.partition) && !isClaims ? error : new ClaimError(error);
    }
  }

  return {
    /** @param isRepeat the store has answered it before, so its claim is not waited for @throws ClaimError */
    async bind(call: BindCall, isRepeat = false): Promise<Binding> {
      const { requestId, key } = call;
      const { taskId } = call.task;
      const name = claimName(taskId);
      const claimed = elsewhere(key, store.ofName(name), take(call));
      const taken = await claimed.catch((error: unknown) =>
        isRepeat ? withoutClaim(error) : failUnclaimed(call, error),
      );
      const owner = taken ? readClaim(taken) : undefined;
      if (owner && owner.requestId !== requestId) {
        const { partition } = owner;
        const given = { taskId, partition, ownerId: owner.requestId, accountId: key.accountId };
        const other = store.of(partition);
        await elsewhere(key, other, other.run(dispute, { ...given, lifetimeMs: NOTED_MS }));
        return "conflict";
      }
      const outcome = await store.of(key.partition).run(bindClaimed, call);
      // Without a charge nobody else could use the task id. A failure is repeated with the charge.
      if (taken !== undefined && (outcome === "forgotten" || outcome === "conflict"))
        await elsewhere(key, store.ofName(name), remove(name));
      return outcome;
    },

    /** Reads the claim first, so that nothing is collected while its primary is unavailable. @throws ClaimError */
    async collect(call: CollectCall & { taskId: string }): Promise<Collected> {
      const name = claimName(call.taskId);
      await leftClaims.remove();
      const owner = await elsewhere(call, store.ofName(name), read(name));
      const { outcome } = await store.of(call.partition).run(collect, call);
      if (outcome === "collected" && owner === call.requestId)
        await remove(name).catch(() => leftClaims.add(name, call.requestId));
      return outcome;
    },
  };
}

/** Also while Redis is out of memory, as BIND. */
const CLAIM = '#!lua flags=allow-oom\nreturn redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2], "NX", "GET")';

/** @returns takes the claim of a task id; resolves to who has it already, else null */
function createTaking(store: TaskStore) {
  const server = ({ task }: BindCall) => store.ofName(claimName(task.taskId));
  const textOf = ({ requestId, key }: BindCall): string => claimText(requestId, key.partition);
  const take = pipelineOfTick<BindCall, string | null>(server, (pipe, call) =>
    pipe.set(claimName(call.task.taskId), textOf(call), "PX", CLAIM_MS, "NX", "GET"),
  );
  const takeWithoutMemory = pipelineOfTick<BindCall, string | null>(server, (pipe, call) =>
    pipe.eval(CLAIM, 1, claimName(call.task.taskId), textOf(call), CLAIM_MS),
  );
  return (call: BindCall): Promise<string | null> =>
    take(call).catch((error: Error) => {
      if (isOutOfMemory(error.cause ?? error)) return takeWithoutMemory(call);
      throw error;
    });
}

/** Also while Redis is out of memory. */
const NOTE = '#!lua flags=allow-oom\nreturn redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2])';

/** Charges without their claim are noted for polls at any gateway, best effort. @returns throws the error that it gets */
function createNotes(store: TaskStore) {
  const note = pipelineOfTick<BindCall, unknown>(
    ({ key, task }) => store.ofName(unclaimedName(key.partition, task.taskId)),
    (pipe, { key, task }) =>
      pipe.eval(NOTE, 1, unclaimedName(key.partition, task.taskId), key.accountId, UNCLAIMED_MS),
  );
  return async (call: BindCall, error: unknown): Promise<never> => {
    if (error instanceof ClaimError) await note(call).catch(() => undefined);
    throw error;
  };
}

/** More expire on their own. */
const LEFT_MAX = 10_000;
const LEFT_BATCH = 20;

/** Claims of collected requests whose primary became unavailable. */
function createLeftClaims(
  read: (name: string) => Promise<string | undefined>,
  remove: (name: string) => Promise<unknown>,
) {
  const requestIds = new Map<string, string>();

  function add(name: string, requestId: string): void {
    if (requestIds.size < LEFT_MAX) requestIds.set(name, requestId);
  }

  return {
    add,
    /** Another request may have claimed the task id since. */
    async remove(): Promise<void> {
      for (const [name, requestId] of [...requestIds].slice(0, LEFT_BATCH)) {
        requestIds.delete(name);
        try {
          if ((await read(name)) === requestId) await remove(name);
        } catch {
          add(name, requestId);
        }
      }
    },
  };
}

export function withoutClaim(error: unknown): undefined {
  if (error instanceof ClaimError) return undefined;
  throw error;
}
