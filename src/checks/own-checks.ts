import { type Check, checksOf, failed, good, warning } from "./check.ts";

/** A gateway's counts of its dependencies, over all its processes. */
export interface OwnFigures {
  journal: { usable: boolean; waiting: number; of_other_stores: number };
  /** `checkedAtMs`: Unix ms, 0 before the first check. */
  ledger: { checkedAtMs: number; violations: number; check_interval_seconds: number };
  archive: { lag_seconds: number; violations: number };
  /** Exchanges lately. */
  upstream?: { answered: number; limited: number; failed: number; failure: string | null } | undefined;
  untrustedProxies: number;
}

const LAG_SECONDS_MAX = 300;
/** Intervals without a check of the ledger. */
const CHECKS_MISSED_MAX = 3;
const FAILED_SHARE_MAX = 0.5;

export const readyCheck = (why: string | null): Check =>
  why === null
    ? good("ready", "this gateway takes requests")
    : failed("ready", `this gateway is not ready: ${why}`, "the other checks say what it lacks");

/** The journal as the running gateway knows it: its files are not read beside it. */
export function journalFigures({
  journal: { usable, waiting, of_other_stores: others },
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
      "bring Redis back; they are sent by then",
    );
  return journal.good("it can be written, nothing waits");
}

export function ledgerCheck(
  { ledger: { checkedAtMs, violations, check_interval_seconds: every } }: Pick<OwnFigures, "ledger">,
  nowMs: number,
): Check {
  const advice = "run `tollgate ledger verify`; it names each violation";
  if (violations > 0) return failed("ledger", `the last check found ${violations} violations`, advice);
  if (checkedAtMs === 0) return warning("ledger", "the ledger was not checked yet", advice);
  const agoSeconds = Math.round((nowMs - checkedAtMs) / 1000);
  if (every > 0 && agoSeconds > CHECKS_MISSED_MAX * every)
    return warning("ledger", `the last check was ${agoSeconds} s ago`, advice);
  return good("ledger", "the last check found nothing wrong");
}

/** @returns undefined where the upstream was not asked lately */
export function exchangesCheck({ upstream: found }: Pick<OwnFigures, "upstream">): Check | undefined {
  const upstream = checksOf("upstream");
  const { answered = 0, limited = 0, failed: bad = 0, failure = null } = found ?? {};
  const asked = answered + limited + bad;
  if (asked === 0) return undefined;
  const words = `${bad} of ${asked} exchanges failed${failure === null ? "" : `, most as ${failure}`}`;
  if (bad > asked * FAILED_SHARE_MAX)
    return upstream.failed(words, "run `tollgate doctor`, and see the log's warnings");
  if (bad + limited > 0)
    return upstream.warning(`${words}; ${limited} were limited`, "look again in a minute; the log has each");
  return upstream.good(`all ${asked} exchanges of the last minutes were answered`);
}

export function lagCheck({ archive: { lag_seconds: lag, violations } }: Pick<OwnFigures, "archive">): Check {
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
