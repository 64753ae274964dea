import { claimName } from "../records/names.ts";
import type { Connection } from "../redis/connection.ts";
import type { Primary } from "../redis/primary.ts";
import { forEachPrimary } from "../redis/repeated-work.ts";
import type { Logger } from "../telemetry/log.ts";
import { ClaimError } from "./claims.ts";
import { createConfirming, createUnconfirmed } from "./outbox/confirming.ts";
import type { Journal } from "./outbox/journal.ts";
import { createOutbox, type FlushTarget } from "./outbox/outbox.ts";
import type { Settlement } from "./outbox/outbox-queues.ts";
import { createSettlementResults } from "./settlement-results.ts";
import { createStoreLosses } from "./store-losses.ts";
import { createTaskIds } from "./task-ids.ts";

const UNANSWERED = "a settlement is unanswered";
const UNCONFIRMED_DROPPED =
  "too many answered charges wait for replicas; the oldest are dropped, and only the primary has them; bring replicas back";

export interface SettlementOptions {
  journal: Journal;
  /** For confirmed ledger entries; without one, only the last of each ledger is kept, in memory. */
  confirmedFolder?: string;
  /** Later the store may have forgotten the request. */
  settleWithinMs(): number;
  othersWithinMs?: number;
  log: Logger;
}

export type Settlements = ReturnType<typeof createSettlements>;

/** Each probe compares the store with what it confirmed and sends it what waits, before the breaker closes. */
export function createSettlements(connection: Connection, options: SettlementOptions) {
  const { log, journal } = options;
  const { outbox, unconfirmed } = createWaiting(connection, options);
  const isUnanswered = (primary: Primary): boolean => outbox.hasFor(targetOf(primary));
  const targetOf = (primary: Primary): FlushTarget => ({ ...targetAt(connection, primary), ...results });
  const losses = createStoreLosses(connection, {
    outbox,
    targetOf,
    folder: options.confirmedFolder,
    othersWithinMs: options.othersWithinMs,
    log,
  });
  const results = createSettlementResults(connection, losses.charged, log);
  const confirming = unconfirmed && createConfirming(connection, { outbox, unconfirmed, targetOf });

  attachTo(connection, { journal, losses, outbox, targetOf, isUnanswered });
  void outbox.watch(() => {
    for (const primary of connection.primaries()) primary.breaker.trip("settlements to replay");
  });
  // A primary that is out of memory refuses claims without being unavailable, and does not say when it has memory again.
  const stopRetrying = forEachPrimary(connection.primaries, async (primary) => {
    if (outbox.hasWaitingForClaim())
      await outbox.flushWaitingForClaim(targetOf(primary)).catch(() => primary.breaker.trip(UNANSWERED));
  });

  return {
    outbox,
    ...results,
    /** Resolves once an answered charge is in a second place; undefined if that is not configured. */
    confirm: confirming?.confirm,
    /** Resolves once it is on disk. @param error why the store has not answered it */
    async defer(settlement: Settlement, error?: unknown): Promise<void> {
      const kept = outbox.put(settlement, error instanceof ClaimError);
      const primary = connection.of(settlement.call.key.partition);
      if (!primary.breaker.isOpen && isUnanswered(primary)) primary.breaker.trip(UNANSWERED);
      await kept;
    },
    async close(): Promise<void> {
      await Promise.all([stopRetrying(), confirming?.close()]);
      await losses.close();
      await journal.close();
    },
  };
}

/** Hooks for the work before and after a primary is used. */
function attachTo(
  connection: Connection,
  parts: {
    journal: Journal;
    losses: ReturnType<typeof createStoreLosses>;
    outbox: Outbox;
    targetOf(primary: Primary): FlushTarget;
    isUnanswered(primary: Primary): boolean;
  },
): void {
  const { journal, losses, outbox, targetOf, isUnanswered } = parts;
  connection.attach({
    requireMeant: losses.requireMeant,
    async identified(storeId) {
      await losses.identified(storeId);
      // The journal finds its files by the id.
      await journal.attach(storeId);
    },
    beforeUse: losses.beforeUse,
    // A settlement that came after the flush.
    unfinished: (primary) => (isUnanswered(primary) ? UNANSWERED : undefined),
    released: () => sendReleased(connection.primaries(), outbox, targetOf),
  });
}

const targetAt = (connection: Connection, primary: Primary): FlushTarget => ({
  run: primary.direct.run,
  bind: tasksPast(connection, primary).bind,
  has: settledBy(connection, primary),
  storeId: connection.known.facts?.id,
  runId: primary.confirmation?.runId(),
  nowMs: primary.nowMs,
});

type Outbox = ReturnType<typeof createOutbox>;

function createWaiting({ metrics, confirms }: Connection, options: SettlementOptions) {
  const { log, journal } = options;
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
    settleWithinMs: options.settleWithinMs,
    changed({ entries, ofOtherStores }) {
      metrics.outbox.set(entries);
      metrics.outboxOfOtherStores.set(ofOtherStores);
    },
  });
  return { outbox, unconfirmed };
}

/** Sends to a primary past its open breaker; another unavailable primary fails at once. */
function tasksPast(connection: Connection, primary: Primary): ReturnType<typeof createTaskIds> {
  const reach = (other: Primary) => (other === primary ? other.direct : other);
  return createTaskIds({
    of: (partition) => reach(connection.of(partition)),
    ofName: (name) => reach(connection.ofName(name)),
    known: connection.known,
  });
}

/** Sends settlements whose partitions or claims are usable again, past the breaker. */
function sendReleased(
  primaries: readonly Primary[],
  outbox: Outbox,
  targetOf: (primary: Primary) => FlushTarget,
): void {
  for (const primary of primaries) {
    if (primary.breaker.isOpen) continue;
    outbox.flush(targetOf(primary)).catch(() => primary.breaker.trip(UNANSWERED));
  }
}

/** True if the partition's primary can take it, and the claim's is not another unavailable one. A repeated charge has its claim. */
const settledBy =
  (connection: Connection, primary: Primary) =>
  (settlement: Settlement): boolean => {
    const { partition } = settlement.call.key;
    if (connection.of(partition) !== primary || connection.isFrozen(partition)) return false;
    if (settlement.script !== "bind" || settlement.replay || !connection.known.facts?.cluster) return true;
    const claimed = connection.ofName(claimName(settlement.call.task.taskId));
    return claimed === primary || !claimed.breaker.isOpen;
  };
