import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { healthChecks } from "../../../../src/admin/api/health-checks.ts";

const NOW_MS = 1_800_000_000_000;
const GOOD = {
  redis: { usable: true, older: false, frozen_partitions: 0 },
  archive: { lag_seconds: 2, violations: 0 },
  ledger: { checkedAtMs: NOW_MS - 1000, violations: 0, check_interval_seconds: 3600 },
  journal: { usable: true, waiting: 0, of_other_stores: 0, unconfirmed: 0 },
  upstream: { window_seconds: 60, answered: 10, limited: 0, failed: 0, failure: null },
  lastAnswerMs: NOW_MS,
};
function expectSection(runbook: string): void {
  const [page = "", section] = runbook.split("#");
  const text = readFileSync(join(import.meta.dirname, "../../../..", page), "utf8");
  if (section !== undefined) expect(text.toLowerCase()).toContain(`### ${section}\n`);
}

const of = (more: object = {}, notReady: string | null = null) =>
  healthChecks({ ...GOOD, ...more }, { notReady, hasArchive: true, nowMs: NOW_MS });

test("a gateway in order has nothing to look at, and every check names a page that exists", () => {
  const checks = of();
  expect(checks.map(({ name, status }) => [name, status])).toEqual(
    ["ready", "redis", "partitions", "journal", "ledger", "upstream", "archive"].map((name) => [name, "ok"]),
  );
  for (const { runbook } of checks) expectSection(runbook);
});

// Guarantee: whatever is wrong is said to be wrong.
test.each([
  ["redis", "fail", { redis: { ...GOOD.redis, usable: false } }],
  ["redis", "fail", { redis: { ...GOOD.redis, older: true } }],
  ["partitions", "warn", { redis: { ...GOOD.redis, frozen_partitions: 2 } }],
  ["journal", "fail", { journal: { ...GOOD.journal, usable: false } }],
  ["journal", "warn", { journal: { ...GOOD.journal, waiting: 3 } }],
  ["journal", "warn", { journal: { ...GOOD.journal, of_other_stores: 3 } }],
  ["ledger", "fail", { ledger: { ...GOOD.ledger, violations: 1 } }],
  ["ledger", "warn", { ledger: { ...GOOD.ledger, checkedAtMs: 0 } }],
  ["ledger", "warn", { ledger: { ...GOOD.ledger, checkedAtMs: NOW_MS - 4 * 3_600_000 } }],
  ["upstream", "fail", { upstream: { ...GOOD.upstream, failed: 30, failure: "unreachable" } }],
  ["upstream", "warn", { upstream: { ...GOOD.upstream, failed: 1, failure: "unreachable" } }],
  ["upstream", "warn", { upstream: { ...GOOD.upstream, limited: 1 } }],
  ["archive", "fail", { archive: { ...GOOD.archive, violations: 1 } }],
  ["archive", "warn", { archive: { ...GOOD.archive, lag_seconds: 400 } }],
])("%s is %s with %j", (name, status, more) => {
  for (const { runbook } of of(more)) expectSection(runbook);
  const wrong = of(more).filter((check) => check.status !== "ok");
  expect(wrong).toMatchObject([{ name, status }]);
});

test("a gateway that is not ready says why", () => {
  expect(of({}, "draining")[0]).toMatchObject({
    status: "fail",
    message: expect.stringContaining("draining"),
  });
});
