import type { Run } from "../store/script.ts";
import { wouldFailAgain } from "../store/script-errors.ts";
import { type BindCall, type Binding, bind } from "../store/scripts/bind.ts";
import { claim } from "../store/scripts/claim.ts";
import { dispute } from "../store/scripts/dispute.ts";
import { type VoidCall, type Voided, voidHold } from "../store/scripts/void.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Journal } from "./journal.ts";

const ENTRIES_MAX = 50_000;
const FLUSH_BATCH = 200;
/** How long the mark of a disputed task id waits for the BIND of the request that owns it. */
const NOTED_MS = 3_600_000;

/** A settlement whose outcome in the store is unknown: safe to send again, each script has the effect of once. */
interface Waiting {
  /** The store that admitted the request; no other is sent it. Missing where that store had no id. */
  storeId?: string | undefined;
  /** When it was first sent, Unix ms by the store's clock. */
  atMs: number;
  /** How long it may be sent, ms from `atMs`; half of the retention that its request's record was given. */
  settleWithinMs?: number;
  /** When it is given up, Unix ms by the store's clock; fixed when it is put. Lines of early releases have none. */
  untilMs?: number;
}

/** Charges a request for the task that it got. */
export interface Charge extends Waiting {
  script: "bind";
  call: BindCall;
  /** Called with the outcome once the store has answered. */
  settled?: (outcome: Binding) => void;
}

/** Takes a hold back. */
export interface Release extends Waiting {
  script: "void";
  call: VoidCall;
  settled?: (outcome: Voided["outcome"]) => void;
}

export type Settlement = Charge | Release;

/** The store that a flush talks to. */
export interface FlushTarget {
  run: Run;
  /** Undefined while the store has no id. */
  storeId: string | undefined;
  /** The store's clock, Unix ms. */
  nowMs(): number;
  /** How many partitions it has; only for a Redis Cluster. */
  partitions?: number | undefined;
  /** Told of each charge that the store has answered. */
  charged?(charge: Charge, outcome: Binding): void;
}

/** How many settlements wait, and how many of them for another store than the present one. */
export interface OutboxSize {
  entries: number;
  ofOtherStores: number;
}

/** Settlements of one store by script and request id, oldest first. */
type Queue = Map<string, Settlement>;

/**
 * Settlements that wait for their store to answer again, one per request id and script. Those of another store than the
 * present one wait until theirs is back. Bounded: beyond the bound the oldest is given up (its hold ends at the due
 * time), loudly.
 * @param options.settleWithinMs for settlements that do not say so themselves. Older ones are given up: the store may have
 *   forgotten their requests by then, and would charge them once more
 */
export function createOutbox(options: {
  log: Logger;
  journal: Journal;
  settleWithinMs(): number;
  changed(size: OutboxSize): void;
}) {
  const { journal, log } = options;
  /** By the store's id; empty for settlements of a store without one, which any store is sent. */
  const queues = new Map<string, Queue>();
  /** The store of the latest flush. */
  let present: string | undefined;

  function add(settlement: Settlement): void {
    const { storeId = "", script, call } = settlement;
    const queue: Queue = queues.get(storeId) ?? new Map();
    queues.set(storeId, queue);
    queue.set(`${script}:${call.requestId}`, settlement);
  }

  const queuesOf = (storeId: string | undefined): Queue[] =>
    [queues.get(""), storeId ? queues.get(storeId) : undefined].filter((queue) => queue !== undefined);
  const sum = (some: Iterable<Queue>): number => [...some].reduce((size, queue) => size + queue.size, 0);
  const size = (): number => sum(queues.values());
  /** How many a flush to this store would send. */
  const sizeFor = (storeId: string | undefined): number => sum(queuesOf(storeId));

  function reportSize(): void {
    options.changed({ entries: size(), ofOtherStores: size() - sizeFor(present) });
  }

  function giveUpOldest(): void {
    const firsts = [...queues.values()].flatMap((queue) => queue.entries().take(1).toArray());
    const [name, { script, call, storeId = "" }] = firsts.reduce((a, b) => (b[1].atMs < a[1].atMs ? b : a));
    queues.get(storeId)!.delete(name);
    log.error(
      { request_id: call.requestId, script },
      "the outbox is full; its oldest settlement is given up; settle it by hand",
    );
  }

  /** Resolves once the settlement is on disk, or could not be put there: it is kept in memory either way. */
  async function put(settlement: Settlement): Promise<void> {
    if (size() >= ENTRIES_MAX) giveUpOldest();
    const { atMs, settleWithinMs = options.settleWithinMs(), untilMs = atMs + settleWithinMs } = settlement;
    const kept = { ...settlement, untilMs };
    add(kept);
    reportSize();
    await journal.append(kept).catch((error: unknown) => {
      log.error(
        { err: error, request_id: settlement.call.requestId },
        "the journal cannot be written; a crash now loses this charge",
      );
    });
  }

  async function send(target: FlushTarget, settlement: Settlement): Promise<void> {
    const { atMs, untilMs = atMs + options.settleWithinMs(), script, call } = settlement;
    const fields = { request_id: call.requestId, script };
    if (target.nowMs() > untilMs) {
      log.error(fields, "a settlement is too old to be sent; settle it by hand");
      return;
    }
    try {
      if (settlement.script === "bind") {
        const outcome = await charge(target.run, settlement.call, target.partitions);
        target.charged?.(settlement, outcome);
        settlement.settled?.(outcome);
      } else {
        const { outcome } = await target.run(voidHold, settlement.call);
        settlement.settled?.(outcome);
      }
    } catch (error) {
      if (!wouldFailAgain(error)) throw error;
      log.error({ err: error, ...fields }, "the store refuses a settlement; it is given up");
    }
  }

  async function sendAll(target: FlushTarget, queue: Queue): Promise<void> {
    while (queue.size > 0) {
      const batch = queue.entries().take(FLUSH_BATCH).toArray();
      const results = await Promise.allSettled(
        batch.map(([name, settlement]) => send(target, settlement).then(() => queue.delete(name))),
      );
      reportSize();
      const failed = results.find((result) => result.status === "rejected");
      if (failed) throw failed.reason;
    }
  }

  return {
    /** Takes over what ended gateways left, now and later; `found` is told when there is something to flush. */
    watch: (found: () => void): Promise<void> =>
      journal.watch({
        waiting: () => [...queues.values()].flatMap((queue) => [...queue.values()]),
        take(settlements) {
          settlements.forEach(add);
          log.warn({ entries: settlements.length }, "settlements of a gateway that ended are replayed");
          reportSize();
          found();
        },
      }),
    put,
    size,
    sizeFor,
    /**
     * Sends everything that waits for this store, and leaves alone what waits for another. Throws on the first
     * failure; what was not answered stays.
     */
    async flush(target: FlushTarget): Promise<void> {
      const { storeId } = target;
      present = storeId;
      reportSize();
      do {
        for (const queue of queuesOf(storeId)) await sendAll(target, queue);
        // What came after its queue was sent is not answered, and stays on disk.
        if (sizeFor(storeId) > 0) continue;
        await journal.clear(storeId).catch((error: unknown) => {
          log.error({ err: error }, "the journal cannot be cleared; what it holds is settled already");
        });
        // Something may have come in the meantime, and nobody would send it once the breaker has closed.
      } while (sizeFor(storeId) > 0);
    },
  };
}

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
  return (await run(bind, call)).outcome;
}

/** Marks the record of the task id wherever it is; if it is nowhere yet, leaves a mark in each place where it may come. */
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
