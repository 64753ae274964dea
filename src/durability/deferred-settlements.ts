import { claimName } from "../records/names.ts";
import type { Connection } from "../redis/connection.ts";
import type { Primary } from "../redis/primary.ts";
import type { Binding } from "../scripts/bind.ts";
import type { Voided } from "../scripts/void.ts";
import type { Logger } from "../telemetry/log.ts";
import { madeOnce } from "../telemetry/metrics/factory.ts";
import { ClaimError } from "./claims.ts";
import { createConfirming, createUnconfirmed } from "./outbox/confirming.ts";
import { type Journal, memoryJournal } from "./outbox/journal.ts";
import { createOutbox } from "./outbox/outbox.ts";
import type { FlushTarget } from "./outbox/outbox-sending.ts";
import type { Charge, Settlement } from "./outbox/pending-settlement.ts";
import { createStoreLosses } from "./store-losses.ts";
import { createTasks } from "./tasks.ts";

const SETTLE_WITHIN_MS = 30 * 60_000;
const FORGOTTEN =
  "the store has forgotten this request, and may have charged it; it is not charged: look for it in the ledger";

/** Between two tries of charges whose claims were refused. */
const RETRY_EVERY_MS = 1000;

const UNANSWERED = "a settlement is unanswered";
const NOT_CHARGED_AGAIN =
  "a primary has lost an answered charge, and it cannot be made again: bill it by hand, or write it off";
const UNCONFIRMED_DROPPED =
  "too many answered charges wait for replicas; the oldest are dropped, and only the primary has them; bring replicas back";

export interface SettlementOptions {
  /** Without one, settlements that wait are lost with the process. */
  journal?: Journal;
  /** Where the ledger entries that a store has confirmed are kept; without one, the last of each in memory only. */
  confirmedFolder?: string;
  /** How long a settlement may wait before the store may have forgotten its request; 30 minutes if not said. */
  settleWithinMs?: () => number;
  /** How long other gateways may take to send again what a changed primary lacks; for tests. */
  othersWithinMs?: number;
  log: Logger;
}

export type Settlements = ReturnType<typeof createSettlements>;

/**
 * What waits for the store, and what it has confirmed, on top of a connection: each probe compares the store with what it
 * has confirmed and sends it what waits, before the breaker closes.
 */
export function createSettlements(connection: Connection, options: SettlementOptions) {
  const { log, journal = memoryJournal } = options;
  const { metrics, facts } = connection;
  const counts = createSettlementCounts(metrics);
  const { outbox, unconfirmed } = createWaiting(connection, options);
  /** Whether settlements wait for this primary alone. */
  const isUnanswered = (primary: Primary): boolean =>
    outbox.hasFor({ storeId: facts()?.id, has: settledBy(connection, primary) });
  /** A charge that the store has answered, here or for a gateway that ended. */
  function charged(charge: Charge, outcome: Binding): void {
    losses.charged(charge, outcome);
    if (charge.isCounted) replayed(charge, outcome);
    else {
      counts.charged(charge, outcome);
      if (outcome === "forgotten") reportForgotten(log, charge);
    }
  }

  /** A charge that was answered before, sent again because a primary changed or its gateway ended. */
  function replayed(charge: Charge, outcome: Binding): void {
    if (!connection.confirms || (charge.isUncollected && outcome === "uncollected")) return;
    metrics.replayedCharges.inc({ outcome });
    if (outcome !== "bound" && outcome !== "late")
      log.error({ ...fieldsOf(charge), outcome }, NOT_CHARGED_AGAIN);
  }

  const targetOf = (primary: Primary): FlushTarget => ({
    run: primary.direct.run,
    bind: tasksPast(connection, primary).bind,
    has: settledBy(connection, primary),
    storeId: facts()?.id,
    runId: primary.confirmation?.runId(),
    nowMs: primary.nowMs,
    charged,
    voided: counts.voided,
  });
  const losses = createStoreLosses(connection, {
    outbox,
    targetOf,
    folder: options.confirmedFolder,
    othersWithinMs: options.othersWithinMs,
    log,
  });
  const confirming = unconfirmed && createConfirming(connection, { outbox, unconfirmed, targetOf });

  connection.attach({
    requireMeant: losses.requireMeant,
    async identified(storeId) {
      await losses.identified(storeId);
      // By the id the journal knows which files are of this store.
      await journal.attach(storeId);
    },
    beforeUse: losses.beforeUse,
    // A settlement that was put there after the flush must not wait for the next outage.
    unfinished: (primary) => (isUnanswered(primary) ? UNANSWERED : undefined),
    released: () => sendReleased(connection.primaries(), outbox, targetOf),
  });
  void outbox.watch(() => {
    for (const primary of connection.primaries()) primary.breaker.trip("settlements to replay");
  });
  const retrying = retryWaitingForClaim(connection, outbox, targetOf);

  return {
    outbox,
    charged,
    voided: counts.voided,
    /** Resolves once an answered charge is in a second place; undefined where that is not asked for. */
    confirm: confirming?.confirm,
    /**
     * Keeps a settlement until the store has answered it. Resolves once it is on disk.
     * @param error why the store has not answered it
     */
    async defer(settlement: Settlement, error?: unknown): Promise<void> {
      const kept = outbox.put(settlement, error instanceof ClaimError);
      const primary = connection.of(settlement.call.key.partition);
      if (!primary.breaker.isOpen() && isUnanswered(primary)) primary.breaker.trip(UNANSWERED);
      await kept;
    },
    /** After the connection has closed. */
    async close(): Promise<void> {
      clearInterval(retrying);
      confirming?.close();
      await losses.close();
      await journal.close();
    },
  };
}

