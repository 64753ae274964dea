import { expect, onTestFinished, test, vi } from "vitest";
import type { ArchiveVerification } from "../../../src/archive/verify-archive.ts";
import { createLedgerCheck } from "../../../src/jobs/regular-check.ts";
import type { Verification } from "../../../src/ledger/verify-run.ts";
import type { LedgerReport } from "../../../src/operations/store/survey.ts";
import { createLogger } from "../../../src/telemetry/log.ts";
import { createMetrics } from "../../../src/telemetry/metrics.ts";

/** A check whose verification answers what the test says. */
function givenCheck(
  result: Verification | undefined,
  intervalMs = 60_000,
  fault?: string,
  verifyArchive?: () => Promise<ArchiveVerification>,
) {
  const lines: string[] = [];
  const leasesMs: number[] = [];
  const published: LedgerReport[] = [];
  const metrics = createMetrics();
  const check = createLedgerCheck({
    lease: async (ms) => {
      leasesMs.push(ms);
      return result !== undefined || fault !== undefined;
    },
    verify: async () => {
      if (fault) throw new Error(fault);
      return result!;
    },
    verifyArchive,
    publish: async (report) => void published.push(report),
    intervalMs: () => intervalMs,
    metrics,
    log: createLogger("info", { write: (line) => void lines.push(line) }),
  });
  const violations = async () => (await metrics.ledgerViolations.get()).values[0]?.value;
  const interval = async () => (await metrics.ledgerCheckInterval.get()).values[0]?.value;
  const checkedAt = async () => (await metrics.ledgerCheckedAt.get()).values[0]?.value;
  onTestFinished(() => check.stop());
  return {
    check: () => check.check(),
    start: check.start,
    lines,
    leasesMs,
    published,
    violations,
    checkedAt,
    interval,
    metrics,
  };
}

const credits = { recharged: 70, consumed: 30, refunded: 10, adjusted: 0, reversed: 0 };
const broken = { invariant: "chain", account_id: "acc_1", message: "5 after 3 and 1" } as const;

test("a violation is counted and logged as an error with its account", async () => {
  const { check, lines, published, violations, checkedAt, metrics } = givenCheck({
    ok: false,
    accounts: 2,
    entries: 9,
    credits,
    violations: [broken],
    unlisted: 4,
  });
  await check();
  expect(await violations()).toBe(5);
  expect(published).toEqual([{ atMs: expect.any(Number), violations: 5, credits }]);
  const inLedger = (await metrics.ledgerCredits.get()).values;
  expect(Object.fromEntries(inLedger.map(({ labels, value }) => [labels.type, value]))).toEqual(credits);
  expect(await checkedAt()).toBeGreaterThan(1_700_000_000);
  expect(lines.join("")).toMatch(/"level":"error".*"account_id":"acc_1"/);
});

// Guarantee: what could not be read is counted neither as right nor as wrong.
test("a check of a part of the ledger logs what is wrong there, and publishes no figures", async () => {
  const { check, lines, published, violations, checkedAt, metrics } = givenCheck({
    ok: false,
    accounts: 1,
    entries: 4,
    credits,
    violations: [broken],
    unread: { partitions: [1, 3], why: "127.0.0.1:7001: the server does not answer" },
  });
  await check();
  expect([published, await violations(), await checkedAt()]).toEqual([[], 0, 0]);
  expect((await metrics.ledgerCheckFailures.get()).values[0]?.value).toBe(1);
  expect(lines.join("")).toMatch(/"level":"error".*"account_id":"acc_1"/);
  expect(lines.join("")).toMatch(/"partitions":\[1,3\].*"accounts":1.*could not be verified as a whole/);
});

test("another gateway's lease leaves the metrics as they are", async () => {
  const { check, checkedAt } = givenCheck(undefined);
  await check();
  expect(await checkedAt()).toBe(0);
});

test("an interval of 0 asks for nothing", async () => {
  const { check, leasesMs } = givenCheck({ ok: true, accounts: 0, entries: 0, credits, violations: [] }, 0);
  await check();
  expect(leasesMs).toEqual([]);
});

test("a check that cannot be finished is counted, and changes nothing else", async () => {
  const { metrics, check, violations, published } = givenCheck(undefined, 60_000, "no such store");
  await expect(check()).rejects.toThrow("no such store");
  expect((await metrics.ledgerCheckFailures.get()).values[0]?.value).toBe(1);
  expect([await violations(), published.length]).toEqual([0, 0]);
});

// Guarantee: a store that is away for a moment, or a gateway that stops, puts no check off by a whole interval.
test("a check that cannot be finished is tried again after a twelfth of the interval", async () => {
  const { check, leasesMs } = givenCheck(undefined, 3_600_000, "no such store");
  await expect(check()).rejects.toThrow("no such store");
  expect(leasesMs).toEqual([3_600_000, 300_000]);
});

const right: Verification = { ok: true, accounts: 2, entries: 9, credits, violations: [] };

test("what is wrong with the archive is counted, logged and published along with the ledger", async () => {
  const archived = { accounts: 2, entries: 9, keys: 2, in_redis: 9 };
  const violations = [{ invariant: "archive", account_id: "acc_2", message: "is missing" } as const];
  const { check, lines, published, metrics } = givenCheck(right, 60_000, undefined, async () => ({
    ok: false,
    ...archived,
    violations,
    unlisted: 2,
  }));
  await check();
  expect(published).toEqual([{ atMs: expect.any(Number), violations: 0, credits, archiveViolations: 3 }]);
  expect((await metrics.archiveViolations.get()).values[0]?.value).toBe(3);
  expect(lines.join("")).toMatch(/"level":"error".*"account_id":"acc_2"/);
});

test("an archive that is away leaves the check of the ledger as it is", async () => {
  const { check, lines, published, violations, metrics } = givenCheck(right, 60_000, undefined, async () => {
    throw new Error("nobody listens there");
  });
  metrics.archiveViolations.set(1);
  await check();
  expect(published).toEqual([{ atMs: expect.any(Number), violations: 0, credits }]);
  expect(await violations()).toBe(0);
  // Violations found before stay until the archive has been compared again.
  expect((await metrics.archiveViolations.get()).values[0]?.value).toBe(1);
  expect(lines.join("")).toContain("nobody listens there");
});

// Guarantee: a check does not take the first minutes after a start from customers, and a short interval is not made longer.
test.each([
  ["1h", 3_600_000, 300_000],
  ["30 days", 30 * 86_400_000, 3_600_000],
  ["10 s", 10_000, 10_000],
])("a gateway looks first after a twelfth of an interval of %s", async (_, intervalMs, firstMs) => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const { start, leasesMs } = givenCheck(undefined, intervalMs);
  start();
  await vi.advanceTimersByTimeAsync(firstMs - 1);
  expect(leasesMs).toEqual([]);
  await vi.advanceTimersByTimeAsync(1);
  expect(leasesMs).toEqual([intervalMs]);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(leasesMs).toEqual([intervalMs, intervalMs]);
});

// Guarantee: a gateway that has just started does not say that its ledger is never checked.
test("the interval is known from the start on", async () => {
  const { start, interval, leasesMs } = givenCheck(undefined, 3_600_000);
  expect(await interval()).toBe(0);
  start();
  expect(await interval()).toBe(3600);
  expect(leasesMs).toEqual([]);
});

test("each look says the interval that is set now", async () => {
  const { check, interval } = givenCheck(undefined, 3_600_000);
  await check();
  expect(await interval()).toBe(3600);
});
