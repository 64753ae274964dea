import { partitionNames } from "../../records/names.ts";
import type { Logger } from "../../telemetry/log.ts";
import { createConfirmedCharges, type SentCharge } from "./confirmed-charges.ts";
import type { LastConfirmed, LastConfirmedFile } from "./last-confirmed.ts";
import { chargeOf, type LossReport, missingEntries } from "./loss-report.ts";
import { createEntryReader } from "./new-entries.ts";
import type { RecentEntries } from "./recent-entries.ts";
import { createReportedLosses } from "./reported-losses.ts";
import type { StorePart } from "./store-part.ts";

/** Charges that a report names. */
const NAMED_MAX = 100;

export interface LossOptions {
  /** Keeps the last entries beyond this process. */
  lastConfirmed: LastConfirmedFile;
  /** Keeps those before them, for the list of what is lost. */
  recent: RecentEntries;
  /** Takes a charge that the store has lost; resolves once it is on disk. */
  sendAgain(charge: SentCharge): Promise<void>;
  /** How many charges of the last 30 s are kept for that, about 1 KB each. */
  chargesMax: number;
  changed(isOlder: boolean): void;
  log: Logger;
}

/**
 * Finds out whether a store without replicas has lost what it has confirmed: the last ledger entry of each partition, or a
 * charge of the last seconds. Such a store is older than what gateways and customers were told. Decision 0031.
 */
export function createLossDetector(options: LossOptions) {
  const { lastConfirmed } = options;
  const charges = createConfirmedCharges(options.sendAgain, options.chargesMax);
  const reports = createReportedLosses(options.changed);

  return {
    /** A BIND that the store has confirmed. */
    charged: charges.add,
    /**
     * Compares a part of the store with what it has confirmed. As many commands as there are charges to compare, each in the
     * time limit of one.
     * @throws Error while it is older, in words that say what is missing
     */
    async requireNotOlder(part: StorePart, storeId: string): Promise<void> {
      const { epoch, older } = await reports.read(part);
      const lost = await charges.lostBy(part, storeId);
      const known = lastConfirmed.of(storeId);
      const isAccepted = epoch > known.epoch;
      const kept = charges.sendAgain(lost);
      if (isAccepted) {
        accepted(options, storeId, epoch);
        charges.forgetSentAgain();
      }
      const entries = lastConfirmedIn(lastConfirmed, part, storeId);
      const missing = await part.within(missingEntries(part.redis, entries));
      await part.within(kept);
      const isUnaccepted = epoch < known.epoch;
      const isOlder = missing.length > 0 || (lost.length > 0 && !isAccepted) || isUnaccepted;
      if (!isOlder && !older) {
        reports.notOlder(part);
        return charges.forgetSentAgain();
      }
      const loss: LossReport = {
        epoch: Math.max(epoch, known.epoch),
        missing,
        charges: lost.slice(0, NAMED_MAX).map(chargeOf),
      };
      const ofCharges = lost.map(({ call }) => partitionNames(call.key.partition).ledger);
      const ledgers = new Set([...missing.map(({ ledger }) => ledger), ...ofCharges]);
      // A lost acceptance is one of the whole store.
      if (!isUnaccepted) loss.ledgers = [...ledgers];
      if (!older) await reports.write(part, loss);
      reports.refuse(part, older ?? loss);
    },
    /** Learns what is confirmed now. @returns false if `requireNotOlder` has to judge the store */
    readNewEntries: createEntryReader(lastConfirmed, options.recent).readNewEntries,
    close: lastConfirmed.save,
  };
}

/** The last confirmed entries of the ledgers on this part of the store. */
export const lastConfirmedIn = (
  lastConfirmed: LastConfirmedFile,
  { has }: StorePart,
  storeId: string,
): LastConfirmed["entries"] =>
  new Map([...lastConfirmed.of(storeId).entries].filter(([ledger]) => has(ledger)));

/** An operator has accepted what the store lacks. */
export function accepted({ lastConfirmed, log }: LossOptions, storeId: string, epoch: number): void {
  if (lastConfirmed.of(storeId).entries.size > 0)
    log.warn({ epoch }, "an operator has accepted this store; what it confirmed before is forgotten");
  lastConfirmed.accept(storeId, epoch);
}
