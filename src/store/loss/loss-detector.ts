import type { Logger } from "../../telemetry/log.ts";
import { META } from "../names.ts";
import { oneNode } from "../nodes.ts";
import { createConfirmedCharges, type SentCharge } from "./confirmed-charges.ts";
import type { LastConfirmed, LastConfirmedFile } from "./last-confirmed.ts";
import { chargeOf, type LossReport, lossInWords, missingEntries, readLossReport } from "./loss-report.ts";
import { createEntryReader } from "./new-entries.ts";
import type { RecentEntries } from "./recent-entries.ts";
import type { StorePart } from "./store-part.ts";

/** Charges that a report names. */
const NAMED_MAX = 100;

/**
 * Finds out whether the store has lost what it has confirmed: the last ledger entry of each partition, or a charge of the
 * last seconds. Such a store is older than what gateways and customers were told. Decision 0031.
 * @param options.lastConfirmed keeps the last entries beyond this process
 * @param options.recent keeps those before them, for the list of what is lost
 * @param options.sendAgain takes a charge that the store has lost
 * @param options.chargesMax how many charges of the last 30 s are kept for that, about 1 KB each
 */
export function createLossDetector(options: {
  lastConfirmed: LastConfirmedFile;
  recent: RecentEntries;
  nowMs(): number;
  sendAgain(charge: SentCharge): Promise<void>;
  chargesMax: number;
  changed(isOlder: boolean): void;
  log: Logger;
}) {
  const { lastConfirmed, log } = options;
  const charges = createConfirmedCharges(options.sendAgain, options.chargesMax);
  let latest: Awaited<ReturnType<typeof readLossReport>> | undefined;

  async function reportIn({ meta, within }: StorePart): Promise<NonNullable<typeof latest>> {
    if (!latest || !meta.isAway) latest = await within(readLossReport(meta.redis));
    return latest;
  }

  const lastConfirmedIn = ({ has }: StorePart, storeId: string): LastConfirmed["entries"] =>
    new Map([...lastConfirmed.of(storeId).entries].filter(([ledger]) => has(ledger)));

  return {
    /** A BIND that the store has confirmed. */
    charged: charges.add,
    /**
     * Compares a part of the store with what it has confirmed. As many commands as there are charges to compare, each in the
     * time limit of one.
     * @throws Error while it is older, in words that say what is missing
     */
    async requireNotOlder(part: StorePart, storeId: string): Promise<void> {
      const { epoch, older } = await reportIn(part);
      const lost = await charges.lostBy(part, storeId, options.nowMs());
      const known = lastConfirmed.of(storeId);
      const isAccepted = epoch > known.epoch;
      const kept = charges.sendAgain(lost);
      if (isAccepted) {
        if (known.entries.size > 0)
          log.warn({ epoch }, "an operator has accepted this store; what it confirmed before is forgotten");
        lastConfirmed.accept(storeId, epoch);
        charges.forgetSentAgain();
      }
      const missing = await part.within(missingEntries(oneNode(part.redis), lastConfirmedIn(part, storeId)));
      await part.within(kept);
      const isOlder = missing.length > 0 || (lost.length > 0 && !isAccepted) || epoch < known.epoch;
      options.changed(isOlder || older !== undefined);
      if (!isOlder && !older) return charges.forgetSentAgain();
      const loss = { missing, charges: lost.slice(0, NAMED_MAX).map(chargeOf) };
      // Gateways that never met the store refuse it by this field, and `tollgate store show` reads it. If it cannot be
      // written, this gateway refuses the store all the same.
      const report: LossReport = { epoch: Math.max(epoch, known.epoch), ...loss };
      if (!older) {
        const written = part.meta.redis.hset(META, "older", JSON.stringify(report));
        await part.within(written).catch(() => undefined);
      }
      throw new Error(lossInWords(older ?? loss));
    },
    /** Learns what is confirmed now. @returns false if `requireNotOlder` has to judge the store */
    readNewEntries: createEntryReader(lastConfirmed, options.recent),
    close: lastConfirmed.save,
  };
}
