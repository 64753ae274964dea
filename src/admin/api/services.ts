import type { LazyArchive } from "../../archive/archived-reads.ts";
import type { Config } from "../../config/config.ts";
import type { LiveConfig } from "../../config/live.ts";
import type { Tiers } from "../../domain/limits.ts";
import type { PriceTable } from "../../domain/prices.ts";
import type { OperatorSession } from "../../operations/access/operator-session.ts";
import type { TierCounts } from "../../operations/keys/tier-counts.ts";
import type { LedgerReport } from "../../operations/store/survey.ts";
import type { createLive } from "../live-figures.ts";

/** The gateway that answers. `not_ready`: why it is not ready, in words; null when it is. */
export interface GatewayState {
  host: string;
  pid: number;
  uptime_seconds: number;
  not_ready: string | null;
  primaries: { name: string; usable: boolean }[];
}

/** What the routes work with. Settings are those in force when they are asked for. */
export interface Services {
  session: OperatorSession;
  tiers(): Tiers;
  prices(): PriceTable;
  /** What tokens may write, and how many keys and tokens there may be. */
  bounds(): Config["admin"]["bounds"];
  /** Credits of each package. */
  packages(): Readonly<Record<string, number>>;
  /** Keys by tier as far as they are known. */
  tierCounts(): TierCounts | null;
  gateway(): GatewayState;
  /** Samples of this gateway's figures. */
  live: Pick<ReturnType<typeof createLive>, "view" | "latest" | "health">;
  describeConfig(): ReturnType<LiveConfig["describe"]>;
  describeFiles(): ReturnType<LiveConfig["describeFiles"]>;
  /** The last check of the ledger by any gateway; undefined before the first one. */
  ledgerReport(): Promise<LedgerReport | undefined>;
  /** Undefined without an archive. */
  archive: LazyArchive | undefined;
}
