import type { BindCall } from "../../scripts/holds.ts";
import type { VoidCall } from "../../scripts/uncharged-holds.ts";
import type { FlushTarget } from "./outbox.ts";

/** A settlement whose outcome in the store may be unknown. It can be sent again: scripts are idempotent. */
interface Waiting {
  /** The store that admitted the request; no other is sent it. Missing where that store had no id. */
  storeId?: string | undefined;
  /** When it was first sent, Unix ms by the store's clock. */
  atMs: number;
  /** How long it may be sent, ms from `atMs`; see `settleWithinMs`. */
  settleWithinMs?: number;
  /** Until when it may be sent, Unix ms by the store's clock; fixed when it is put. */
  untilMs?: number;
  /** The store has answered it before, so its outcome is in the metrics already. Sent again, it counts as a replay. */
  replay?: boolean;
  /** BIND has answered `uncollected`, and a repeat will answer the same. */
  unpaid?: boolean;
  /** The store has answered it. It is kept until a replica has it, too, and sent again to a primary that may lack it. */
  acknowledged?: boolean;
}

export interface Charge extends Waiting {
  script: "bind";
  call: BindCall;
}

export interface VoidSettlement extends Waiting {
  script: "void";
  call: VoidCall;
}

export type Settlement = Charge | VoidSettlement;

/** A task that passed while the store was away: it is bound at price 0, of a request that was never admitted. */
export const isUnmetered = (settlement: Settlement): boolean =>
  settlement.script === "bind" && settlement.call.price === 0;

export const logFieldsOf = ({ call, script }: Settlement) => ({ request_id: call.requestId, script });

/** Settlements that are sent at a time: some calls, so that a round trip costs little beside them, and well within the time limit of one. */
export const FLUSH_BATCH = 512;

/** Settlements of one store by script and request id, oldest first. */
export type Queue = Map<string, Settlement>;

export type Queues = ReturnType<typeof createQueues>;

/** Two queues per store: charges and VOIDs, and behind them unmetered tasks, which take no room from them. */
export function createQueues() {
  /** By `queueOf`. The store's id is empty for settlements of a store without one, which are sent to any store. */
  const queues = new Map<string, Queue>();
  /** Names of those that wait for a claim on another primary than their account's, which has refused it. */
  const waitingForClaim = new Set<string>();
  const queuesOf = (storeId = ""): Queue[] =>
    [...new Set(["", storeId, UNMETERED, storeId + UNMETERED])].flatMap((name) => queues.get(name) ?? []);
  const queuesWith = (unmetered: boolean): Queue[] =>
    [...queues].flatMap(([name, queue]) => (name.endsWith(UNMETERED) === unmetered ? [queue] : []));
  /** Settlements of a queue that wait for this primary and not for a claim. */
  const sendable = (queue: Queue, has: FlushTarget["has"]) =>
    queue.entries().filter(([name, settlement]) => has(settlement) && !waitingForClaim.has(name));

  return {
    of: queuesOf,
    /** Nothing happens to one that is in no queue. */
    waitForClaim(settlement: Settlement): void {
      const name = nameOf(settlement);
      if (queues.get(queueOf(settlement))?.has(name)) waitingForClaim.add(name);
    },
    hasWaitingForClaim: (): boolean => waitingForClaim.size > 0,
    waitingForClaimOf: ({ has }: FlushTarget, queue: Queue): Settlement[] =>
      queue
        .values()
        .filter((settlement) => waitingForClaim.has(nameOf(settlement)) && has(settlement))
        .toArray(),
    add(settlement: Settlement): void {
      const queue: Queue = queues.get(queueOf(settlement)) ?? new Map();
      queues.set(queueOf(settlement), queue);
      queue.set(nameOf(settlement), settlement);
    },
    all: (): Settlement[] => [...queues.values()].flatMap((queue) => [...queue.values()]),
    size: (): number => sum(queues.values()),
    sizeOf: (unmetered: boolean): number => sum(queuesWith(unmetered)),
    /** How many flushes to all primaries of this store would send. */
    sizeFor: (storeId: string | undefined): number => sum(queuesOf(storeId)),
    hasFor: ({ storeId, has }: Pick<FlushTarget, "storeId" | "has">): boolean =>
      queuesOf(storeId).some((queue) => sendable(queue, has).next().done === false),
    nextFor: ({ has }: FlushTarget, queue: Queue): Settlement[] =>
      sendable(queue, has)
        .map(([, settlement]) => settlement)
        .take(FLUSH_BATCH)
        .toArray(),
    remove(queue: Queue, settlement: Settlement): void {
      queue.delete(nameOf(settlement));
      waitingForClaim.delete(nameOf(settlement));
    },
    /** Unmetered tasks stay. */
    removeOldest(): Settlement {
      const [name, settlement] = oldestIn(queuesWith(false));
      queues.get(queueOf(settlement))!.delete(name);
      waitingForClaim.delete(name);
      return settlement;
    },
  };
}

const sum = (some: Iterable<Queue>): number => [...some].reduce((size, queue) => size + queue.size, 0);

function oldestIn(some: readonly Queue[]): [name: string, settlement: Settlement] {
  const firsts = some.flatMap((queue) => queue.entries().take(1).toArray());
  return firsts.reduce((a, b) => (b[1].atMs < a[1].atMs ? b : a));
}

const UNMETERED = " unmetered";
const queueOf = (settlement: Settlement): string =>
  (settlement.storeId ?? "") + (isUnmetered(settlement) ? UNMETERED : "");

export const nameOf = ({ script, call }: Settlement): string => `${script}:${call.requestId}`;
