import {
  type Aggregator,
  Counter,
  Gauge,
  type Metric,
  type MetricObjectWithValues,
  type MetricValue,
  type Registry,
} from "prom-client";
import { type Labels, Observations, PendingSeries } from "./series.ts";

interface GaugeOptions<Label extends string> {
  labelNames?: readonly Label[];
  /** How the gauges of several processes become one; they add up by default. */
  aggregator?: Aggregator;
}

export function metricsIn(registry: Registry) {
  const registers = [registry];
  return {
    /** @param known values of its one label, each there from the start, so that the first of a kind is seen */
    counter<const Label extends string>(
      name: string,
      help: string,
      labelNames: readonly Label[] = [],
      known: readonly string[] = [],
    ) {
      const pending = new PendingSeries<Label>();
      const collect = (): void => pending.addTo(counter);
      const counter = new Counter({ name, help, labelNames, registers, collect });
      for (const value of known) counter.inc({ [labelNames[0]!]: value } as Labels<Label>, 0);
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
      const collect = (): void => gauge.set(read());
      const gauge = new Gauge({ name, help, registers, collect });
    },
    /** @param read the total since the start */
    readCounter(name: string, help: string, read: () => number): void {
      const collect = (): void => {
        counter.reset();
        counter.inc(read());
      };
      const counter = new Counter({ name, help, registers, collect });
    },
  };
}

export type MetricFactory = ReturnType<typeof metricsIn>;

export const LATENCY_BUCKETS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
];

interface DistributionOptions<Label extends string> {
  name: string;
  help: string;
  buckets: readonly number[];
  labelNames: readonly Label[];
  registry: Registry;
}

/** prom-client looks a series up at each observation, and cannot be given counts of buckets at the scrape. */
class Distribution<Label extends string> {
  readonly name: string;
  readonly help: string;
  readonly type = "histogram";
  readonly aggregator = "sum";
  readonly #buckets: readonly number[];
  readonly labelNames: readonly Label[];
  readonly #series = new Map<string, { labels: Labels<Label>; observations: Observations }>();

  constructor({ name, help, buckets, labelNames, registry }: DistributionOptions<Label>) {
    this.name = name;
    this.help = help;
    this.#buckets = buckets;
    this.labelNames = labelNames;
    // A registry needs `name` and `get` of a metric; the type lists what prom-client's own have beside them.
    registry.registerMetric(this as unknown as Metric<Label>);
  }

  of(labels: Labels<Label>): Observations {
    const key = this.labelNames.map((name) => labels[name]).join("\n");
    let known = this.#series.get(key);
    if (!known) {
      known = { labels: { ...labels }, observations: new Observations(this.#buckets) };
      this.#series.set(key, known);
    }
    return known.observations;
  }

  observe(labels: Labels<Label>, value: number): void {
    this.of(labels).add(value);
  }

  async get(): Promise<MetricObjectWithValues<MetricValue<string>>> {
    const { name, help, type, aggregator } = this;
    const values = [...this.#series.values()].flatMap((series) => this.#valuesOf(series));
    return { name, help, type, aggregator, values } as unknown as MetricObjectWithValues<MetricValue<string>>;
  }

  #valuesOf({
    labels,
    observations: { counts, sum },
  }: {
    labels: Labels<Label>;
    observations: Observations;
  }) {
    let count = 0;
    const buckets = counts.map((inBucket, at) => {
      count += inBucket;
      const le = this.#buckets[at] ?? "+Inf";
      return { metricName: `${this.name}_bucket`, labels: { le, ...labels }, value: count };
    });
    return [
      ...buckets,
      { metricName: `${this.name}_sum`, labels, value: sum },
      { metricName: `${this.name}_count`, labels, value: count },
    ];
  }
}
