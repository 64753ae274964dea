import { SURVEY_LIFETIME_MS, type Survey, type Surveys } from "../operations/store/survey.ts";
import { repeated } from "../redis/repeated-work.ts";
import { AGES, OPEN_STATES } from "../scripts/surveys.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { showLedger } from "./regular-check.ts";

const COUNT_EVERY_MS = 10_000;
const LOOK_EVERY_MIN_MS = 5000;

/** Shows open requests by age, overdue work and the last ledger check. One gateway counts for all. Decision 0016. */
export function createSurvey(options: {
  surveys: Surveys;
  sweepIntervalMs(): number;
  metrics: Metrics;
  log: Logger;
}) {
  const { surveys, metrics, log } = options;
  let shownMs = Number.NEGATIVE_INFINITY;
  /** By a monotonic clock. */
  let newestMs = performance.now();
  let newestAtMs = 0;

  async function look(): Promise<void> {
    try {
      const survey = await count();
      if (survey) show(survey);
      else forget();
      const ledger = await surveys.latestLedger();
      if (ledger) showLedger(metrics, ledger);
    } finally {
      metrics.surveyAge.set((performance.now() - newestMs) / 1000);
    }
  }

  /** If no lease can be taken (Redis is full or unavailable), each gateway counts for itself. */
  async function count(): Promise<Survey | undefined> {
    try {
      if (!(await surveys.turn(COUNT_EVERY_MS))) return await surveys.latest();
    } catch {
      return surveys.take();
    }
    const survey = await surveys.take();
    await surveys
      .publish(survey)
      .catch((error: unknown) => log.debug({ err: error }, "survey not published"));
    return survey;
  }

  function show(survey: Survey): void {
    shownMs = performance.now();
    if (survey.atMs !== newestAtMs) newestMs = shownMs;
    newestAtMs = survey.atMs;
    showSurvey(metrics, survey);
  }

  function forget(): void {
    for (const gauge of [metrics.openRequests, metrics.openRequestsOldest]) gauge.reset();
    metrics.sweeperLag.remove();
  }

  const { start, stop } = repeated(look, {
    pauseMs: () => Math.max(LOOK_EVERY_MIN_MS, options.sweepIntervalMs()),
    failed(error) {
      log.debug({ err: error }, "survey interrupted");
      if (performance.now() - shownMs > SURVEY_LIFETIME_MS) forget();
    },
  });
  return { start: (): void => start(options.sweepIntervalMs()), look, stop };
}

function showSurvey(metrics: Metrics, survey: Survey): void {
  const { open, oldestMs, overdueMs, unreadPartitions } = survey;
  metrics.surveyUnread.set(unreadPartitions);
  metrics.sweeperLag.set(overdueMs / 1000);
  for (const state of OPEN_STATES) {
    metrics.openRequestsOldest.set({ state }, oldestMs[state] / 1000);
    for (const [band, [age]] of AGES.entries()) {
      metrics.openRequests.set({ state, age }, Math.round(open[state][band] ?? 0));
    }
  }
}
