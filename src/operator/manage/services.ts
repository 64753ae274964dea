import type { Tiers } from "../../domain/limits.ts";
import type { PriceTable } from "../../domain/prices.ts";
import type { LazyArchive } from "../../ledger/archived-reads.ts";
import type { OperatorSession } from "../../store/operator-session.ts";
import type { TierCounts } from "../../store/tier-counts.ts";

/** What the routes work with. Settings are those in force when they are asked for. */
export interface Services {
  session: OperatorSession;
  tiers(): Tiers;
  prices(): PriceTable;
  /** Credits of each package. */
  packages(): Readonly<Record<string, number>>;
  /** Keys by tier as far as they are known. */
  tierCounts(): TierCounts | null;
  /** Undefined without an archive. */
  archive: LazyArchive | undefined;
}
