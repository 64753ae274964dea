import type { Metric, Registry } from "prom-client";

/**
 * Counter and Histogram as prom-client has them, for what is counted on every request: prom-client's own sort and join
 * the labels at each call, these look them up. A scrape sees no difference. Decision 0021.
 */

type Labels<Name extends string> = Record<Name, string | number>;

interface Options<Name extends string> {
  name: string;
  help: string;
  labelNames?: readonly Name[];
  registers: readonly Registry[];
}

interface Value {
  metricName?: string;
  labels: Record<string, string | number>;
  value: number;
}

/** What is known of each combination of label values. */
abstract class Family<Name extends string, Series> {
  readonly name: string;
  readonly help: string;
  readonly labelNames: readonly Name[];
  readonly aggregator = "sum";
  abstract readonly type: "counter" | "histogram";
  readonly #series = new Map<string, { labels: Labels<Name>; series: Series }>();

  constructor({ name, help, labelNames = [], registers }: Options<Name>) {
    this.name = name;
    this.help = help;
    this.labelNames = labelNames;
    // A registry asks its metrics for nothing but `name` and `get`; the type lists all that prom-client's own can do.
    for (const registry of registers) registry.registerMetric(this as unknown as Metric<Name>);
  }

  protected abstract emptySeries(): Series;
  protected abstract valuesOf(labels: Labels<Name>, series: Series): Value[];

  protected find(labels: Labels<Name>): Series {
    let key = "";
    for (const name of this.labelNames) key += `${labels[name]}\n`;
    let found = this.#series.get(key);
    if (!found) {
      found = { labels: { ...labels }, series: this.emptySeries() };
      this.#series.set(key, found);
    }
    return found.series;
  }

  /** For prom-client: everything counted so far. */
  async get() {
    const { name, help, aggregator, type } = this;
    const values = [...this.#series.values()].flatMap(({ labels, series }) => this.valuesOf(labels, series));
    return { name, help, aggregator, type, values };
  }
}

export class Counter<Name extends string = never> extends Family<Name, { value: number }> {
  readonly type = "counter";

  constructor(options: Options<Name>) {
    super(options);
    // Without labels there is one series, which is there from the start.
    if (this.labelNames.length === 0) this.find({} as Labels<Name>);
  }

  /** Adds to the series of these labels, or, without labels, to the only one: 1, unless said otherwise. */
  inc(labels: Labels<Name> | number = 1, value = 1): void {
    if (typeof labels === "number") this.find({} as Labels<Name>).value += labels;
    else this.find(labels).value += value;
  }

  protected emptySeries() {
    return { value: 0 };
  }

  protected valuesOf(labels: Labels<Name>, { value }: { value: number }): Value[] {
    return [{ labels, value }];
  }
}

interface Distribution {
  /** Each observation is in one of them; the last one is beyond all bounds. */
  counts: number[];
  sum: number;
}

export class Histogram<Name extends string> extends Family<Name, Distribution> {
  readonly type = "histogram";
  readonly #bounds: readonly number[];

  /** @param options.buckets their upper bounds, rising */
  constructor(options: Options<Name> & { buckets: readonly number[] }) {
    super(options);
    this.#bounds = options.buckets;
  }

  observe(labels: Labels<Name>, value: number): void {
    const series = this.find(labels);
    let at = 0;
    while (at < this.#bounds.length && value > this.#bounds[at]!) at++;
    series.counts[at]!++;
    series.sum += value;
  }

  protected emptySeries(): Distribution {
    return { counts: new Array<number>(this.#bounds.length + 1).fill(0), sum: 0 };
  }

  protected valuesOf(labels: Labels<Name>, { counts, sum }: Distribution): Value[] {
    let below = 0;
    const values: Value[] = counts.map((inBucket, at) => {
      below += inBucket;
      const le = this.#bounds[at] ?? "+Inf";
      return { metricName: `${this.name}_bucket`, labels: { ...labels, le }, value: below };
    });
    values.push({ metricName: `${this.name}_sum`, labels, value: sum });
    values.push({ metricName: `${this.name}_count`, labels, value: below });
    return values;
  }
}
