import type { FlushTarget } from "./outbox-sending.ts";
import type { Charge } from "./pending-settlement.ts";

/** About 50 MB. */
const CHARGES_MAX = 50_000;

interface Entry {
  charge: Charge;
  /** The run of the primary that has answered it; undefined for one of a gateway that ended. */
  runId: string | undefined;
}

export type UnconfirmedCharges = ReturnType<typeof createUnconfirmed>;

/**
 * Charges that the primary has answered and that no replica is known to have. They need no further work while that primary runs. They
 * are in the journal, too, and are sent again to another run of the primary, which may lack them. Bounded: beyond the
 * bound the oldest is dropped; only the primary has it then.
 * @param dropped called when the bound is reached, once until the list has been empty
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
    /** Those of a store, and those of a store without an id. */
    of: (storeId: string | undefined): Charge[] => chosen((entry) => isOf(storeId, entry)),
    has: (storeId: string | undefined): boolean => entries.values().some((entry) => isOf(storeId, entry)),
    answeredBy: (runId: string): Charge[] => chosen((entry) => entry.runId === runId),
    /** Those of its partitions that this run of a primary may lack. */
    missedBy: ({ runId, storeId, has }: Pick<FlushTarget, "runId" | "storeId" | "has">): Charge[] =>
      chosen(
        (entry) =>
          isOf(storeId, entry) && has(entry.charge) && (runId === undefined || entry.runId !== runId),
      ),
  };
}
