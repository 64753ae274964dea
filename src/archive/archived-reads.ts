import type { CorrectionLookUps } from "../ledger/corrections.ts";
import type { ArchiveLookUps } from "../operations/credits/refunds.ts";
import type { RedisNodes } from "../redis/store-facts.ts";
import type { ArchiveReads, openArchiveReads } from "./reads.ts";

export interface LazyArchive {
  open(nodes: RedisNodes): Promise<ArchiveReads>;
  close(): void;
}

/** PostgreSQL's client is loaded by the first read. */
export function lazyArchive(url: string | undefined): LazyArchive | undefined {
  if (url === undefined) return undefined;
  let reads: Promise<ReturnType<typeof openArchiveReads>> | undefined;
  return {
    async open(nodes) {
      reads ??= import("./reads.ts").then(({ openArchiveReads }) => openArchiveReads(url));
      return (await reads).of(nodes);
    },
    close(): void {
      void reads?.then(({ close }) => close());
    },
  };
}

export interface MoneyLookUps extends ArchiveLookUps, CorrectionLookUps {}

/** As `moneyLookUps`, loaded by the first look-up; none without an archive. */
export function archiveLookUps(url: string | undefined): MoneyLookUps {
  if (url === undefined) return {};
  const load = () => import("./archived-money.ts").then(({ moneyLookUps }) => moneyLookUps(url));
  return {
    readArchived: async (...of) => (await load()).readArchived(...of),
    findCharge: async (...of) => (await load()).findCharge(...of),
    findCharges: async (...of) => (await load()).findCharges(...of),
    findEntry: async (...of) => (await load()).findEntry(...of),
  };
}
