import type { Connection } from "../../redis/connection.ts";
import type { Primary } from "../../redis/primary.ts";
import { forEachPrimary } from "../../redis/repeated-work.ts";
import type { createOutbox, FlushTarget } from "./outbox.ts";
import type { Charge } from "./outbox-queues.ts";

/**
 * A charge is in a second place before the customer hears of it: on replicas, or else in the journal, which is compared with the
 * replicas once a second. Decision 0043. @param options.targetOf what the outbox sends to
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
  const stop = forEachPrimary(connection.primaries, async (primary) => {
    if (unconfirmed.size() > 0) await confirmWaiting(primary);
  });

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
    close: stop,
  };
}

/** About 50 MB. */
const CHARGES_MAX = 50_000;

interface Entry {
  charge: Charge;
  /** The run of the primary that has answered it; undefined for one of a gateway that ended. */
  runId: string | undefined;
}

export type UnconfirmedCharges = ReturnType<typeof createUnconfirmed>;

/**
 * Charges in the journal that no replica is known to have; sent again to another run of the primary. Beyond the bound the oldest is
 * dropped. @param dropped called then, once until the list was empty
 */
export function createUnconfirmed(options: { changed(charges: number): void; dropped(): void }) {
  /** By request id, oldest first. */
  const entries = new Map<string, Entry>();
  let isDropping = false;
  const isOf = (storeId: string | undefined, { charge }: Entry): boolean =>
    charge.storeId === undefined || charge.storeId === storeId;
  const chosen = (wanted: (entry: Entry) => boolean): Charge[] =>
    entries
      .values()
      .filter(wanted)
      .map(({ charge }) => charge)
      .toArray();

  function dropOldest(): void {
    const [oldest] = entries.keys();
    if (oldest !== undefined) entries.delete(oldest);
    if (!isDropping) options.dropped();
    isDropping = true;
  }

  return {
    add(charge: Charge, runId: string | undefined): void {
      const { requestId } = charge.call;
      entries.delete(requestId);
      if (entries.size >= CHARGES_MAX) dropOldest();
      entries.set(requestId, { charge, runId });
      options.changed(entries.size);
    },
    /** Forgets these charges, but for one that a later charge of its request has replaced. */
    remove(charges: readonly Charge[]): void {
      for (const charge of charges)
        if (entries.get(charge.call.requestId)?.charge === charge) entries.delete(charge.call.requestId);
      if (entries.size === 0) isDropping = false;
      options.changed(entries.size);
    },
    size: (): number => entries.size,
    all: (): Charge[] => chosen(() => true),
    /** Charges that this store answered, and charges of a store that had no id yet. */
    of: (storeId: string | undefined): Charge[] => chosen((entry) => isOf(storeId, entry)),
    has: (storeId: string | undefined): boolean => entries.values().some((entry) => isOf(storeId, entry)),
    answeredBy: (runId: string): Charge[] => chosen((entry) => entry.runId === runId),
    /** Charges of the target's partitions that this run of its primary may lack. */
    missedBy: ({ runId, storeId, has }: Pick<FlushTarget, "runId" | "storeId" | "has">): Charge[] =>
      chosen(
        (entry) =>
          isOf(storeId, entry) && has(entry.charge) && (runId === undefined || entry.runId !== runId),
      ),
  };
}
