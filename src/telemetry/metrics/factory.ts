import { type Aggregator, Counter, Gauge, Histogram, type Registry } from "prom-client";

interface GaugeOptions<Label extends string> {
  labelNames?: readonly Label[];
  /** How the gauges of several processes become one; they add up by default. */
  aggregator?: Aggregator;
}

/** Defines metrics in one registry. A gauge or counter with `read` takes its value at each scrape. */
export function metricsIn(registry: Registry) {
  const registers = [registry];
  return {
    counter: <const Label extends string>(name: string, help: string, labelNames: readonly Label[] = []) =>
      new Counter({ name, help, labelNames, registers }),
    gauge: <const Label extends string>(name: string, help: string, options: GaugeOptions<Label> = {}) =>
      new Gauge({ name, help, registers, ...options }),
    histogram: <const Label extends string>(
      name: string,
      help: string,
      buckets: number[],
      labelNames: readonly Label[],
    ) => new Histogram({ name, help, buckets, labelNames, registers }),
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

/** Seconds, for requests and their upstream exchanges. */
export const LATENCY_BUCKETS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
];
