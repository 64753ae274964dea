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

/** How long gateways may take to send again what a changed primary lacks, before it counts as lost. */
const OTHERS_WITHIN_MS = 30_000;

/**
 * What a store with replicas may lose in a failover, and what it must not. Charges of the last seconds that a changed primary
 * lacks are sent again. Charges and grants that replicas had must be there after that: a store without them is older than
 * what gateways and customers were told. Decision 0047.
 * @param options.folder where the last ledger entries are kept
 * @param options.othersWithinMs for tests
 */
export function createFailoverLosses(
  options: LossOptions & { folder: string | undefined; othersWithinMs?: number | undefined },
) {
  const { lastConfirmed, othersWithinMs = OTHERS_WITHIN_MS } = options;
  const charges = createConfirmedCharges(options.sendAgain, options.chargesMax);
  const reader = createEntryReader(lastConfirmed, options.recent);
  const reports = createReportedLosses(options.changed);
  /** Since when a part of the store lacks something, by its first ledger: ms of the process. */
  const lackingSince = new Map<string, number>();

  /** What is lost of the ledgers of a part: of each the latest entry. */
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
    // A ledger without its last entry may lack others, too, which no gateway has sent again.
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
    /** A BIND that the store has confirmed. */
    charged: charges.add,
    /** @throws Error while an operator has to accept what this part of the store lacks */
    async requireAccepted(part: StorePart, storeId: string): Promise<void> {
      const { epoch, older } = await reports.read(part);
      if (epoch > lastConfirmed.of(storeId).epoch) accepted(options, storeId, epoch);
      // A failover may lose an acceptance; it counts where it is known.
      if (older && older.epoch >= lastConfirmed.of(storeId).epoch) reports.refuse(part, older);
    },
    /** Charges of the last seconds that this part of the store lacks. */
    lostCharges: charges.lostBy,
    sendAgain: charges.sendAgain,
    /** What was to be sent again has been. */
    sentAgain: charges.forgetSentAgain,
    /**
     * Looks for confirmed charges and grants that nobody has sent again.
     * @throws Error while some are missing; once gateways had time enough, they are reported as lost
     */
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
    /** Learns what replicas have now. @returns false if `requireComplete` has to judge the store */
    readNewEntries: reader.readNewEntries,
    close: lastConfirmed.save,
  };
}

const waiting = (missing: readonly MissingEntry[]): string =>
  `${missing.length} ledgers lack charges or grants that replicas had, ${missing[0]!.ledger} that of ` +
  `${missing[0]!.requestId ?? missing[0]!.reference}; waiting for other gateways to send them again`;