/** What waits for the store, and, where it is asked for, what waits for replicas. */
function createWaiting({ metrics, confirms }: Connection, options: SettlementOptions) {
  const { log, journal = memoryJournal } = options;
  const unconfirmed = confirms
    ? createUnconfirmed({
        changed: (charges) => metrics.unconfirmed.set(charges),
        dropped: () => log.error(UNCONFIRMED_DROPPED),
      })
    : undefined;
  const outbox = createOutbox({
    log,
    journal,
    unconfirmed,
    settleWithinMs: options.settleWithinMs ?? (() => SETTLE_WITHIN_MS),
    changed({ entries, ofOtherStores }) {
      metrics.outbox.set(entries);
      metrics.outboxOfOtherStores.set(ofOtherStores);
    },
  });
  return { outbox, unconfirmed };
}

/**
 * The scripts and commands of tasks for what is sent to a primary past its breaker, which is open meanwhile. Another primary
 * that is away fails at once.
 */
function tasksPast(connection: Connection, primary: Primary): ReturnType<typeof createTasks> {
  const reach = (other: Primary) => (other === primary ? other.direct : other);
  return createTasks({
    of: (partition) => reach(connection.of(partition)),
    ofName: (name) => reach(connection.ofName(name)),
    facts: connection.facts,
  });
}

/** Sends what has waited for partitions or claims that are in use again. Past the breaker: nothing else has to wait for it. */
function sendReleased(
  primaries: readonly Primary[],
  outbox: ReturnType<typeof createOutbox>,
  targetOf: (primary: Primary) => FlushTarget,
): void {
  for (const primary of primaries) {
    if (primary.breaker.isOpen()) continue;
    outbox.flush(targetOf(primary)).catch(() => primary.breaker.trip(UNANSWERED));
  }
}

/**
 * Tries charges again that were set aside, since the primaries of the claims of their task ids refused these: one that is out of
 * memory is not away, and nothing says when it has memory again.
 */
function retryWaitingForClaim(
  connection: Connection,
  outbox: ReturnType<typeof createOutbox>,
  targetOf: (primary: Primary) => FlushTarget,
): NodeJS.Timeout {
  let isSending = false;

  async function send(): Promise<void> {
    if (isSending || !outbox.hasWaitingForClaim()) return;
    isSending = true;
    for (const primary of connection.primaries())
      if (!primary.breaker.isOpen())
        await outbox.flushWaitingForClaim(targetOf(primary)).catch(() => primary.breaker.trip(UNANSWERED));
    isSending = false;
  }
  return setInterval(() => void send(), RETRY_EVERY_MS).unref();
}

/**
 * Whether this primary can settle something now: it has the partition, which is not frozen; and on a cluster, where another
 * primary may have the claim of the task id, that one is not away. While that one is away, this primary's breaker stays closed. A charge that
 * was answered before already has its claim.
 */
const settledBy =
  (connection: Connection, primary: Primary) =>
  (settlement: Settlement): boolean => {
    const { partition } = settlement.call.key;
    if (connection.of(partition) !== primary || connection.isFrozen(partition)) return false;
    if (settlement.script !== "bind" || settlement.isCounted || !connection.facts()?.cluster) return true;
    const claimed = connection.ofName(claimName(settlement.call.task.taskId));
    return claimed === primary || !claimed.breaker.isOpen();
  };

/** Counts what the store has answered to settlements. */
export function createSettlementCounts(metrics: Connection["metrics"]) {
  const settlements = madeOnce((outcome) => metrics.settlements.series({ outcome }));
  const consumed = metrics.creditsConsumed.series();
  return {
    charged({ call: { price } }: Charge, outcome: Binding): void {
      settlements(outcome).pending++;
      if (outcome === "bound" || outcome === "late") consumed.pending += price;
      if (outcome === "uncollected" || outcome === "forgotten") metrics.creditsUncollected.inc(price);
    },
    voided(outcome: Voided["outcome"]): void {
      if (outcome === "void") settlements(outcome).pending++;
    },
  };
}

const reportForgotten = (log: Logger, charge: Charge): void => log.error(fieldsOf(charge), FORGOTTEN);

const fieldsOf = ({ call: { requestId, key, price, task } }: Charge) => ({
  request_id: requestId,
  account_id: key.accountId,
  price,
  task_id: task.taskId,
});
