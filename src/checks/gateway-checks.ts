import type { Config } from "../config/config.ts";
import { hiddenInWords } from "../config/environment.ts";
import { processLimits } from "../config/process-bounds.ts";
import { createOperatorSession, operatorWords } from "../operations/access/operator-session.ts";
import { repeated } from "../redis/repeated-work.ts";
import type { Logger } from "../telemetry/log.ts";
import { archiveChecks } from "./archive-check.ts";
import { type Check, type CheckName, checksOf, failed, good, warning } from "./check.ts";
import { certificatesCheck, configCheck, descriptorsCheck, proxiesCheck } from "./machine-checks.ts";
import { storeChecks } from "./store-checks.ts";
import { upstreamCheck } from "./upstream-check.ts";

/** Of one command. */
const STORE_TIMEOUT_MS = 2000;

interface CheckedGateway {
  config: Config;
  /** Settings of the file that a variable replaces. */
  hidden: ReadonlyMap<string, string>;
  figures: OwnFigures;
  serving: Serving;
}

interface Serving {
  notReady: string | null;
  /** Since when it refuses generations and uploads, Unix ms. */
  maintenanceSinceMs: number | undefined;
}

/** The checks of a running gateway. Never rejects: a check that throws has failed. */
export async function gatewayChecks(gateway: CheckedGateway): Promise<Check[]> {
  const { config, figures } = gateway;
  const [store, upstream] = await Promise.all([
    ownStore(config),
    exchangesCheck(figures, Date.now()) ?? tried("upstream", () => upstreamCheck(config.upstream, false)),
  ]);
  const archive = config.archive.url === undefined ? [] : [lagCheck(figures)];
  return [
    readyCheck(gateway.serving),
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

/** A gateway's counts of its dependencies, over all its processes. */
export interface OwnFigures {
  redis: { usable: boolean; older: boolean; frozen_partitions: number };
  journal: { usable: boolean; waiting: number; of_other_stores: number; unconfirmed: number };
  /** `checkedAtMs`: Unix ms, 0 before the first check. */
  ledger: { checkedAtMs: number; violations: number; check_interval_seconds: number };
  archive: { lag_seconds: number; violations: number };
  upstream?:
    | { window_seconds: number; answered: number; limited: number; failed: number; failure: string | null }
    | undefined;
  /** Of the last good answer, Unix ms. */
  lastAnswerMs: number | null;
  untrustedProxies: number;
}

const LAG_SECONDS_MAX = 300;
/** Intervals without a check of the ledger. */
const CHECKS_MISSED_MAX = 3;
const FAILED_SHARE_MAX = 0.5;

/** Checks of a gateway's own figures, also while Redis is away; none of an upstream that was not polled or called lately. @param away names of primaries */
export function figureChecks(
  figures: OwnFigures,
  { serving, away, hasArchive }: { serving: Serving; away: readonly string[]; hasArchive: boolean },
): Check[] {
  const nowMs = Date.now();
  return [
    readyCheck(serving),
    redisFigures(figures, away),
    exchangesCheck(figures, nowMs) ?? [],
    hasArchive ? lagCheck(figures) : good("archive", "none is configured: the ledger stays in Redis"),
    ledgerCheck(figures, nowMs),
    journalFigures(figures),
  ].flat();
}

function readyCheck({ notReady, maintenanceSinceMs: since }: Serving): Check {
  if (notReady !== null)
    return failed(
      "ready",
      `not ready: ${notReady}`,
      "load balancers send it nothing; the other checks say what it lacks",
    );
  return since === undefined ? good("ready", "this gateway takes requests") : maintenanceCheck(since);
}

/** @param sinceMs Unix ms */
export const maintenanceCheck = (sinceMs: number): Check =>
  warning(
    "ready",
    `maintenance since ${new Date(sinceMs).toISOString().slice(0, 19).replace("T", " ")} UTC: generations and uploads are 503`,
    "`tollgate maintenance off` ends it",
  );

function redisFigures({ redis }: Pick<OwnFigures, "redis">, away: readonly string[]): Check {
  const check = checksOf("redis");
  if (redis.older)
    return check.failed(
      "it lacks writes that it had confirmed, and is not used",
      "`tollgate store show` lists them",
    );
  if (away.length > 0)
    return check.failed(`away: ${away.join(", ")}`, "start it, or see why no replica was promoted");
  if (!redis.usable)
    return check.failed(
      "it cannot be used",
      "start it or mend the network; `tollgate doctor` says what is wrong",
    );
  if (redis.frozen_partitions > 0)
    return check.warning(
      `${redis.frozen_partitions} partitions are frozen`,
      "thaw them once their slots have moved",
    );
  return check.good("it can be used");
}

/** The journal as the running gateway knows it: its files are not read beside it. */
function journalFigures({
  journal: { usable, waiting, of_other_stores: others, unconfirmed },
}: Pick<OwnFigures, "journal">): Check {
  const journal = checksOf("journal");
  if (!usable)
    return journal.failed(
      "the journal's folder cannot be written",
      "make room on its disk, or let the gateway's user write there; until then settlements are lost if the gateway ends",
    );
  if (others > 0)
    return journal.warning(
      `${others} settlements belong to another store`,
      "point REDIS_URL to that store; `tollgate doctor` names it",
    );
  if (waiting > 0)
    return journal.warning(
      `${waiting} settlements wait for Redis`,
      "bring Redis back, and keep this process and its disk until they are sent",
    );
  return journal.good(
    `it can be written, ${unconfirmed > 0 ? `${unconfirmed} charges wait for replicas` : "nothing waits"}`,
  );
}

function ledgerCheck(
  { ledger: { checkedAtMs, violations, check_interval_seconds: every } }: Pick<OwnFigures, "ledger">,
  nowMs: number,
): Check {
  const advice = "run `tollgate ledger verify`; it names each violation";
  if (violations > 0) return failed("ledger", `the last check found ${violations} violations`, advice);
  if (checkedAtMs === 0)
    return every === 0
      ? warning("ledger", "it is not checked: `store.ledger_check_interval` is off", advice)
      : warning("ledger", "it was not checked yet", "the first check follows the start");
  const words = `balanced when it was checked ${durationText(nowMs - checkedAtMs)} ago`;
  return every > 0 && nowMs - checkedAtMs > CHECKS_MISSED_MAX * every * 1000
    ? warning("ledger", words, advice)
    : good("ledger", words);
}

function durationText(ms: number): string {
  const seconds = Math.round(ms / 1000);
  if (seconds < 120) return `${seconds} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

/** By the outcome of most failures. */
const FAILURES: Readonly<Record<string, string>> = {
  unreachable: "it cannot be reached: look at the network, DNS and its address",
  timed_out: "it does not answer in time: ask its operator",
  upstream_timeout: "it does not answer in time: ask its operator",
  unclear: "connections break before the answer: look at proxies and idle timeouts",
  misrouted: "something else answers at its address: correct `upstream.url`",
  refused_gateway: "it refuses our credential or account: check `UPSTREAM_API_KEY` and the balance there",
};

/** @returns undefined where the upstream was not polled or called lately */
function exchangesCheck(
  { upstream: found, lastAnswerMs }: Pick<OwnFigures, "upstream" | "lastAnswerMs">,
  nowMs: number,
): Check | undefined {
  const upstream = checksOf("upstream");
  if (!found) return undefined;
  const { window_seconds: seconds, answered, limited, failed: bad, failure } = found;
  const total = answered + limited + bad;
  if (total === 0) return undefined;
  const last =
    lastAnswerMs === null
      ? "no good answer yet"
      : `last good answer ${durationText(nowMs - lastAnswerMs)} ago`;
  const share = Math.floor((100 * answered) / total);
  const words = `${share} % of ${total} answered in the last ${durationText(1000 * seconds)}, ${last}`;
  const advice = FAILURES[failure ?? ""] ?? "it answers with errors: ask its operator";
  if (bad > total * FAILED_SHARE_MAX) return upstream.failed(words, advice);
  if (bad > 0) return upstream.warning(words, advice);
  if (limited > 0) return upstream.warning(words, "it limits us: ask for more, or lower the tiers' limits");
  return upstream.good(words);
}

function lagCheck({ archive: { lag_seconds: lag, violations } }: Pick<OwnFigures, "archive">): Check {
  const archive = checksOf("archive");
  if (violations > 0)
    return archive.failed(
      `archive and Redis differ in ${violations} places`,
      "run `tollgate archive verify`; it names each",
    );
  if (lag > LAG_SECONDS_MAX)
    return archive.warning(`it is ${lag} s behind`, "see the log's warnings about the archive, and its load");
  return archive.good(`it is ${lag} s behind`);
}

/** They take some 50 ms of CPU, a tenth of what an idle gateway may use in a minute. */
const EVERY_MS = 5 * 60_000;
/** Whoever asks gets none that are older. */
const FRESH_MS = 60_000;
/** A gateway that starts has other work. */
const FIRST_MS = 30_000;

export interface HealthReport {
  checkedAtMs: number;
  checks: readonly Check[];
}

/** Runs the checks every five minutes, and for those who ask once a minute at most. */
export function createHealthWatch(options: {
  checks(): Promise<Check[]>;
  shown(checks: readonly Check[]): void;
  log: Logger;
}) {
  let latest: HealthReport | undefined;
  let current: Promise<HealthReport> | undefined;

  async function look(): Promise<HealthReport> {
    const checks = await options.checks();
    latest = { checkedAtMs: Date.now(), checks };
    options.shown(checks);
    return latest;
  }

  function run(): Promise<HealthReport> {
    current ??= look().finally(() => {
      current = undefined;
    });
    return current;
  }

  const { start, stop } = repeated(run, {
    pauseMs: () => EVERY_MS,
    failed: (error) => options.log.warn({ err: error }, "health: the checks could not run"),
  });
  return {
    start: (): void => start(FIRST_MS),
    stop,
    /** At most a minute old. */
    report: (): Promise<HealthReport> =>
      latest && Date.now() - latest.checkedAtMs < FRESH_MS ? Promise.resolve(latest) : run(),
  };
}
