import { ClaimError } from "../store/claims.ts";
import type { Run } from "../store/script-definition.ts";
import { wouldFailAgain } from "../store/script-errors.ts";
import type { Binding } from "../store/scripts/bind.ts";
import { type Voided, voidHold } from "../store/scripts/void.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Journal } from "./journal.ts";
import type { Charge, Settlement } from "./pending-settlement.ts";
import type { UnconfirmedCharges } from "./unconfirmed.ts";

const ENTRIES_MAX = 50_000;
const FLUSH_BATCH = 200;
/** Lines of answered charges in the journal; above it, those that are needed no more are removed. */
const ANSWERED_LINES_MAX = 100_000;

/** The primary of a store that a flush sends to. */
export interface FlushTarget {
  run: Run;
  /** Undefined while the store has no id. */
  storeId: string | undefined;
  /** Whether the primary that `run` calls can settle it now; nothing else is sent. */
  has(settlement: Settlement): boolean;
  /** The store's clock, Unix ms. */
  nowMs(): number;
  /** Runs BIND. @param isRepeat whether the store has answered it before @throws ClaimError */
  bind(call: Charge["call"], isRepeat: boolean): Promise<Binding>;
  /** The run of the primary, where answered charges wait for replicas. */
  runId?: string | undefined;
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
  /** Names of those that wait for a claim on another primary than their account's, which has refused it. */
  const waitingForClaim = new Set<string>();
  const queuesOf = (storeId: string | undefined): Queue[] =>
    [queues.get(""), storeId ? queues.get(storeId) : undefined].filter((queue) => queue !== undefined);
  const sum = (some: Iterable<Queue>): number => [...some].reduce((size, queue) => size + queue.size, 0);

  return {
    /** The queues that a flush to this store sends. */
    of: queuesOf,
    /** Nothing happens to one that is in no queue. */
    waitForClaim(settlement: Settlement): void {
      const name = nameOf(settlement);
      if (queues.get(settlement.storeId ?? "")?.has(name)) waitingForClaim.add(name);
    },
    hasWaitingForClaim: (): boolean => waitingForClaim.size > 0,
    waitingForClaimOf: ({ has }: FlushTarget, queue: Queue): Settlement[] =>
      queue
        .values()
        .filter((settlement) => waitingForClaim.has(nameOf(settlement)) && has(settlement))
        .toArray(),
    add(settlement: Settlement): void {
      const { storeId = "" } = settlement;
      const queue: Queue = queues.get(storeId) ?? new Map();
      queues.set(storeId, queue);
      queue.set(nameOf(settlement), settlement);
    },
    all: (): Settlement[] => [...queues.values()].flatMap((queue) => [...queue.values()]),
    size: (): number => sum(queues.values()),
    /** How many flushes to all primaries of this store would send. */
    sizeFor: (storeId: string | undefined): number => sum(queuesOf(storeId)),
    /** Whether a flush would send any. */
    hasFor: ({ storeId, has }: Pick<FlushTarget, "storeId" | "has">): boolean =>
      queuesOf(storeId).some((queue) =>
        queue.entries().some(([name, settlement]) => has(settlement) && !waitingForClaim.has(name)),
      ),
    /** The oldest of a queue that wait for this primary. */
    nextFor: ({ has }: FlushTarget, queue: Queue): Settlement[] =>
      queue
        .entries()
        .filter(([name, settlement]) => has(settlement) && !waitingForClaim.has(name))
        .map(([, settlement]) => settlement)
        .take(FLUSH_BATCH)
        .toArray(),
    remove(queue: Queue, settlement: Settlement): void {
      queue.delete(nameOf(settlement));
      waitingForClaim.delete(nameOf(settlement));
    },
    removeOldest(): Settlement {
      const firsts = [...queues.values()].flatMap((queue) => queue.entries().take(1).toArray());
      const [name, settlement] = firsts.reduce((a, b) => (b[1].atMs < a[1].atMs ? b : a));
      queues.get(settlement.storeId ?? "")!.delete(name);
      waitingForClaim.delete(name);
      return settlement;
    },
  };
}

const nameOf = ({ script, call }: Settlement): string => `${script}:${call.requestId}`;

interface OutboxOptions {
  log: Logger;
  journal: Journal;
  /**
   * For settlements that have no time of their own. Older ones are dropped: the store may have forgotten their requests by
   * then, and would charge them once more.
   */
  settleWithinMs(): number;
  changed(size: OutboxSize): void;
  /** Keeps charges that the store has answered until replicas have them; without it they are done. */
  unconfirmed?: UnconfirmedCharges | undefined;
}

interface OutboxParts extends OutboxOptions {
  queues: ReturnType<typeof createQueues>;
  reportSize(): void;
}

