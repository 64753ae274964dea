import type { Connection } from "../store/connection.ts";
import { openLastConfirmed } from "../store/loss/last-confirmed.ts";
import { createLossDetector } from "../store/loss/loss-detector.ts";
import { openRecentEntries } from "../store/loss/recent-entries.ts";
import type { StorePart } from "../store/loss/store-part.ts";
import { META, partitionOfName } from "../store/names.ts";
import type { Primary } from "../store/primary.ts";
import type { Binding } from "../store/scripts/bind.ts";
import type { Voided } from "../store/scripts/void.ts";
import { createTasks } from "../store/tasks.ts";
import type { Logger } from "../telemetry/log.ts";
import { createConfirming } from "./confirming.ts";
import { type Journal, memoryJournal } from "./journal.ts";
import { createOutbox, type FlushTarget } from "./outbox.ts";
import type { Charge, Settlement } from "./pending-settlement.ts";
import { createUnconfirmed } from "./unconfirmed.ts";

const READ_EVERY_MS = 1000;
const SETTLE_WITHIN_MS = 30 * 60_000;
/**
 * Charges that can be sent again to a Redis that has lost them. A failover loses up to 30 s of them: this is 30 s of 1,250 a second.
 * One server that saves its file every second loses at most the last two; each charge kept longer costs the garbage collector.
 */
const CHARGES_KEPT = { withReplicas: 50_000, oneServer: 5_000 };
const FORGOTTEN =
  "the store has forgotten this request, and may have charged it; it is not charged: look for it in the ledger";

const UNANSWERED = "a settlement is unanswered";
const UNCONFIRMED_DROPPED =
  "too many answered charges wait for replicas; the oldest are dropped, and only the primary has them; bring replicas back";

export interface SettlementOptions {
  /** Without one, settlements that wait are lost with the process. */
  journal?: Journal;
  /** Where the ledger entries that a store has confirmed are kept; without one, the last of each in memory only. */
  confirmedFolder?: string;
  /** How long a settlement may wait before the store may have forgotten its request; 30 minutes if not said. */
  settleWithinMs?: () => number;
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
  // Past the breaker, which is open while settlements are sent again.
  const tasks = createTasks({
    of: (partition) => connection.of(partition).direct,
    ofName: (name) => connection.ofName(name).direct,
    facts,
  });
  const { outbox, unconfirmed } = createWaiting(connection, options);
  const losses = createLossDetector({
    lastConfirmed: openLastConfirmed(options.confirmedFolder, log),
    recent: openRecentEntries(options.confirmedFolder, log),
    nowMs: connection.nowMs,
    sendAgain: (sent) => outbox.put({ ...sent, script: "bind", isCounted: true }),
    chargesMax: connection.confirms ? CHARGES_KEPT.withReplicas : CHARGES_KEPT.oneServer,
    changed: (isOlder) => metrics.storeOlder.set(isOlder ? 1 : 0),
    log,
  });
  /** Whether settlements wait for this primary, and not for a partition to be thawed. */
  const isUnanswered = (primary: Primary): boolean =>
    outbox.hasFor({ storeId: facts()?.id, has: partitionsOn(connection, primary) });
  /** A charge that the store has answered, here or for a gateway that ended. */
  function charged(charge: Charge, outcome: Binding): void {
    losses.charged(charge, outcome);
    if (charge.isCounted) return;
    counts.charged(charge, outcome);
    if (outcome === "forgotten") reportForgotten(log, charge);
  }

  const targetOf = (primary: Primary): FlushTarget => ({
    run: primary.direct.run,
    bind: tasks.bind,
    has: partitionsOn(connection, primary),
    storeId: facts()?.id,
    server: primary.confirmation?.server(),
    nowMs: primary.nowMs,
    charged,
    voided: counts.voided,
  });
  const confirming = unconfirmed && createConfirming(connection, { outbox, unconfirmed, targetOf });

