import { SURVEY_LIFETIME_MS, type Survey, type Surveys } from "../operations/store/survey.ts";
import { AGES, OPEN_STATES } from "../scripts/survey.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { showLedger } from "./regular-check.ts";

/** How often one of all gateways counts, and how often each looks at what was counted last. */
const COUNT_EVERY_MS = 10_000;
const LOOK_EVERY_MIN_MS = 5000;

/**
 * Shows what is true of the store as a whole: open requests by age, overdue work, the last check of the ledger. One
 * gateway counts at a time, all show the same; off the way of any request. Decision 0016.
 * @param options.sweepIntervalMs looks no more often than the sweeper does
 */
export function createSurvey(options: {
  surveys: Surveys;
  sweepIntervalMs(): number;
  metrics: Metrics;
  log: Logger;
}) {
  const { surveys, metrics, log } = options;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  let current: Promise<void> = Promise.resolve();
  let shownMs = Number.NEGATIVE_INFINITY;
  /** When a survey was seen that was not seen before, by a clock that no step of the store's or of this machine's changes. */
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

  /**
   * Counts if it is this gateway's turn, else reads what another has counted. Where no turn can be taken, since Redis is full or
   * the primary that has the turns is away, each gateway counts for itself: now the figures matter most.
   */
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

  /** Removes figures that are out of date. */
  function forget(): void {
    for (const gauge of [metrics.openRequests, metrics.openRequestsOldest]) gauge.reset();
    metrics.sweeperLag.remove();
  }

  const schedule = (afterMs: number): void => {
    if (stopped) return;
    timer = setTimeout(() => {
      current = look()
        .catch((error: unknown) => {
          log.debug({ err: error }, "survey interrupted");
          if (performance.now() - shownMs > SURVEY_LIFETIME_MS) forget();
        })
        .finally(() => schedule(Math.max(LOOK_EVERY_MIN_MS, options.sweepIntervalMs())));
    }, afterMs);
  };

  return {
    start: (): void => schedule(options.sweepIntervalMs()),
    /** One look now; for tests. */
    look,
    async stop(): Promise<void> {
      stopped = true;
      clearTimeout(timer);
      await current;
    },
  };
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