/**
 * Settlements that wait for their store to answer again, one per request id and script. Those of another store than the
 * present one wait until theirs is back. Bounded: beyond the bound the oldest is dropped and logged (its hold ends at
 * the due time).
 */
export function createOutbox(options: OutboxOptions) {
  const { journal, unconfirmed } = options;
  const queues = createQueues();
  const { size, sizeFor, hasFor, hasWaitingForClaim } = queues;
  /** The store of the latest flush. */
  let present: string | undefined;
  const reportSize = (): void =>
    options.changed({ entries: size(), ofOtherStores: size() - sizeFor(present) });
  const parts: OutboxParts = { ...options, queues, reportSize };
  const keeping = createKeeping(parts);
  const { sendAll, sendWaitingForClaim, sendMissed } = createSending(parts);

  return {
    ...keeping,
    size,
    sizeFor,
    hasFor,
    hasWaitingForClaim,
    sendMissed,
    /** Sends settlements whose claim was refused before. The claim may succeed now. Throws if this primary fails itself. */
    async flushWaitingForClaim(target: FlushTarget): Promise<void> {
      for (const queue of queues.of(target.storeId)) await sendWaitingForClaim(target, queue);
      await keeping.clearJournal(target.storeId);
    },
    /** Takes over the settlements of ended gateways, now and later; calls `found` when there is something to flush. */
    watch: (found: () => void): Promise<void> =>
      journal.watch({
        waiting: () => [...queues.all(), ...(unconfirmed?.all() ?? [])],
        take: (settlements) => take(parts, settlements, found),
      }),
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
        await sendMissed(target);
        // A settlement that was put after its queue was sent has no answer yet, and stays on disk. So do those of another
        // primary, and with them the lines that are answered: a second answer to these changes nothing.
        await keeping.clearJournal(storeId);
        // More may have been put meanwhile, and nothing would send it once the breaker has closed.
      } while (hasFor(target));
    },
  };
}

/** Keeps settlements in memory and in the journal. */
function createKeeping({ journal, log, queues, unconfirmed, settleWithinMs, reportSize }: OutboxParts) {
  const { size, sizeFor } = queues;
  /** Lines of answered charges since the journal was last cleared. */
  let answeredLines = 0;

  /**
   * Resolves once the settlement is on disk, or could not be put there: it is kept in memory either way.
   * @param waitsForClaim whether it waits for a claim on another primary, and `flush` leaves it alone
   */
  async function put(settlement: Settlement, waitsForClaim = false): Promise<void> {
    if (size() >= ENTRIES_MAX)
      log.error(
        fieldsOf(queues.removeOldest()),
        "the outbox is full; its oldest settlement is given up; settle it by hand",
      );
    const kept = withDeadline(settlement);
    queues.add(kept);
    if (waitsForClaim) queues.waitForClaim(kept);
    reportSize();
    await write([kept]);
  }

  function withDeadline<S extends Settlement>(settlement: S): S {
    const { atMs, settleWithinMs: withinMs = settleWithinMs(), untilMs = atMs + withinMs } = settlement;
    return { ...settlement, untilMs };
  }

  /** @returns whether they are on disk */
  async function write(settlements: readonly Settlement[]): Promise<boolean> {
    try {
      await Promise.all(settlements.map(journal.append));
      return true;
    } catch (error) {
      log.error(
        { err: error, request_id: settlements.at(-1)?.call.requestId },
        "the journal cannot be written; a crash now loses this charge",
      );
      return false;
    }
  }

  /**
   * Keeps a charge that the store has answered, until replicas have it.
   * @param runId the run of the primary that has answered it
   * @returns whether it is on disk
   */
  function keepAnswered(charge: Charge, runId: string | undefined): Promise<boolean> {
    const kept: Charge = { ...withDeadline(charge), isCounted: true, isAnswered: true };
    const { storeId } = charge;
    unconfirmed?.add(kept, runId);
    if (++answeredLines < ANSWERED_LINES_MAX || !unconfirmed || sizeFor(storeId) > 0) return write([kept]);
    // A crash before they are written again loses charges only if the primary is lost at the same moment.
    const all = unconfirmed.of(storeId);
    void clearFile(storeId);
    answeredLines = all.length;
    return write(all);
  }

  async function clearFile(storeId: string | undefined): Promise<void> {
    answeredLines = 0;
    await journal.clear(storeId).catch((error: unknown) => {
      log.error({ err: error }, "the journal cannot be cleared; what it holds is settled already");
    });
  }

  /** Unless a settlement of this store waits for its answer or for replicas. */
  async function clearJournal(storeId: string | undefined): Promise<void> {
    if (sizeFor(storeId) === 0 && !unconfirmed?.has(storeId)) await clearFile(storeId);
  }

  return { put, keepAnswered, clearJournal };
}