  connection.attach({
    // The journal knows by the id which files are owed to this store.
    identified: journal.attach,
    async beforeUse(primary) {
      const storeId = facts()?.id;
      if (storeId !== undefined) await losses.requireNotOlder(partOf(connection, primary), storeId);
      if (primary.confirmation) await primary.within(primary.confirmation.identify());
      await outbox.flush(targetOf(primary));
    },
    // A settlement that was put there after the flush must not wait for the next outage.
    unfinished: (primary) => (isUnanswered(primary) ? UNANSWERED : undefined),
    released: () => sendReleased(connection.primaries().filter(isUnanswered), outbox, targetOf),
  });
  void outbox.watch(() => {
    for (const primary of connection.primaries()) primary.breaker.trip("settlements to replay");
  });
  const reading = readRegularly(connection, losses);

  return {
    outbox,
    charged,
    voided: counts.voided,
    /** Resolves once an answered charge is in a second place; undefined where that is not asked for. */
    confirm: confirming?.confirm,
    /** Keeps a settlement until the store has answered it. Resolves once it is on disk. */
    async defer(settlement: Settlement): Promise<void> {
      const kept = outbox.put(settlement);
      const primary = connection.of(settlement.call.key.partition);
      if (!primary.breaker.isOpen() && isUnanswered(primary)) primary.breaker.trip(UNANSWERED);
      await kept;
    },
    /** After the connection has closed. */
    async close(): Promise<void> {
      clearInterval(reading);
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

/** Reads what the ledgers have got, primary by primary. What fails here is no outage: the next look learns the same. */
function readRegularly(
  connection: Connection,
  { readNewEntries }: Pick<ReturnType<typeof createLossDetector>, "readNewEntries">,
): NodeJS.Timeout {
  let isReading = false;

  async function read(): Promise<void> {
    const { id, partitions = 0 } = connection.facts() ?? {};
    if (isReading || id === undefined) return;
    isReading = true;
    for (const primary of connection.primaries()) {
      if (primary.breaker.isOpen()) continue;
      const entries = readNewEntries(partOf(connection, primary), id, partitions);
      const isWhole = await primary.within(entries).catch(() => true);
      if (!isWhole) primary.breaker.trip("a ledger lacks what it has confirmed");
    }
    isReading = false;
  }
  return setInterval(() => void read(), READ_EVERY_MS).unref();
}

/** Sends what has waited for partitions that are in use again. Past the breaker: nothing else has to wait for it. */
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

/** Whether a partition is on this primary, and not frozen. */
const partitionsOn =
  (connection: Connection, primary: Primary) =>
  (partition: number): boolean =>
    connection.of(partition) === primary && !connection.isFrozen(partition);

function partOf(connection: Connection, primary: Primary): StorePart {
  const owner = connection.ofName(META);
  return {
    redis: primary.redis,
    within: primary.within,
    has: (name) =>
      connection.ofName(name) === primary && !connection.isFrozen(partitionOfName(name) ?? Number.NaN),
    meta: { redis: owner.redis, isAway: owner !== primary && owner.breaker.isOpen() },
  };
}

/** Counts what the store has answered to settlements. */
export const createSettlementCounts = (metrics: Connection["metrics"]) => ({
  charged({ call: { price } }: Charge, outcome: Binding): void {
    metrics.settlements.inc({ outcome });
    if (outcome === "bound" || outcome === "late") metrics.creditsConsumed.inc(price);
    if (outcome === "uncollected" || outcome === "forgotten") metrics.creditsUncollected.inc(price);
  },
  voided(outcome: Voided["outcome"]): void {
    if (outcome === "void") metrics.settlements.inc({ outcome });
  },
});

function reportForgotten(log: Logger, { call }: Charge): void {
  const { requestId, key, price, task } = call;
  const fields = { request_id: requestId, account_id: key.accountId, price, task_id: task.taskId };
  log.error(fields, FORGOTTEN);
}
