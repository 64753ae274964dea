import type { Static } from "typebox";
import type { LazyArchive, MoneyLookUps } from "../../archive/archived-reads.ts";
import type { HealthReport } from "../../checks/gateway-checks.ts";
import type { Config } from "../../config/config.ts";
import type { LiveConfig } from "../../config/live.ts";
import type { OperatorSession } from "../../operations/access/operator-session.ts";
import type { TierCounts } from "../../operations/keys/tier-counts.ts";
import type { LedgerReport } from "../../operations/store/survey.ts";
import type { WebhookRules } from "../../operations/webhooks/endpoints.ts";
import { webhooksAreOff } from "../../operations/webhooks/endpoints.ts";
import type { createLive } from "../live-figures.ts";
import type { Live } from "./view-schemas.ts";

export type GatewayState = Static<typeof Live>["gateway"];

/** The needs of operations beside the store. OperationSettings are those in force when they are asked for. */
export interface OperationSettings {
  config(): Config;
  /** How many keys and tokens there may be; nothing bounds operators. */
  bounds(): Partial<Config["admin"]["bounds"]>;
  /** For lists; undefined without an archive. */
  archive: LazyArchive | undefined;
  /** For records that Redis has forgotten. */
  lookUps: MoneyLookUps;
  /** @throws OperatorError `webhooks_off` */
  webhooks(): Promise<WebhookRules>;
}

export interface Services extends OperationSettings {
  session: OperatorSession;
  bounds(): Config["admin"]["bounds"];
  tierCounts(): TierCounts | null;
  gateway(): GatewayState;
  maintenanceSinceMs(): number | undefined;
  live: Pick<ReturnType<typeof createLive>, "view" | "latest" | "health">;
  /** The last checks of all that this gateway needs, at most a minute old. */
  health(): Promise<HealthReport>;
  describeConfig(): ReturnType<LiveConfig["describe"]>;
  describeFiles(): ReturnType<LiveConfig["describeFiles"]>;
  /** The last check of the ledger by any gateway; undefined before the first one. */
  ledgerReport(): Promise<LedgerReport | undefined>;
}

/** Calls of one owner with the same argument share one result, while the work runs and for `keptMs`. */
export function shared<Owner extends object, Argument, Result>(
  keptMs: number,
  work: (owner: Owner, argument: Argument) => Promise<Result>,
) {
  const latest = new WeakMap<Owner, { argument: Argument; startedMs: number; result: Promise<Result> }>();
  return (owner: Owner, argument: Argument): Promise<Result> => {
    const kept = latest.get(owner);
    if (kept && kept.argument === argument && performance.now() - kept.startedMs < keptMs) return kept.result;
    const mine = { argument, startedMs: performance.now(), result: work(owner, argument) };
    latest.set(owner, mine);
    // A failure is not kept.
    mine.result.catch(() => {
      if (latest.get(owner) === mine) latest.delete(owner);
    });
    return mine.result;
  };
}

/** Loads the modules of webhooks only where they are on. @throws OperatorError `webhooks_off` */
export async function requireWebhooks(settings: Config["webhooks"]): Promise<WebhookRules> {
  if (settings.secretKey === undefined) throw webhooksAreOff();
  const { webhookRules } = await import("../../webhooks/operator-rules.ts");
  const rules = webhookRules(settings);
  if (!rules) throw webhooksAreOff();
  return rules;
}
