import type { Tiers } from "../core/limits.ts";
import { packTiers, voidKeys } from "./calls.ts";
import type { Connection } from "./connection.ts";
import { storeNowMs } from "./keys.ts";
import { claimName, keyRef, openLists, partitionNames, requestName, taskName } from "./names.ts";
import { many } from "./pipelines.ts";

/** A request that is due: a hold to void, or a bound task to ask for. */
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
  /** The store's clock at its claim, Unix ms: the age of a task counts up to here, whatever this process takes for now. */
  claimedAtMs: number;
  /** Fixed when the task was bound; undefined for one that an earlier release bound. */
  maxAgeMs: number | undefined;
  /** Which upstream made the task; undefined as `maxAgeMs` is. */
  upstream: string | undefined;
}

/** The lists of a partition in which something falls due: holds to void, tasks to ask for. */
export type DueList = "holds" | "polls";

export interface Sweeps {
  partitions(): number;
  /** The partitions in whose list something is due. One look at all lists, since mostly nothing is. */
  due(): Promise<Record<DueList, ReadonlySet<number>>>;
  /** Takes up to `most` due holds or tasks of a partition. Two calls never take the same within the lease. */
  claim(
    list: DueList,
    partition: number,
    most: number,
  ): Promise<{ claimed: number; requests: OpenRequest[] }>;
  /** Voids a hold that is past its due time. */
  voidDue(request: OpenRequest, tiers: Tiers): Promise<string>;
  /**
   * Looks at up to `most` requests that may be past their retention, and forgets those that are.
   * @param retentionMs of requests of earlier releases; all others have their own in their record
   */
  collect(
    partition: number,
    retentionMs: number,
    most: number,
  ): Promise<{ looked: number; collected: number }>;
}

/**
 * What the sweeper asks of the store.
 * @param leaseMs how long claimed work is out of other sweepers' sight
 * @throws GatewayError `store_unavailable`
 */
export function createSweeps(connection: Connection, leaseMs: () => number, nowMs?: () => number): Sweeps {
  const { call, command } = connection;
  const now = (): string => (nowMs ? String(nowMs()) : "");

  /** Nothing is open any more: VOID takes what it finds void or missing off the list that it is given for that of holds. */
  async function unlist(list: string, partition: number, requestId: string): Promise<undefined> {
    const nobody = keyRef("", "", partition);
    const keys = voidKeys({ ...nobody, names: { ...nobody.names, holds: list } }, requestId, undefined);
    await call("void", keys, [now(), "", requestId, "due", 0]);
  }

  return {
    partitions: () => connection.facts()?.partitions ?? 0,

    async due() {
      const lists = openLists(connection.facts()?.partitions ?? 0);
      return command(async (redis) => {
        const atMs = nowMs?.() ?? (await storeNowMs(redis));
        const firsts = await many<string[], { name: string }>(redis, lists, (pipe, { name }) =>
          pipe.zrange(name, "0", "0", "WITHSCORES"),
        );
        const due = { holds: new Set<number>(), polls: new Set<number>() };
        for (const [at, { list, partition }] of lists.entries()) {
          if (Number(firsts[at]?.[1] ?? Number.POSITIVE_INFINITY) <= atMs) due[list].add(partition);
        }
        return due;
      });
    },

    async claim(list, partition, most) {
      const name = partitionNames(partition)[list];
      const args = [now(), "", most, leaseMs(), requestName(partition, "")];
      const [atMs, ...claimed] = (await call("claim", [name], args)) as [number, ...Claimed[]];
      const requests = await Promise.all(
        claimed.map((one) => openRequest(one, partition, atMs) ?? unlist(name, partition, one[0])),
      );
      return {
        claimed: claimed.length,
        requests: requests.filter((request) => request !== undefined),
      };
    },

    async voidDue(request, tiers) {
      const { requestId, partition, accountId, creatorKeyId, idempotencyDigest } = request;
      const key = keyRef(creatorKeyId, accountId, partition);
      const keys = voidKeys(key, requestId, idempotencyDigest);
      const [outcome] = await call("void", keys, [now(), packTiers(tiers), requestId, "due", 0]);
      if (outcome === "void") connection.metrics.settlements.inc({ outcome: "void" });
      return String(outcome);
    },

    async collect(partition, retentionMs, most) {
      const { done } = partitionNames(partition);
      // A hint of what may be old enough: COLLECT looks at the store's clock.
      const before = nowMs?.() ?? connection.nowMs();
      const ids = await command((redis) => redis.zrangebyscore(done, "-inf", before, "LIMIT", 0, most));
      const cluster = connection.facts()?.cluster ?? false;
      let collected = 0;
      for (const requestId of ids) {
        const taskId = await command((redis) => redis.hget(requestName(partition, requestId), "task_id"));
        const keys = [requestName(partition, requestId), done];
        if (taskId) keys.push(taskName(taskId, partition, cluster));
        const [outcome] = await call("collect", keys, [now(), "", requestId, Math.round(retentionMs)]);
        if (outcome === "collected") {
          collected++;
          if (cluster && taskId) await call("free", [claimName(taskId)], [now(), "", requestId]);
        }
      }
      return { looked: ids.length, collected };
    },
  };
}

/** One request as CLAIM answers it; texts are empty where there is nothing. */
type Claimed = [
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
function openRequest(claimed: Claimed, partition: number, claimedAtMs: number): OpenRequest | undefined {
  const [requestId, state, accountId, creatorKeyId, taskId, boundAtMs, digest, maxAgeMs, upstream] = claimed;
  if (state !== "held" && state !== "bound") return undefined;
  const idempotencyDigest = digest === "" ? undefined : digest;
  return {
    requestId,
    partition,
    accountId,
    creatorKeyId,
    state,
    idempotencyDigest,
    taskId,
    boundAtMs: Number(boundAtMs),
    claimedAtMs,
    maxAgeMs: maxAgeMs === "" ? undefined : Number(maxAgeMs),
    upstream: upstream === "" ? undefined : upstream,
  };
}
