import type { Config } from "../config/config.ts";
import { hiddenInWords } from "../config/environment.ts";
import { processLimits } from "../config/process-bounds.ts";
import { createOperatorSession, operatorWords } from "../operations/access/operator-session.ts";
import { archiveChecks } from "./archive-check.ts";
import { type Check, type CheckName, failed } from "./check.ts";
import { certificatesCheck, configCheck, descriptorsCheck, proxiesCheck } from "./machine-checks.ts";
import {
  exchangesCheck,
  journalFigures,
  lagCheck,
  ledgerCheck,
  type OwnFigures,
  readyCheck,
} from "./own-checks.ts";
import { storeChecks } from "./store-checks.ts";
import { upstreamCheck } from "./upstream-check.ts";

/** Of one command. */
const STORE_TIMEOUT_MS = 2000;

interface CheckedGateway {
  config: Config;
  /** Settings of the file that a variable replaces. */
  hidden: ReadonlyMap<string, string>;
  figures: OwnFigures;
  /** Why it is not ready; null when it is. */
  notReady: string | null;
}

/** The checks of a running gateway. Never rejects: a check that throws has failed. */
export async function gatewayChecks(gateway: CheckedGateway): Promise<Check[]> {
  const { config, figures } = gateway;
  const [store, upstream] = await Promise.all([
    ownStore(config),
    exchangesCheck(figures) ?? tried("upstream", () => upstreamCheck(config.upstream, false)),
  ]);
  const archive = config.archive.url === undefined ? [] : [lagCheck(figures)];
  return [
    readyCheck(gateway.notReady),
    configCheck(config, "", hiddenInWords(gateway.hidden)),
    await tried("certificates", async () => certificatesCheck(config, Date.now())),
    ...store.checks,
    journalFigures(figures),
    ledgerCheck(figures, Date.now()),
    ...(await archiveChecks(config, store.storeId)),
    ...archive,
    upstream,
    descriptorsCheck(processLimits().openFiles, "this gateway"),
    proxiesCheck(figures.untrustedProxies),
  ];
}

/** On connections of its own, closed at the end: a gateway looks seldom. */
async function ownStore(config: Config): ReturnType<typeof storeChecks> {
  const { redisUrl, tlsCa } = config.store;
  const session = createOperatorSession({
    ...{ redisUrl, tlsCa, timeoutMs: STORE_TIMEOUT_MS },
    inWords: operatorWords(redisUrl),
  });
  try {
    return await storeChecks({ redisUrl, tlsCa }, session.run, config);
  } catch (error) {
    return { checks: [notChecked("store", error)] };
  } finally {
    session.close();
  }
}

async function tried(name: CheckName, check: () => Promise<Check>): Promise<Check> {
  try {
    return await check();
  } catch (error) {
    return notChecked(name, error);
  }
}

const notChecked = (name: CheckName, error: unknown): Check =>
  failed(name, `could not be checked: ${String(error)}`, "run `tollgate doctor` where the gateway runs");
