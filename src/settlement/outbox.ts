import type { Run } from "../store/script.ts";
import { wouldFailAgain } from "../store/script-errors.ts";
import type { Binding } from "../store/scripts/bind.ts";
import { type Voided, voidHold } from "../store/scripts/void.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Journal } from "./journal.ts";
import { type Charge, charge, type Settlement } from "./settlement.ts";

const ENTRIES_MAX = 50_000;
const FLUSH_BATCH = 200;

/** The primary of a store that a flush sends to. */
export interface FlushTarget {
  run: Run;
  /** Undefined while the store has no id. */
  storeId: string | undefined;
  /** Whether a partition is on the primary that `run` calls; nothing else is sent. */
  has(partition: number): boolean;
  /** The store's clock, Unix ms. */
  nowMs(): number;
  /** How many partitions it has; only for a Redis Cluster. */
  partitions?: number | undefined;
  /** Called with what the store has answered. */
  charged?(charge: Charge, outcome: Binding): void;
  voided?(outcome: Voided["outcome"]): void;
}

/** How many settlements wait, and how many of them for another store than the present one. */
export interface OutboxSize {
  entries: number;
  ofOtherStores: number;
}

/** Settlements of one store by script and request id, oldest first. */
type Queue = Map<string, Settlement>;

/** One queue per store. */
function createQueues() {
  /** By the store's id; empty for settlements of a store without one, which are sent to any store. */
  const queues = new Map<string, Queue>();
  const queuesOf = (storeId: string | undefined): Queue[] =>
    [queues.get(""), storeId ? queues.get(storeId) : undefined].filter((queue) => queue !== undefined);
  const sum = (some: Iterable<Queue>): number => [...some].reduce((size, queue) => size + queue.size, 0);

  return {
    /** The queues that a flush to this store sends. */
    of: queuesOf,
    add(settlement: Settlement): void {
      const { storeId = "", script, call } = settlement;
      const queue: Queue = queues.get(storeId) ?? new Map();
      queues.set(storeId, queue);
      queue.set(`${script}:${call.requestId}`, settlement);
    },
    all: (): Settlement[] => [...queues.values()].flatMap((queue) => [...queue.values()]),
    size: (): number => sum(queues.values()),
    /** How many flushes to all primaries of this store would send. */
    sizeFor: (storeId: string | undefined): number => sum(queuesOf(storeId)),
    /** Whether a flush would send any. */
    hasFor: ({ storeId, has }: Pick<FlushTarget, "storeId" | "has">): boolean =>
      queuesOf(storeId).some((queue) => queue.values().some(({ call }) => has(call.key.partition))),
    removeOldest(): Settlement {
      const firsts = [...queues.values()].flatMap((queue) => queue.entries().take(1).toArray());
      const [name, settlement] = firsts.reduce((a, b) => (b[1].atMs < a[1].atMs ? b : a));
      queues.get(settlement.storeId ?? "")!.delete(name);
      return settlement;
    },
  };
}

/**
 * Settlements that wait for their store to answer again, one per request id and script. Those of another store than the
 * present one wait until theirs is back. Bounded: beyond the bound the oldest is dropped and logged (its hold ends at
 * the due time).
 * @param options.settleWithinMs for settlements that have no time of their own. Older ones are dropped: the store may have
 *   forgotten their requests by then, and would charge them once more
 */
