import { failedTaskJson, type Observation, pendingTaskJson } from "../domain/answers.ts";
import type { Tiers } from "../domain/limits.ts";
import { createTaskIds } from "../durability/task-ids.ts";
import { claimName, indexName, type KeyRef, keyRef, partitionOf } from "../records/names.ts";
import type { Connection } from "../redis/connection.ts";
import { type CreditAccount, credits } from "../scripts/accounts.ts";
import type { KeyState } from "../scripts/holds.ts";
import { type Inspection, inspect, type ObservedTask, observe } from "../scripts/tasks.ts";

/** Look-ups share one place in the fair queue: the key that makes them is not known yet. */
const LOOKUPS = "look-ups";

export interface Observed extends KeyState {
  outcome: "observed" | "finished" | "already_finished" | "missing";
  status: string;
  data: string;
  refunded: number;
  /** The upstream gave the task's id to another request, too: its answer must not be passed on. */
  isDisputed?: true;
}

export type Store = ReturnType<typeof createStore>;

/** One script call each. @throws GatewayError `store_unavailable` from every operation, unless it says otherwise */
export function createStore(connection: Connection) {
  /** @param owner in whose turn it waits while too many calls are under way */
  async function inspectKey(key: KeyRef, tiers: Tiers, owner: string): Promise<Inspection> {
    const { run, queue } = connection.of(key.partition);
    if (queue.isFull()) await queue.wait(owner);
    return run(inspect, { key, tiers });
  }

  const taskIds = createTaskIds(connection);

  return {
    requireUsable: connection.requireUsable,
    /** Which outage of its primary an account has, if that is away: then requests of keys seen good may pass unmetered. */
    outage: (partition: number): Promise<number | undefined> => connection.of(partition).outage(),
    isJustBack: (partition: number): boolean => connection.of(partition).isJustBack(),

    /** By a digest; undefined when there is none, or it is revoked or expired. One read and one INSPECT; cache the result. */
    async lookup(digest: string, tiers: Tiers): Promise<KeyRef | undefined> {
      const name = indexName(digest);
      const { command, queue } = connection.ofName(name);
      if (queue.isFull()) await queue.wait(LOOKUPS);
      const entry = await command((redis) => redis.get(name));
      const facts = connection.known.facts;
      if (!facts) return undefined;
      // An unknown key costs the same calls as a revoked one: else the response time would tell them apart.
      const [keyId, accountId] = entry === null ? [digest, digest] : splitAtSpace(entry);
      const key = keyRef(keyId, accountId, partitionOf(accountId, facts.partitions));
      const { outcome } = await inspectKey(key, tiers, LOOKUPS);
      return outcome === "unknown_key" ? undefined : key;
    },

    inspect: (key: KeyRef, tiers: Tiers): Promise<Inspection> => inspectKey(key, tiers, key.keyId),

    async inspectTask(key: KeyRef, taskId: string, cacheMs: number, tiers: Tiers): Promise<Inspection> {
      const { run, queue } = connection.of(key.partition);
      if (queue.isFull()) await queue.wait(key.keyId);
      return run(inspect, { key, tiers, task: { taskId, cacheMs } });
    },

    isTaskBound: taskIds.isBound,
    /**
     * True if a task that is not known may have been accepted in an outage that has just ended, of its account's primary or, on a
     * cluster, where a claim comes before its BIND, of that of its claim; there also if it waits for its claim, or for its partition.
     * Undefined if nothing has to be asked: it may not.
     * @throws GatewayError `store_unavailable` while that is away
     */
    mayBeBoundSoon(key: KeyRef, taskId: string): Promise<boolean> | undefined {
      const isJustBack = connection.of(key.partition).isJustBack();
      if (connection.known.facts?.cluster)
        return taskIds
          .isWaiting(key, taskId)
          .then((isWaiting) => isWaiting || isJustBack || connection.ofName(claimName(taskId)).isJustBack());
      return isJustBack ? taskIds.isBound(taskId).then((isBound) => !isBound) : undefined;
    },

    observe: createObserve(connection),

    async credits(key: KeyRef, tiers: Tiers): Promise<CreditAccount> {
      const { run, queue } = connection.of(key.partition);
      if (queue.isFull()) await queue.wait(key.keyId);
      return run(credits, { key, tiers });
    },
  };
}

function createObserve(connection: Connection) {
  const { metrics } = connection;

  function countEnd(status: string, refunded: number): void {
    metrics.settlements.inc({ outcome: status === "gone" || status === "expired" ? status : "finished" });
    if (refunded === 0) return;
    metrics.settlements.inc({ outcome: "refunded" });
    metrics.creditsRefunded.inc(refunded);
  }

  /** @param options.poller the key whose numbers are answered @param options.maxAgeMs of a restored task; others have their own */
  return async function observeTask(
    subject: { partition: number; accountId: string; task: ObservedTask },
    observation: { status: Observation; data: string },
    options: { refundFailed: boolean; pollMs: number; maxAgeMs: number; poller?: KeyRef; tiers: Tiers },
  ): Promise<Observed> {
    const { refundFailed, pollMs, maxAgeMs, poller, tiers } = options;
    const record = async ({ status, data }: typeof observation) => {
      const call = { ...subject, status, data, refundFailed, pollMs };
      const reply = await connection
        .of(subject.partition)
        .run(observe, poller ? { ...call, poller: { key: poller, tiers } } : call);
      if (reply.outcome === "finished") countEnd(status, reply.refunded);
      return reply;
    };
    const reply = await record(observation);
    if (reply.outcome !== "disputed") return reply;
    // The upstream may speak of another account's task: only its age can end this one.
    const { taskId } = subject.task;
    const { boundAtMs } = reply;
    if (reply.nowMs >= boundAtMs + (reply.maxAgeMs ?? maxAgeMs)) {
      const expired = await record({ status: "expired", data: failedTaskJson(taskId, boundAtMs) });
      if (expired.outcome !== "disputed") return expired;
    }
    const { status, data } = reply;
    const before =
      data === "" ? { status: "pending", data: pendingTaskJson(taskId, boundAtMs) } : { status, data };
    return { ...reply, outcome: "observed", ...before, isDisputed: true };
  };
}

function splitAtSpace(entry: string): [keyId: string, accountId: string] {
  const space = entry.indexOf(" ");
  return [entry.slice(0, space), entry.slice(space + 1)];
}
