import { wouldFailAgain } from "../../redis/script-errors.ts";
import type { Binding } from "../../scripts/holds.ts";
import type { Run } from "../../scripts/script-definition.ts";
import { type Voided, voidHold } from "../../scripts/uncharged-holds.ts";
import type { Logger } from "../../telemetry/log.ts";
import { ClaimError } from "../claims.ts";
import type { UnconfirmedCharges } from "./confirming.ts";
import type { Journal } from "./journal.ts";
import {
  type Charge,
  createQueues,
  FLUSH_BATCH,
  isUnmetered,
  logFieldsOf,
  nameOf,
  type Queue,
  type Queues,
  type Settlement,
} from "./outbox-queues.ts";

const ENTRIES_MAX = 50_000;
/** About 1 KB each. Further ones are in the log only. */
const UNMETERED_MAX = 20_000;
const UNREMEMBERED_LOG_EVERY_MS = 10_000;
/** Lines of answered charges in the journal; above it, those that are needed no more are removed. */
const ANSWERED_LINES_MAX = 100_000;

/** How many settlements wait, and how many of them for another store than the present one. */
export interface OutboxSize {
  entries: number;
  ofOtherStores: number;
}

interface OutboxOptions {
  log: Logger;
  journal: Journal;
  /** For settlements without a time of their own. Older ones are dropped: the store, having forgotten them, would charge again. */
  settleWithinMs(): number;
  changed(size: OutboxSize): void;
  /** Keeps charges that the store has answered until replicas have them; without it they are done. */
  unconfirmed?: UnconfirmedCharges | undefined;
}

interface OutboxParts extends OutboxOptions {
  queues: Queues;
  reportSize(): void;
}

/** Settlements that wait for their store, one per request and script. Beyond the bound the oldest is logged and dropped. */
export function createOutbox(options: OutboxOptions) {
  const { journal, unconfirmed } = options;
  const queues = createQueues();
  const { size, sizeFor, hasFor, hasWaitingForClaim } = queues;
  let present: string | undefined;
  const reportSize = (): void =>
    options.changed({ entries: size(), ofOtherStores: size() - sizeFor(present) });
  const parts: OutboxParts = { ...options, queues, reportSize };
  const keeping = new Keeping(parts);
  const sending = createSending(parts, keeping);

  return {
    ...keeping,
    size,
    sizeFor,
    hasFor,
    hasWaitingForClaim,
    sendMissed: sending.missed,
    /** Sends settlements whose claim was refused before. The claim may succeed now. Throws if this primary fails itself. */
    async flushWaitingForClaim(target: FlushTarget): Promise<void> {
      for (const queue of queues.of(target.storeId)) await sending.waitingForClaim(target, queue);
      await keeping.clearJournal(target.storeId);
    },
    /** Takes over the settlements of ended gateways, now and later; calls `found` when there is something to flush. */
    watch: (found: () => void): Promise<void> =>
      journal.watch({
        waiting: () => [...queues.all(), ...(unconfirmed?.all() ?? [])],
        take: (settlements) => take(parts, settlements, found),
      }),
    /** Sends all that waits for this primary of this store. @throws the first failure; settlements without an answer stay */
    async flush(target: FlushTarget): Promise<void> {
      const { storeId } = target;
      present = storeId;
      reportSize();
      do {
        for (const queue of queues.of(storeId)) await sending.all(target, queue);
        await sending.missed(target);
        // A settlement that was put after its queue was sent has no answer yet, and stays on disk. So do those of another
        // primary, and with them the lines that are answered: a second answer to these changes nothing.
        await keeping.clearJournal(storeId);
        // More may have been put meanwhile, and nothing would send it once the breaker has closed.
      } while (hasFor(target));
    },
  };
}

class Keeping {
  readonly #parts: OutboxParts;
  /** Lines of answered charges since the journal was last cleared. */
  #answeredLines = 0;
  #unrememberedLoggedMs = Number.NEGATIVE_INFINITY;

