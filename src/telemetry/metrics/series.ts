export type Labels<Label extends string> = Record<Label, string | number>;

/** One series of a counter or a gauge, for what is counted at each request. The next scrape adds `pending` to the metric. */
export interface Series {
  pending: number;
}

/** The series of one metric that are counted in plain numbers: prom-client sorts and joins the labels at each call. */
export class PendingSeries<Label extends string> {
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

/** Made the first time, and kept for ever: the values must be of closed sets. */
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

/** One series of a histogram: the counts of its buckets, and the sum. */
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