/** Sends settlements to their store. */
function createSending({ log, queues, unconfirmed, settleWithinMs, reportSize }: OutboxParts) {
  /** @returns the charge, if the store has made it */
  async function send(target: FlushTarget, settlement: Settlement): Promise<Charge | undefined> {
    const { atMs, untilMs = atMs + settleWithinMs() } = settlement;
    if (target.nowMs() > untilMs) {
      log.error(fieldsOf(settlement), "a settlement is too old to be sent; settle it by hand");
      return undefined;
    }
    try {
      return await settle(target, settlement);
    } catch (error) {
      if (!wouldFailAgain(error)) throw error;
      log.error({ err: error, ...fieldsOf(settlement) }, "the store refuses a settlement; it is given up");
      return undefined;
    }
  }

  /** @param done called for each that has an answer, or is given up */
  async function sendSome(
    target: FlushTarget,
    settlements: readonly Settlement[],
    done: (settlement: Settlement) => void,
  ): Promise<void> {
    const results = await Promise.allSettled(
      settlements.map(async (settlement) => {
        const charged = await send(target, settlement).catch(waitForClaimOrThrow(settlement));
        if (charged === "waits_for_claim") return;
        done(settlement);
        if (charged) unconfirmed?.add({ ...charged, isCounted: true, isAnswered: true }, target.runId);
      }),
    );
    reportSize();
    // What waits for a frozen partition, or for the primary of its claim, is no failure of this one.
    const failed = results.find((result, at) => result.status === "rejected" && target.has(settlements[at]!));
    if (failed) throw (failed as PromiseRejectedResult).reason;
  }

  /** This primary is not at fault, and is used without it. */
  const waitForClaimOrThrow = (settlement: Settlement) => (error: unknown) => {
    if (!(error instanceof ClaimError)) throw error;
    queues.waitForClaim(settlement);
    return "waits_for_claim" as const;
  };

  async function sendAll(target: FlushTarget, queue: Queue): Promise<void> {
    const next = (): Settlement[] => queues.nextFor(target, queue);
    for (let batch = next(); batch.length > 0; batch = next())
      await sendSome(target, batch, (settlement) => queues.remove(queue, settlement));
  }

  async function sendInTurn(
    target: FlushTarget,
    settlements: readonly Settlement[],
    done: (settlement: Settlement) => void,
  ): Promise<void> {
    for (let at = 0; at < settlements.length; at += FLUSH_BATCH)
      await sendSome(target, settlements.slice(at, at + FLUSH_BATCH), done);
  }

  return {
    sendAll,
    sendWaitingForClaim: (target: FlushTarget, queue: Queue): Promise<void> =>
      sendInTurn(target, queues.waitingForClaimOf(target, queue), (settlement) =>
        queues.remove(queue, settlement),
      ),
    /** Sends the answered charges that this run of the primary may lack. */
    sendMissed: (target: FlushTarget): Promise<void> =>
      sendInTurn(target, unconfirmed?.missedBy(target) ?? [], (settlement) =>
        unconfirmed?.remove([settlement as Charge]),
      ),
  };
}

/** Takes over what a gateway that ended has left. @param found called when there is something to flush */
function take(
  { log, queues, unconfirmed, reportSize }: OutboxParts,
  settlements: readonly Settlement[],
  found: () => void,
): void {
  const answered = unconfirmed ? settlements.filter(isAnsweredCharge) : [];
  for (const charge of answered) unconfirmed?.add(charge, undefined);
  if (answered.length > 0)
    log.info({ entries: answered.length }, "answered charges of a gateway that ended are sent again");
  const waiting = unconfirmed ? settlements.filter((one) => !isAnsweredCharge(one)) : settlements;
  if (waiting.length === 0) return;
  waiting.forEach(queues.add);
  log.warn({ entries: waiting.length }, "settlements of a gateway that ended are replayed");
  reportSize();
  found();
}

const fieldsOf = ({ call, script }: Settlement) => ({ request_id: call.requestId, script });

const isAnsweredCharge = (settlement: Settlement): settlement is Charge =>
  settlement.script === "bind" && settlement.isAnswered === true;

/** Sends one settlement, and reports its outcome. @returns the charge, if the store has made it */
async function settle(target: FlushTarget, settlement: Settlement): Promise<Charge | undefined> {
  if (settlement.script === "bind") {
    // A line of an earlier release lacks the time of admission. It was first sent before the hold was due.
    const { admittedAtMs = settlement.atMs } = settlement.call;
    const outcome = await target.bind({ ...settlement.call, admittedAtMs }, settlement.isCounted === true);
    target.charged?.(settlement, outcome);
    return outcome === "conflict" || outcome === "forgotten" ? undefined : settlement;
  }
  const { outcome } = await target.run(voidHold, settlement.call);
  target.voided?.(outcome);
  return undefined;
}