  constructor(parts: OutboxParts) {
    this.#parts = parts;
  }

  /** Resolves once it is on disk, or could not be put there. @param waitsForClaim on another primary; `flush` leaves it alone */
  readonly put = async (settlement: Settlement, waitsForClaim = false): Promise<void> => {
    const { log, queues, reportSize } = this.#parts;
    if (isUnmetered(settlement)) {
      if (queues.sizeOf(true) >= UNMETERED_MAX) return this.#reportUnremembered(settlement);
    } else if (queues.sizeOf(false) >= ENTRIES_MAX)
      log.error(
        logFieldsOf(queues.removeOldest()),
        "the outbox is full; its oldest settlement is given up; settle it by hand",
      );
    const kept = this.#withDeadline(settlement);
    queues.add(kept);
    if (waitsForClaim) queues.waitForClaim(kept);
    reportSize();
    await this.#write([kept]);
  };

  /** Keeps an answered charge until replicas have it. @param runId the run of the primary that answered @returns true if it is on disk */
  readonly keepAnswered = (charge: Charge, runId: string | undefined): Promise<boolean> => {
    const { queues, unconfirmed } = this.#parts;
    const kept: Charge = { ...this.#withDeadline(charge), replay: true, acknowledged: true };
    const { storeId } = charge;
    unconfirmed?.add(kept, runId);
    if (++this.#answeredLines < ANSWERED_LINES_MAX || !unconfirmed || queues.sizeFor(storeId) > 0)
      return this.#write([kept]);
    // A crash before they are written again loses charges only if the primary is lost at the same moment.
    const all = unconfirmed.of(storeId);
    void this.#clearFile(storeId);
    this.#answeredLines = all.length;
    return this.#write(all);
  };

  /** Unless a settlement of this store waits for its answer or for replicas. */
  readonly clearJournal = async (storeId: string | undefined): Promise<void> => {
    const { queues, unconfirmed } = this.#parts;
    if (queues.sizeFor(storeId) === 0 && !unconfirmed?.has(storeId)) await this.#clearFile(storeId);
  };

  #reportUnremembered(settlement: Settlement): void {
    if (performance.now() - this.#unrememberedLoggedMs < UNREMEMBERED_LOG_EVERY_MS) return;
    this.#unrememberedLoggedMs = performance.now();
    this.#parts.log.error(
      logFieldsOf(settlement),
      "more unmetered tasks wait than are kept; others see this one only here",
    );
  }

  #withDeadline<S extends Settlement>(settlement: S): S {
    const { atMs, settleWithinMs: withinMs = this.#parts.settleWithinMs() } = settlement;
    return { ...settlement, untilMs: settlement.untilMs ?? atMs + withinMs };
  }

  async #write(settlements: readonly Settlement[]): Promise<boolean> {
    const { journal, log } = this.#parts;
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

  async #clearFile(storeId: string | undefined): Promise<void> {
    const { journal, log } = this.#parts;
    this.#answeredLines = 0;
    await journal.clear(storeId).catch((error: unknown) => {
      log.error({ err: error }, "the journal cannot be cleared; what it holds is settled already");
    });
  }
}

/** Takes over what a gateway that ended has left. @param found called when there is something to flush */
function take(
  { log, queues, unconfirmed, reportSize }: OutboxParts,
  settlements: readonly Settlement[],
  found: () => void,
): void {
  // A charge that was answered later has two lines.
  const latest = [...new Map(settlements.map((one) => [nameOf(one), one])).values()];
  const answered = unconfirmed ? latest.filter(isAcknowledged) : [];
  for (const charge of answered) unconfirmed?.add(charge, undefined);
  if (answered.length > 0)
    log.info({ entries: answered.length }, "answered charges of a gateway that ended are sent again");
  const waiting = unconfirmed ? latest.filter((one) => !isAcknowledged(one)) : latest;
  if (waiting.length === 0) return;
  waiting.forEach(queues.add);
  log.warn({ entries: waiting.length }, "settlements of a gateway that ended are replayed");
  reportSize();
  found();
}

