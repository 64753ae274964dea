import type { Services } from "./services.ts";

type Health = ReturnType<Services["live"]["health"]>;

export const HEALTH_STATUSES = ["ok", "warn", "fail"] as const;

/** One thing that was looked at. `runbook`: a page of the documentation, or a section. */
interface HealthCheck {
  name: string;
  status: (typeof HEALTH_STATUSES)[number];
  message: string;
  runbook: string;
}

const OPERATIONS = "docs/operations";
/** An archive that lags so long deserves a look. */
const LAG_SECONDS_MAX = 300;
/** The ledger is checked every so often; a check that is missing longer deserves a look. */
const CHECKS_MISSED_MAX = 3;
const FAILED_SHARE_MAX = 0.5;

/** What this gateway knows of all that it needs, by its own figures, the worst of its processes. */
export function healthChecks(
  health: Health,
  { notReady, hasArchive, nowMs }: { notReady: string | null; hasArchive: boolean; nowMs: number },
): HealthCheck[] {
  return [
    ready(notReady),
    redis(health),
    frozen(health),
    journal(health),
    ledger(health, nowMs),
    upstream(health),
    ...(hasArchive ? [archive(health)] : []),
  ];
}

const check = (
  name: string,
  status: HealthCheck["status"],
  message: string,
  runbook: string,
): HealthCheck => ({ name, status, message, runbook: `${OPERATIONS}/${runbook}` });

const ready = (why: string | null): HealthCheck =>
  why === null
    ? check("ready", "ok", "this gateway takes requests", "incidents.md")
    : check("ready", "fail", `this gateway is not ready: ${why}`, "incidents.md");

function redis({ redis: { usable, older } }: Health): HealthCheck {
  if (!usable)
    return check("redis", "fail", "a primary of Redis cannot be used", "alerts-redis.md#tollgateprimaryaway");
  if (older)
    return check(
      "redis",
      "fail",
      "Redis lacks what it had confirmed: an older copy runs",
      "alerts-redis.md#tollgatestoreolder",
    );
  return check("redis", "ok", "all primaries answer and take writes", "redis.md");
}

const frozen = ({ redis: { frozen_partitions: count } }: Health): HealthCheck =>
  count === 0
    ? check("partitions", "ok", "no partition is frozen", "redis-cluster.md")
    : check(
        "partitions",
        "warn",
        `${count} partitions are frozen: their accounts get 503`,
        "alerts-redis.md#tollgatepartitionsfrozen",
      );

function journal({ journal: { usable, waiting, of_other_stores: others } }: Health): HealthCheck {
  if (!usable)
    return check(
      "journal",
      "fail",
      "the journal's folder cannot be written",
      "alerts-redis.md#tollgatejournalunusable",
    );
  if (others > 0)
    return check("journal", "warn", `${others} settlements belong to another store`, "journal.md");
  if (waiting > 0)
    return check(
      "journal",
      "warn",
      `${waiting} settlements wait for Redis`,
      "alerts-redis.md#tollgatesettlementswaiting",
    );
  return check("journal", "ok", "no settlement waits", "journal.md");
}

function ledger(
  { ledger: { checkedAtMs, violations, check_interval_seconds: every } }: Health,
  nowMs: number,
): HealthCheck {
  if (violations > 0)
    return check(
      "ledger",
      "fail",
      `the last check found ${violations} violations`,
      "alerts-ledger.md#tollgateledgerdrift",
    );
  if (checkedAtMs === 0)
    return check(
      "ledger",
      "warn",
      "the ledger was not checked yet",
      "alerts-ledger.md#tollgateledgerunchecked",
    );
  const agoSeconds = Math.round((nowMs - checkedAtMs) / 1000);
  if (every > 0 && agoSeconds > CHECKS_MISSED_MAX * every)
    return check(
      "ledger",
      "warn",
      `the last check was ${agoSeconds} s ago`,
      "alerts-ledger.md#tollgateledgerunchecked",
    );
  return check("ledger", "ok", "the last check found nothing wrong", "alerts-ledger.md");
}

function upstream({ upstream: found }: Health): HealthCheck {
  const { answered = 0, limited = 0, failed = 0, failure = null } = found ?? {};
  const asked = answered + limited + failed;
  if (asked === 0) return check("upstream", "ok", "the upstream was not asked lately", "upstream.md");
  const words = `${failed} of ${asked} exchanges failed${failure === null ? "" : `, most as ${failure}`}`;
  if (failed > asked * FAILED_SHARE_MAX)
    return check("upstream", "fail", words, "alerts-upstream.md#tollgateupstreamfailing");
  if (failed + limited > 0)
    return check(
      "upstream",
      "warn",
      `${words}; ${limited} were limited`,
      "alerts-upstream.md#tollgateupstreamfailing",
    );
  return check("upstream", "ok", `all ${asked} exchanges of the last minutes were answered`, "upstream.md");
}

function archive({ archive: { lag_seconds: lag, violations } }: Health): HealthCheck {
  if (violations > 0)
    return check(
      "archive",
      "fail",
      `archive and Redis differ in ${violations} places`,
      "alerts-ledger.md#tollgatearchivedrift",
    );
  if (lag > LAG_SECONDS_MAX)
    return check("archive", "warn", `the archive is ${lag} s behind`, "alerts-ledger.md#tollgatearchivelag");
  return check("archive", "ok", `the archive is ${lag} s behind`, "alerts-ledger.md");
}
