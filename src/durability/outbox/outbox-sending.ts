import { wouldFailAgain } from "../../redis/script-errors.ts";
import type { Binding } from "../../scripts/holds.ts";
import { type Voided, voidHold } from "../../scripts/holds.ts";
import type { Run } from "../../scripts/script-definition.ts";
import { ClaimError } from "../claims.ts";
import type { OutboxParts } from "./outbox.ts";
import { FLUSH_BATCH, type Queue } from "./outbox-queues.ts";
import { type Charge, logFieldsOf, type Settlement } from "./pending-settlement.ts";

export interface FlushTarget {
  run: Run;
  /** Undefined while the store has no id. */
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

export function createSending(parts: OutboxParts) {
  const { queues, unconfirmed } = parts;
  async function inTurn(target: FlushTarget, settlements: readonly Settlement[], done: Done): Promise<void> {
    for (let at = 0; at < settlements.length; at += FLUSH_BATCH)
      await sendSome(parts, target, settlements.slice(at, at + FLUSH_BATCH), done);
  }
  return {
    async all(target: FlushTarget, queue: Queue): Promise<void> {
      const next = (): Settlement[] => queues.nextFor(target, queue);
      for (let batch = next(); batch.length > 0; batch = next())
        await sendSome(parts, target, batch, (settlement) => queues.remove(queue, settlement));
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
        if (charged) unconfirmed?.add({ ...charged, replay: true, acknowledged: true }, target.runId);
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
