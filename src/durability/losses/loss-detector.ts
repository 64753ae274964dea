import { partitionNames } from "../../records/names.ts";
import type { Logger } from "../../telemetry/log.ts";
import { createConfirmedCharges, type SentCharge } from "./confirmed-charges.ts";
import type { ConfirmedEntry, LastConfirmedFile } from "./last-confirmed.ts";
import {
  absentEntries,
  chargeOf,
  createReportedLosses,
  type LossReport,
  ledgerOf,
  type MissingEntry,
  type PrimaryView,
  withEnds,
} from "./loss-report.ts";
import { latestMissing } from "./missing-entries.ts";
import { createEntryReader } from "./new-entries.ts";
import { type RecentEntries, readRecentEntries } from "./recent-entries.ts";

const NAMED_MAX = 100;

export interface LossPolicy {
  /**
   * True with replicas: missing charges are sent again before the primary is judged, and what replicas never had is no loss. A single server is
   * an older copy, and gets nothing until an operator accepts it.
   */
  survivesFailover: boolean;
  /** How long other gateways have to send missing charges again. */
  othersWithinMs: number;
  chargesMax: number;
}

interface LossOptions {
  policy: LossPolicy;
  lastConfirmed: LastConfirmedFile;
  recent: RecentEntries;
  folder: string | undefined;
  sendAgain(charge: SentCharge): Promise<void>;
  changed(isStale: boolean): void;
  log: Logger;
}

export type LossDetector = ReturnType<typeof createLossDetector>;

/** Detects lost writes of a store before a primary is used, and while it is used. Decisions 0031 and 0043. */
export function createLossDetector(options: LossOptions) {
  const { lastConfirmed } = options;
  const { survivesFailover, othersWithinMs, chargesMax } = options.policy;
  const charges = createConfirmedCharges(options.sendAgain, chargesMax);
  const reader = createEntryReader(lastConfirmed, options.recent);
  const reports = createReportedLosses(options.changed);
  const missingSince = createMissingSince();
  const acceptedAt = (storeId: string): number => lastConfirmed.of(storeId).acceptedAt;

  /** Charges that prove an older copy, put on disk for the time after its acceptance. None once it is accepted. */
  async function lostChargesOn(view: PrimaryView, storeId: string, accepted: number): Promise<SentCharge[]> {
    const lost = await charges.missingOn(view, storeId);
    await view.within(charges.sendAgain(lost));
    if (accepted <= acceptedAt(storeId)) return lost;
    accept(options, storeId, accepted);
    charges.forgetSentAgain();
    return [];
  }

  return {
    charged: charges.add,
    missingCharges: charges.missingOn,
    recentCharges: charges.recentOn,
    sendAgain: charges.sendAgain,
    forgetSentAgain: charges.forgetSentAgain,
    /** @param replay sends missing charges again, after a failover @throws Error while something is missing that nobody has accepted */
    async requireComplete(view: PrimaryView, storeId: string, replay: () => Promise<void>): Promise<void> {
      const { acceptedAt: accepted, loss } = await reports.read(view);
      let reported = loss;
      let lostCharges: SentCharge[] = [];
      if (survivesFailover) {
        if (accepted > acceptedAt(storeId)) accept(options, storeId, accepted);
        // A failover may lose an acceptance; a gateway that knows it keeps it.
        if (loss && loss.acceptedAt >= acceptedAt(storeId)) reports.refuse(view, loss);
        reported = undefined;
        await replay();
      } else lostCharges = await lostChargesOn(view, storeId, accepted);
      const missing = await missingEnds(view, storeId, { ...options, forget: reader.forget });
      const isUnaccepted = !survivesFailover && accepted < acceptedAt(storeId);
      if (missing.length + lostCharges.length === 0 && !isUnaccepted && !reported) {
        missingSince.forget(view);
        charges.forgetSentAgain();
        await lastConfirmed.save();
        return reports.complete(view);
      }
      if (othersWithinMs > 0 && missingSince.ageMs(view, missing) < othersWithinMs)
        throw new Error(waitingFor(missing));
      if (reported) reports.refuse(view, reported);
      const report = reportOf(missing, lostCharges, Math.max(accepted, acceptedAt(storeId)));
      if (isUnaccepted) delete report.ledgers;
      await reports.write(view, report);
      reports.refuse(view, report);
    },
    readNewEntries: reader.readNewEntries,
    close: lastConfirmed.save,
  };
}

function accept({ lastConfirmed, log }: LossOptions, storeId: string, atMs: number): void {
  if (lastConfirmed.of(storeId).entries.size > 0)
    log.warn(
      { accepted_at: atMs },
      "an operator has accepted this store; what it confirmed before is forgotten",
    );
  lastConfirmed.accept(storeId, atMs);
}

/** An entry that replicas had may be there under another id, and others after it may be missing. */
async function missingEnds(
  view: PrimaryView,
  storeId: string,
  options: Pick<LossOptions, "lastConfirmed" | "folder"> & { forget(storeId: string, ledger: string): void },
): Promise<MissingEntry[]> {
  const { redis, within, has } = view;
  const { lastConfirmed, folder, forget } = options;
  const { entries, acceptedAt } = lastConfirmed.of(storeId);
  const ends = [...entries]
    .filter(([ledger]) => has(ledger))
    .map(([ledger, entry]) => ({ ...entry, ledger }));
  const absent = await within(absentEntries(redis, ledgerOf, ends));
  if (absent.length === 0) return [];
  const recent = folder === undefined ? undefined : readRecentEntries(folder, storeId, acceptedAt);
  const missing: (ConfirmedEntry & { ledger: string })[] = [];
  for (const { ledger, ...end } of absent) {
    const known = new Map<string, ConfirmedEntry>(recent?.get(ledger)).set(end.id, end);
    const latest = end.onReplicas ? await within(latestMissing(redis, ledger, [...known.values()])) : end;
    if (latest) missing.push({ ...latest, ledger });
    else forget(storeId, ledger);
  }
  return within(withEnds(redis, missing));
}

function reportOf(
  missing: MissingEntry[],
  lostCharges: readonly SentCharge[],
  acceptedAt: number,
): LossReport {
  const ofCharges = lostCharges.map(({ call }) => partitionNames(call.key.partition).ledger);
  return {
    acceptedAt,
    missing,
    charges: lostCharges.slice(0, NAMED_MAX).map(chargeOf),
    ledgers: [...new Set([...missing.map(ledgerOf), ...ofCharges])],
  };
}

function createMissingSince() {
  const sinceMs = new Map<string, number>();
  return {
    ageMs({ has }: PrimaryView, missing: readonly MissingEntry[]): number {
      const known = [...sinceMs].find(([ledger]) => has(ledger));
      if (known) return performance.now() - known[1];
      sinceMs.set(missing[0]!.ledger, performance.now());
      return 0;
    },
    forget({ has }: PrimaryView): void {
      for (const ledger of sinceMs.keys()) if (has(ledger)) sinceMs.delete(ledger);
    },
  };
}

const waitingFor = (missing: readonly MissingEntry[]): string =>
  `${missing.length} ledgers lack charges or grants that replicas had, ${missing[0]!.ledger} that of ` +
  `${missing[0]!.requestId ?? missing[0]!.reference}; waiting for other gateways to send them again`;