const isAcknowledged = (settlement: Settlement): settlement is Charge =>
  settlement.script === "bind" && settlement.acknowledged === true;

export interface FlushTarget {
  run: Run;
  storeId: string | undefined;
  /** True if the primary that `run` calls can settle it now; nothing else is sent. */
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

type Done = (settlement: Settlement) => void;

function createSending(parts: OutboxParts, keeping: Keeping) {
  const { queues, unconfirmed } = parts;
  async function inTurn(target: FlushTarget, settlements: readonly Settlement[], done: Done): Promise<void> {
    for (let at = 0; at < settlements.length; at += FLUSH_BATCH)
      await sendSome(parts, keeping, target, settlements.slice(at, at + FLUSH_BATCH), done);
  }
  return {
    async all(target: FlushTarget, queue: Queue): Promise<void> {
      const next = (): Settlement[] => queues.nextFor(target, queue);
      for (let batch = next(); batch.length > 0; batch = next())
        await sendSome(parts, keeping, target, batch, (settlement) => queues.remove(queue, settlement));
    },
    waitingForClaim: (target: FlushTarget, queue: Queue): Promise<void> =>
      inTurn(target, queues.waitingForClaimOf(target, queue), (one) => queues.remove(queue, one)),
    /** Sends the answered charges that this run of the primary may lack. */
    missed: (target: FlushTarget): Promise<void> =>
      inTurn(target, unconfirmed?.missedBy(target) ?? [], (one) => unconfirmed?.remove([one as Charge])),
  };
}

/** @param done called for each that has an answer, or is given up */
async function sendSome(
  parts: OutboxParts,
  keeping: Keeping,
  target: FlushTarget,
  settlements: readonly Settlement[],
  done: Done,
): Promise<void> {
  const { queues, unconfirmed, reportSize } = parts;
  const results = await Promise.allSettled(
    settlements.map(async (settlement) => {
      try {
        const charged = await send(parts, target, settlement);
        done(settlement);
        // If its partition has moved meanwhile, another primary has answered.
        const runId = target.has(settlement) ? target.runId : undefined;
        if (charged?.acknowledged) unconfirmed?.add(charged, runId);
        else if (charged && unconfirmed) await keeping.keepAnswered(charged, runId);
      } catch (error) {
        if (!(error instanceof ClaimError)) throw error;
        // This primary is not at fault, and is used without it.
        queues.waitForClaim(settlement);
      }
    }),
  );
  reportSize();
  // Settlements that wait for a frozen partition, or for the primary of their claim, are no failure of this one.
  const failed = results.find((result, at) => result.status === "rejected" && target.has(settlements[at]!));
  if (failed) throw (failed as PromiseRejectedResult).reason;
}

/** @returns the charge, if the store has made it */
async function send(
  { log, settleWithinMs }: OutboxParts,
  target: FlushTarget,
  settlement: Settlement,
): Promise<Charge | undefined> {
  const { atMs, untilMs = atMs + settleWithinMs() } = settlement;
  if (target.nowMs() > untilMs) {
    log.error(logFieldsOf(settlement), "a settlement is too old to be sent; settle it by hand");
    return undefined;
  }
  try {
    return await settle(target, settlement);
  } catch (error) {
    if (!wouldFailAgain(error)) throw error;
    log.error({ err: error, ...logFieldsOf(settlement) }, "the store refuses a settlement; it is given up");
    return undefined;
  }
}

/** Sends one settlement, and reports its outcome. @returns the charge, if the store has made it */
async function settle(target: FlushTarget, settlement: Settlement): Promise<Charge | undefined> {
  if (settlement.script === "bind") {
    const outcome = await target.bind(settlement.call, settlement.replay === true);
    target.charged?.(settlement, outcome);
    return outcome === "conflict" || outcome === "forgotten" ? undefined : settlement;
  }
  const { outcome } = await target.run(voidHold, settlement.call);
  target.voided?.(outcome);
  return undefined;
}
