import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { CHECK_NAMES, type Check, good, runbookOf } from "../../../src/checks/check.ts";
import { createHealthWatch, figureChecks, type OwnFigures } from "../../../src/checks/gateway-checks.ts";
import { createLogger } from "../../../src/telemetry/log.ts";

const NOW_MS = Date.now();
const GOOD: OwnFigures = {
  redis: { usable: true, older: false, frozen_partitions: 0 },
  archive: { lag_seconds: 2, violations: 0 },
  ledger: { checkedAtMs: NOW_MS - 1000, violations: 0, check_interval_seconds: 3600 },
  journal: { usable: true, waiting: 0, of_other_stores: 0, unconfirmed: 0 },
  upstream: { window_seconds: 60, answered: 10, limited: 0, failed: 0, failure: null },
  lastAnswerMs: NOW_MS - 2000,
  untrustedProxies: 0,
};

const SERVING = { notReady: null, maintenanceSinceMs: undefined };
const of = (more: object = {}, gateway: object = {}): Check[] =>
  figureChecks({ ...GOOD, ...more }, { serving: SERVING, away: [], hasArchive: true, ...gateway });

test("a gateway in order has nothing to look at", () => {
  expect(of().map(({ name, status }) => [name, status])).toEqual(
    ["ready", "redis", "upstream", "archive", "ledger", "journal"].map((name) => [name, "ok"]),
  );
});

// Guarantee: whatever is wrong is said to be wrong.
test.each([
  ["redis", "fail", { redis: { ...GOOD.redis, usable: false } }],
  ["redis", "fail", { redis: { ...GOOD.redis, older: true } }],
  ["redis", "warn", { redis: { ...GOOD.redis, frozen_partitions: 2 } }],
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
  expect(of(more).filter((check) => check.status !== "ok")).toMatchObject([{ name, status }]);
});

test("an upstream that was not asked lately has no check of its exchanges", () => {
  const quiet = { ...GOOD.upstream, answered: 0 };
  for (const upstream of [quiet, undefined])
    expect(of({ upstream }).map(({ name }) => name)).not.toContain("upstream");
});

test("a gateway that is not ready says why, and names the primaries that are away", () => {
  const [ready, redis] = of(
    {},
    {
      serving: { ...SERVING, notReady: "draining" },
      away: ["10.0.0.7:6379"],
    },
  );
  expect(ready).toMatchObject({ status: "fail", message: expect.stringContaining("draining") });
  expect(redis).toMatchObject({ status: "fail", message: expect.stringContaining("10.0.0.7:6379") });
});

// Guarantee: nobody who looks for the reason of 503s is told that all is well.
test("maintenance is something to look at, with its beginning and its end", () => {
  const [ready] = of({}, { serving: { ...SERVING, maintenanceSinceMs: Date.UTC(2026, 10, 30, 14, 3) } });
  expect(ready).toMatchObject({
    status: "warn",
    message: "maintenance since 2026-11-30 14:03:00 UTC: generations and uploads are 503",
    advice: "`tollgate maintenance off` ends it",
  });
});

test.each([
  [90_000, "90 s"],
  [900_000, "15 min"],
  [7_200_000, "2 h"],
])("%i ms are %s", (ago, text) => {
  const ledger = { ...GOOD.ledger, checkedAtMs: Date.now() - ago, check_interval_seconds: 86_400 };
  expect(of({ ledger }).find(({ name }) => name === "ledger")?.message).toContain(`checked ${text} ago`);
});

test("without an archive there is nothing to mend about it", () => {
  const [, , , archive] = of({ archive: { lag_seconds: 400, violations: 1 } }, { hasArchive: false });
  expect(archive).toMatchObject({ name: "archive", status: "ok" });
});

test.each(CHECK_NAMES)("the runbook of %s exists", (name) => {
  const [page = "", section] = runbookOf(name).split("#");
  const file = join(import.meta.dirname, "../../..", page);
  expect(existsSync(file)).toBe(true);
  if (section !== undefined) expect(readFileSync(file, "utf8").toLowerCase()).toContain(`### ${section}\n`);
});

// Guarantee: asking often costs Redis nothing.
test("however many ask, the checks run once a minute", async () => {
  vi.useFakeTimers({ toFake: ["Date"] });
  let runs = 0;
  const shown: string[] = [];
  const watch = createHealthWatch({
    checks: async () => [good("redis", `run ${++runs}`)],
    shown: (checks) => void shown.push(checks[0]!.message),
    log: createLogger("silent"),
  });
  const reports = await Promise.all(Array.from({ length: 100 }, () => watch.report()));
  reports.push(await watch.report());
  expect(new Set(reports.map(({ checks }) => checks[0]!.message))).toEqual(new Set(["run 1"]));
  expect(shown).toEqual(["run 1"]);
  vi.setSystemTime(Date.now() + 61_000);
  expect((await watch.report()).checks[0]!.message).toBe("run 2");
  vi.useRealTimers();
  await watch.stop();
});

test("checks that cannot run are no report, and the next who asks has them run again", async () => {
  let fails = true;
  const watch = createHealthWatch({
    async checks() {
      if (fails) throw new Error("broken");
      return [good("redis", "answers")];
    },
    shown: () => undefined,
    log: createLogger("silent"),
  });
  await expect(watch.report()).rejects.toThrow("broken");
  fails = false;
  expect((await watch.report()).checks).toHaveLength(1);
  await watch.stop();
});
