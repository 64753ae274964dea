import { Type } from "typebox";
import { type Check, runbookOf, worstOf } from "../../../checks/check.ts";
import { figureChecks } from "../../../checks/gateway-checks.ts";
import { printed } from "../../../config/problems.ts";
import { moneyNow } from "../../../ledger/account-usage.ts";
import type { UsageNumbers } from "../../../ledger/usage-rollups.ts";
import { readReports } from "../../../operations/store/gateway-reports.ts";
import type { LedgerReport } from "../../../operations/store/survey.ts";
import { storeNowMs } from "../../../redis/server-info.ts";
import { requireAllAccounts } from "../authorize.ts";
import * as t from "../field-schemas.ts";
import { route } from "../route.ts";
import { type Services, shared } from "../services.ts";
import { Configuration, Health, Live, Overview } from "../view-schemas.ts";

/** Several operators who look at the overview cost one read. */
const SHARED_MS = 3000;

const live = route("GET /live", {
  scope: "usage:read",
  name: "readLive",
  summary: "Read the figures of this gateway's last 15 minutes",
  description: "Sampled every 2 s over all its processes. Rates are averages over 10 s, latencies over 30 s.",
  query: t.object({
    after_ms: t.optional(Type.Integer({ minimum: 0, description: "Samples later than this, Unix ms." })),
  }),
  answers: { 200: { description: "The gateway and its samples.", schema: Live } },
  async run({ grantee, query }, { gateway, live, archive, maintenanceSinceMs }) {
    requireAllAccounts(grantee);
    const [state, figures, hasArchive] = [gateway(), live.health(), archive !== undefined];
    const away = state.primaries.filter(({ usable }) => !usable).map(({ name }) => name);
    const serving = { notReady: state.not_ready, maintenanceSinceMs: maintenanceSinceMs() };
    const checks = figureChecks(figures, { serving, away, hasArchive }).map(withRunbook);
    const health = healthShown(figures, hasArchive);
    return { status: 200, body: { gateway: state, health, checks, ...live.view(query.after_ms ?? 0) } };
  },
});

const health = route("GET /health", {
  scope: "usage:read",
  name: "readHealth",
  summary: "Read what is in order and what is not",
  description:
    "The checks of `tollgate doctor`, as this gateway sees them, and its own figures. It looks once a minute at most, however often it is asked. `status` is that of the worst check. `runbook` is a page of the documentation.",
  answers: { 200: { description: "Checks.", schema: Health } },
  async run({ grantee }, { health }) {
    requireAllAccounts(grantee);
    const { checkedAtMs, checks } = await health();
    const body = { status: worstOf(checks), checkedAtMs, checks: checks.map(withRunbook) };
    return { status: 200, body };
  },
});

const withRunbook = (check: Check) => ({ ...check, runbook: runbookOf(check.name) });

function healthShown(found: ReturnType<Services["live"]["health"]>, hasArchive: boolean) {
  const { upstream, lastAnswerMs, archive, ledger } = found;
  const { checkedAtMs, ...checked } = ledger;
  return {
    ...found,
    upstream: {
      ...(upstream ?? { window_seconds: 0, answered: 0, limited: 0, failed: 0 }),
      lastAnswerAtMs: lastAnswerMs,
    },
    archive: hasArchive ? archive : null,
    ledger: { ...checked, checkedAtMs: checkedAtMs || undefined },
  };
}

const readOverview = shared(SHARED_MS, ({ session, ledgerReport }: Services) =>
  session.run(async (nodes) => {
    const nowMs = await storeNowMs(nodes.of(0));
    const [gateways, money, ledger] = await Promise.all([
      readReports(nodes, nowMs),
      moneyNow(nodes),
      ledgerReport(),
    ]);
    return { gateways, money, ledger };
  }),
);

const overview = route("GET /overview", {
  scope: "usage:read",
  name: "readOverview",
  summary: "Read the money of the day and month, the state of the ledger, and all gateways",
  description:
    "Money is about a second behind. `ledger` is what its last check found, `gateways` what they say of themselves.",
  answers: { 200: { description: "The overview.", schema: Overview } },
  async run({ grantee }, services) {
    requireAllAccounts(grantee);
    const { gateways, money, ledger } = await readOverview(services, undefined);
    const body = {
      open: services.live.latest().slots,
      money: {
        today: moneyShown(money.today),
        month: moneyShown(money.month),
        unread: money.unread,
      },
      ledger: ledgerShown(ledger),
      settlements_waiting: gateways.reduce((sum, { settlementsWaiting }) => sum + settlementsWaiting, 0),
      gateways: gateways.map((report) => ({ ...report, ready: report.notReady === undefined })),
    };
    return { status: 200, body };
  },
});

const moneyShown = (numbers: UsageNumbers) => ({ ...numbers, uncollected: numbers.uncollected_credits });

function ledgerShown(report: LedgerReport | undefined) {
  const violations = report && report.violations + (report.archiveViolations ?? 0);
  return { violations, right: report && violations === 0, checkedAtMs: report?.atMs };
}

const configuration = route("GET /configuration", {
  tag: "Configuration",
  scope: "accounts:read",
  name: "readConfiguration",
  summary: "Read the configuration in force, and what differs from it",
  description: "Without secrets. What differs in the file, and the hash of each gateway's settings.",
  answers: { 200: { description: "The configuration.", schema: Configuration } },
  async run({ grantee }, { session, describeConfig, describeFiles }) {
    requireAllAccounts(grantee);
    const described = describeConfig();
    const { differs, problems } = describeFiles();
    const gateways = await session.run(async (nodes) => readReports(nodes, await storeNowMs(nodes.of(0))));
    const body = {
      config: { ...described.settings, prices: described.prices },
      config_hash: described.hash,
      ...described,
      file: {
        path: described.file,
        differs: differs.map(({ setting: path, from, to, needsRestart }) => ({
          ...{ path, in_force: from, in_file: to, needsRestart },
        })),
        awaiting_signal: described.awaiting_signal,
        problem: problems.length === 0 ? null : problems.map(printed).join("; "),
      },
      gateways,
    };
    return { status: 200, body };
  },
});

export const viewRoutes = [live, health, overview, configuration];
