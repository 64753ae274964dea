import { type Aggregator, Counter, Gauge, type Registry } from "prom-client";
import { Distribution } from "./distribution.ts";

interface GaugeOptions<Label extends string> {
  labelNames?: readonly Label[];
  /** How the gauges of several processes become one; they add up by default. */
  aggregator?: Aggregator;
}

type Labels<Label extends string> = Record<Label, string | number>;

/** One series of a counter or a gauge, for what is counted at each request. The next scrape adds `pending` to the metric. */
export interface Series {
  pending: number;
}

/** Defines metrics in one registry. A gauge or counter with `read` takes its value at each scrape. */
export function metricsIn(registry: Registry) {
  const registers = [registry];
  return {
    counter<const Label extends string>(name: string, help: string, labelNames: readonly Label[] = []) {
      const pending = new PendingSeries<Label>();
      const collect = (): void => pending.addTo(counter);
      const counter = new Counter({ name, help, labelNames, registers, collect });
      return Object.assign(counter, { series: pending.series });
    },
    gauge<const Label extends string>(name: string, help: string, options: GaugeOptions<Label> = {}) {
      const pending = new PendingSeries<Label>();
      const collect = (): void => pending.addTo(gauge);
      const gauge = new Gauge({ name, help, registers, collect, ...options });
      return Object.assign(gauge, { series: pending.series });
    },
    histogram: <const Label extends string>(
      name: string,
      help: string,
      buckets: number[],
      labelNames: readonly Label[],
    ) => new Distribution({ name, help, buckets, labelNames, registry }),
    readGauge(name: string, help: string, read: () => number): void {
      new Gauge({
        name,
        help,
        registers,
        collect() {
          this.set(read());
        },
      });
    },
    /** @param read the total since the start */
    readCounter(name: string, help: string, read: () => number): void {
      new Counter({
        name,
        help,
        registers,
        collect() {
          this.reset();
          this.inc(read());
        },
      });
    },
  };
}

export type MetricFactory = ReturnType<typeof metricsIn>;

/** The series of one metric that are counted in plain numbers: prom-client sorts and joins the labels at each call. */
class PendingSeries<Label extends string> {
  readonly #all: { labels: Labels<Label>; series: Series }[] = [];

  /** A series to keep; without labels the only one of its metric. */
  readonly series = (labels: Labels<Label> = {} as Labels<Label>): Series => {
    const series = { pending: 0 };
    this.#all.push({ labels, series });
    return series;
  };

  addTo(metric: { inc(labels: Labels<Label>, value: number): void }): void {
    for (const { labels, series } of this.#all) {
      if (series.pending === 0) continue;
      metric.inc(labels, series.pending);
      series.pending = 0;
    }
  }
}

/**
 * Finds what was made for up to three values, such as the series of label values, and makes it the first time.
 * @param make its results are kept for ever: the values must be of closed sets
 */
export function madeOnce<Made>(make: (a: string, b: string, c: number) => Made) {
  const made = new Map<string, Map<string, Map<number, Made>>>();
  return (a: string, b = "", c = 0): Made => {
    const known = made.get(a)?.get(b)?.get(c);
    if (known !== undefined) return known;
    const ofA = made.get(a) ?? new Map<string, Map<number, Made>>();
    const ofB = ofA.get(b) ?? new Map<number, Made>();
    const fresh = make(a, b, c);
    made.set(a, ofA.set(b, ofB.set(c, fresh)));
    return fresh;
  };
}

/** Seconds, for requests and their upstream exchanges. */
export const LATENCY_BUCKETS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
];
