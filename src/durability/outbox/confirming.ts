import type { Connection } from "../../redis/connection.ts";
import type { Primary } from "../../redis/primary.ts";
import type { createOutbox } from "./outbox.ts";
import type { FlushTarget } from "./outbox-sending.ts";
import type { Charge } from "./pending-settlement.ts";
import type { UnconfirmedCharges } from "./unconfirmed.ts";

const LOOK_EVERY_MS = 1000;

/**
 * Keeps an answered charge in a second place before the customer hears of it: on replicas, or else in the journal. What is
 * in the journal only is compared with the replicas once a second. Decision 0043.
 * @param options.targetOf what the outbox sends to
 */
export function createConfirming(
  connection: Pick<Connection, "metrics" | "primaries">,
  options: {
    outbox: Pick<ReturnType<typeof createOutbox>, "keepAnswered" | "sendMissed" | "clearJournal">;
    unconfirmed: UnconfirmedCharges;
    targetOf(primary: Primary): FlushTarget;
  },
) {
  const { outbox, unconfirmed, targetOf } = options;
  const looking = setInterval(() => void look(), LOOK_EVERY_MS).unref();
  let isLooking = false;

  async function look(): Promise<void> {
    if (isLooking || unconfirmed.size() === 0) return;
    isLooking = true;
    // What fails here is no outage: the next look tries again.
    for (const primary of connection.primaries())
      if (!primary.breaker.isOpen()) await confirmWaiting(primary).catch(() => undefined);
    isLooking = false;
  }

  /** Sends what a primary may lack, and forgets what its replicas have. */
  async function confirmWaiting(primary: Primary): Promise<void> {
    const { confirmation, within } = primary;
    const target = targetOf(primary);
    const { runId, storeId } = target;
    if (!confirmation || runId === undefined) return;
    await outbox.sendMissed(target);
    const answered = unconfirmed.answeredBy(runId);
    if (answered.length === 0 || (await confirmation.confirmed()) !== "replicas") return;
    // A primary that was a replica meanwhile may have lost what it had answered before.
    if ((await within(confirmation.identify())) !== runId) return;
    unconfirmed.remove(answered);
    await outbox.clearJournal(storeId);
  }

  return {
    /** After a primary has answered a charge. Resolves once it may be answered to the customer. */
    async confirm(charge: Charge, { confirmation }: Primary): Promise<void> {
      const runId = confirmation?.runId();
      let keptIn = "replicas";
      if ((await confirmation?.confirmed()) !== "replicas")
        keptIn = (await outbox.keepAnswered(charge, runId)) ? "journal" : "memory";
      connection.metrics.confirmations.inc({ kept_in: keptIn });
    },
    close: (): void => clearInterval(looking),
  };
}
