import { partitionNames } from "../../records/names.ts";
import type { Logger } from "../../telemetry/log.ts";
import { createConfirmedCharges, type SentCharge } from "./confirmed-charges.ts";
import type { LastConfirmed, LastConfirmedFile } from "./last-confirmed.ts";
import { chargeOf, type LossReport, missingEntries } from "./loss-report.ts";
import { createEntryReader } from "./new-entries.ts";
import type { RecentEntries } from "./recent-entries.ts";
import { createReportedLosses } from "./reported-losses.ts";
import type { StorePart } from "./store-part.ts";

const NAMED_MAX = 100;

export interface LossOptions {
  lastConfirmed: LastConfirmedFile;
  recent: RecentEntries;
  sendAgain(charge: SentCharge): Promise<void>;
  chargesMax: number;
  changed(isOlder: boolean): void;
  log: Logger;
}

/**
 * Detects lost writes of a store without replicas: the last entry of each partition, or a charge of the last seconds. Decision
 * 0031.
 */
export function createLossDetector(options: LossOptions) {
  const { lastConfirmed } = options;
  const charges = createConfirmedCharges(options.sendAgain, options.chargesMax);
  const reports = createReportedLosses(options.changed);

  return {
    charged: charges.add,
    /** @throws Error with the missing entries while the store is older */
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
      if (!isUnaccepted) loss.ledgers = [...ledgers];
      if (!older) await reports.write(part, loss);
      reports.refuse(part, older ?? loss);
    },
    /** @returns false if `requireNotOlder` has to judge the store */
    readNewEntries: createEntryReader(lastConfirmed, options.recent).readNewEntries,
    close: lastConfirmed.save,
  };
}

export const lastConfirmedIn = (
  lastConfirmed: LastConfirmedFile,
  { has }: StorePart,
  storeId: string,
): LastConfirmed["entries"] =>
  new Map([...lastConfirmed.of(storeId).entries].filter(([ledger]) => has(ledger)));

export function accepted({ lastConfirmed, log }: LossOptions, storeId: string, epoch: number): void {
  if (lastConfirmed.of(storeId).entries.size > 0)
    log.warn({ epoch }, "an operator has accepted this store; what it confirmed before is forgotten");
  lastConfirmed.accept(storeId, epoch);
}
