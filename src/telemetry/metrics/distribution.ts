import type { Metric, MetricObjectWithValues, MetricValue, Registry } from "prom-client";

type Labels<Label extends string> = Record<Label, string | number>;

interface DistributionOptions<Label extends string> {
  name: string;
  help: string;
  /** Upper bounds, rising. */
  buckets: readonly number[];
  labelNames: readonly Label[];
  registry: Registry;
}

/** The observations of one combination of label values. */
export class Observations {
  readonly #bounds: readonly number[];
  /** How many are in each bucket; the last one is beyond all bounds. */
  readonly counts: number[];
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.counts = new Array<number>(bounds.length + 1).fill(0);
  }

  add(value: number): void {
    let at = 0;
    while (at < this.#bounds.length && value > this.#bounds[at]!) at++;
    this.counts[at]!++;
    this.sum += value;
  }
}

/**
 * A histogram as prom-client has it, except that a series can be looked up once and kept: prom-client does that at each
 * observation, and cannot be given counts of buckets at the scrape.
 */
export class Distribution<Label extends string> {
  readonly name: string;
  readonly help: string;
  readonly type = "histogram";
  readonly aggregator = "sum";
  readonly #buckets: readonly number[];
  readonly #labelNames: readonly Label[];
  readonly #series = new Map<string, { labels: Labels<Label>; observations: Observations }>();

  constructor({ name, help, buckets, labelNames, registry }: DistributionOptions<Label>) {
    this.name = name;
    this.help = help;
    this.#buckets = buckets;
    this.#labelNames = labelNames;
    // A registry needs `name` and `get` of a metric; the type lists what prom-client's own have beside them.
    registry.registerMetric(this as unknown as Metric<Label>);
  }

  /** The series of these labels, to keep. */
  of(labels: Labels<Label>): Observations {
    const key = this.#labelNames.map((name) => labels[name]).join("\n");
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

  /** For the registry: all that was observed so far. */
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