export function createOutbox(options: {
  log: Logger;
  journal: Journal;
  settleWithinMs(): number;
  changed(size: OutboxSize): void;
}) {
  const { journal, log } = options;
  const queues = createQueues();
  const { size, sizeFor, hasFor } = queues;
  /** The store of the latest flush. */
  let present: string | undefined;

  function reportSize(): void {
    options.changed({ entries: size(), ofOtherStores: size() - sizeFor(present) });
  }

  /** Resolves once the settlement is on disk, or could not be put there: it is kept in memory either way. */
  async function put(settlement: Settlement): Promise<void> {
    if (size() >= ENTRIES_MAX)
      log.error(
        fieldsOf(queues.removeOldest()),
        "the outbox is full; its oldest settlement is given up; settle it by hand",
      );
    const { atMs, settleWithinMs = options.settleWithinMs(), untilMs = atMs + settleWithinMs } = settlement;
    const kept = { ...settlement, untilMs };
    queues.add(kept);
    reportSize();
    await journal.append(kept).catch((error: unknown) => {
      log.error(
        { err: error, request_id: settlement.call.requestId },
        "the journal cannot be written; a crash now loses this charge",
      );
    });
  }

  async function send(target: FlushTarget, settlement: Settlement): Promise<void> {
    const { atMs, untilMs = atMs + options.settleWithinMs() } = settlement;
    if (target.nowMs() > untilMs) {
      log.error(fieldsOf(settlement), "a settlement is too old to be sent; settle it by hand");
      return;
    }
    try {
      await settle(target, settlement);
    } catch (error) {
      if (!wouldFailAgain(error)) throw error;
      log.error({ err: error, ...fieldsOf(settlement) }, "the store refuses a settlement; it is given up");
    }
  }

  async function sendAll(target: FlushTarget, queue: Queue): Promise<void> {
    for (let batch = nextFor(target, queue); batch.length > 0; batch = nextFor(target, queue)) {
      const results = await Promise.allSettled(
        batch.map(([name, settlement]) => send(target, settlement).then(() => queue.delete(name))),
      );
      reportSize();
      const failed = results.find((result) => result.status === "rejected");
      if (failed) throw failed.reason;
    }
  }

  return {
    /** Takes over the settlements of ended gateways, now and later; calls `found` when there is something to flush. */
    watch: (found: () => void): Promise<void> =>
      journal.watch({
        waiting: queues.all,
        take(settlements) {
          settlements.forEach(queues.add);
          log.warn({ entries: settlements.length }, "settlements of a gateway that ended are replayed");
          reportSize();
          found();
        },
      }),
    put,
    size,
    sizeFor,
    hasFor,
    /**
     * Sends everything that waits for this primary of this store, and nothing that waits for another. Throws on the first
     * failure; settlements without an answer stay.
     */
    async flush(target: FlushTarget): Promise<void> {
      const { storeId } = target;
      present = storeId;
      reportSize();
      do {
        for (const queue of queues.of(storeId)) await sendAll(target, queue);
        // A settlement that was put after its queue was sent has no answer yet, and stays on disk. So do those of another
        // primary, and with them the lines that are answered: a second answer to these changes nothing.
        if (sizeFor(storeId) > 0) continue;
        await journal.clear(storeId).catch((error: unknown) => {
          log.error({ err: error }, "the journal cannot be cleared; what it holds is settled already");
        });
        // More may have been put meanwhile, and nothing would send it once the breaker has closed.
      } while (hasFor(target));
    },
  };
}

const fieldsOf = ({ call, script }: Settlement) => ({ request_id: call.requestId, script });

/** The oldest settlements of a queue that wait for this primary. */
const nextFor = ({ has }: FlushTarget, queue: Queue): [name: string, settlement: Settlement][] =>
  queue
    .entries()
    .filter(([, { call }]) => has(call.key.partition))
    .take(FLUSH_BATCH)
    .toArray();

/** Sends one settlement, and reports its outcome. */
async function settle(target: FlushTarget, settlement: Settlement): Promise<void> {
  if (settlement.script === "bind") {
    // A line of an earlier release lacks the time of admission. It was first sent before the hold was due.
    const { admittedAtMs = settlement.atMs } = settlement.call;
    const outcome = await charge(target.run, { ...settlement.call, admittedAtMs }, target.partitions);
    target.charged?.(settlement, outcome);
  } else {
    const { outcome } = await target.run(voidHold, settlement.call);
    target.voided?.(outcome);
  }
}
