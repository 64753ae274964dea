import { createConfirmedCharges } from "./confirmed-charges.ts";
import { goneEntries } from "./entry-judge.ts";
import type { ConfirmedEntry } from "./last-confirmed.ts";
import { accepted, type LossOptions, lastConfirmedIn } from "./loss-detector.ts";
import { endsOf, type LossReport, type MissingEntry } from "./loss-report.ts";
import { lostSince } from "./lost-entries.ts";
import { createEntryReader } from "./new-entries.ts";
import { readRecentEntries } from "./recent-entries.ts";
import { createReportedLosses } from "./reported-losses.ts";
import type { StorePart } from "./store-part.ts";

const OTHERS_WITHIN_MS = 30_000;

/**
 * Judges a store with replicas after a failover: lost charges of the last seconds are sent again; other confirmed charges and
 * grants must be there. Decision 0047.
 */
export function createFailoverLosses(
  options: LossOptions & { folder: string | undefined; othersWithinMs?: number | undefined },
) {
  const { lastConfirmed, othersWithinMs = OTHERS_WITHIN_MS } = options;
  const charges = createConfirmedCharges(options.sendAgain, options.chargesMax);
  const reader = createEntryReader(lastConfirmed, options.recent);
  const reports = createReportedLosses(options.changed);
  const lackingSince = new Map<string, number>();

  async function lostOf(part: StorePart, storeId: string): Promise<MissingEntry[]> {
    const { redis, within } = part;
    const ends = [...lastConfirmedIn(lastConfirmed, part, storeId)].map(([ledger, entry]) => ({
      ledger,
      entry,
    }));
    const byEntry = new Map(ends.map(({ ledger, entry }) => [entry, ledger]));
    const ledgerOf = (entry: ConfirmedEntry): string => byEntry.get(entry)!;
    const gone = await within(goneEntries(redis, ledgerOf, [...byEntry.keys()]));
    if (gone.length === 0) return [];
    // A ledger without its last entry may lack others that no gateway has sent again.
    const { folder } = options;
    const recent =
      folder === undefined ? undefined : readRecentEntries(folder, storeId, lastConfirmed.of(storeId).epoch);
    const lost: (ConfirmedEntry & { ledger: string })[] = [];
    for (const end of gone) {
      const ledger = ledgerOf(end);
      const known = new Map<string, ConfirmedEntry>(recent?.get(ledger));
      known.set(end.id, end);
      const [latest] = await within(lostSince(redis, ledger, [...known.values()]));
      if (latest) lost.push({ ...latest, ledger });
      else reader.forget(storeId, ledger);
    }
    return within(endsOf(redis, lost));
  }

  return {
    charged: charges.add,
    /** @throws Error while an operator has to accept a loss */
    async requireAccepted(part: StorePart, storeId: string): Promise<void> {
      const { epoch, older } = await reports.read(part);
      if (epoch > lastConfirmed.of(storeId).epoch) accepted(options, storeId, epoch);
      // A failover may lose an acceptance; a gateway that knows it keeps it.
      if (older && older.epoch >= lastConfirmed.of(storeId).epoch) reports.refuse(part, older);
    },
    lostCharges: charges.lostBy,
    sendAgain: charges.sendAgain,
    sentAgain: charges.forgetSentAgain,
    /** @throws Error while confirmed charges or grants are missing; after a while they are reported as lost */
    async requireComplete(part: StorePart, storeId: string): Promise<void> {
      const missing = await lostOf(part, storeId);
      const [first] = missing;
      if (!first) {
        for (const ledger of lackingSince.keys()) if (part.has(ledger)) lackingSince.delete(ledger);
        await lastConfirmed.save();
        return reports.notOlder(part);
      }
      const known = [...lackingSince].find(([ledger]) => part.has(ledger));
      const sinceMs = known?.[1] ?? performance.now();
      if (!known) lackingSince.set(first.ledger, sinceMs);
      if (performance.now() - sinceMs < othersWithinMs) throw new Error(waiting(missing));
      const ledgers = missing.map(({ ledger }) => ledger);
      const loss: LossReport = { epoch: lastConfirmed.of(storeId).epoch, missing, charges: [], ledgers };
      await reports.write(part, loss);
      reports.refuse(part, loss);
    },
    /** @returns false if `requireComplete` has to judge the store */
    readNewEntries: reader.readNewEntries,
    close: lastConfirmed.save,
  };
}

const waiting = (missing: readonly MissingEntry[]): string =>
  `${missing.length} ledgers lack charges or grants that replicas had, ${missing[0]!.ledger} that of ` +
  `${missing[0]!.requestId ?? missing[0]!.reference}; waiting for other gateways to send them again`;
