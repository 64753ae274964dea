import { API_PREFIX } from "../domain/endpoints.ts";
import type { Logger } from "../telemetry/log.ts";

export const TASK_TEMPLATE = `${API_PREFIX}tasks/{taskId}`;

const EVERY_MS = 60_000;
/** Bounds of buckets grow by this factor, so a quantile is at most 10 % above what was measured. */
const GROWTH = 1.1;
/** The upper bound of the first bucket, ms; the last is above ten minutes. */
const FIRST_MS = 0.1;
const BUCKETS = 165;
const LN_GROWTH = Math.log(GROWTH);

/** Counts polls whose lines are not written, and writes one line a minute about them. */
export class PollSummary {
  readonly #log: Logger;
  readonly #byStatus = new Map<number, number>();
  readonly #buckets = new Uint32Array(BUCKETS);
  #count = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(log: Logger) {
    this.#log = log;
  }

  add(status: number, durationMs: number): void {
    this.#byStatus.set(status, (this.#byStatus.get(status) ?? 0) + 1);
    this.#buckets[bucketOf(durationMs)]!++;
    this.#count++;
    this.#timer ??= setTimeout(this.write, EVERY_MS).unref();
  }

  /** Nothing if there were no polls since the last line. */
  readonly write = (): void => {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#count === 0) return;
    this.#log.info(
      {
        polls: this.#count,
        by_status: Object.fromEntries(this.#byStatus),
        p50_ms: this.#quantile(0.5),
        p99_ms: this.#quantile(0.99),
      },
      "polls of the last minute",
    );
    this.#count = 0;
    this.#byStatus.clear();
    this.#buckets.fill(0);
  };

  #quantile(share: number): number {
    let below = 0;
    const at = this.#buckets.findIndex((count) => {
      below += count;
      return below >= share * this.#count;
    });
    return Math.round(FIRST_MS * GROWTH ** at * 10) / 10;
  }
}

const bucketOf = (ms: number): number =>
  ms <= FIRST_MS ? 0 : Math.min(BUCKETS - 1, Math.ceil(Math.log(ms / FIRST_MS) / LN_GROWTH));
