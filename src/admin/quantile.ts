/** A cumulative histogram: upper bound in seconds (Infinity last) to how many were at most that. */
export type Buckets = ReadonlyMap<number, number>;

/**
 * The quantile of what came between two readings of a histogram, in seconds, evenly spread within its bucket as
 * Prometheus has it; null when nothing came. Beyond the last bound it is that bound.
 * @param share 0.5 for the median
 */
export function quantileBetween(share: number, before: Buckets, after: Buckets): number | null {
  const bounds = [...after.keys()].sort((a, b) => a - b);
  const grown = (bound: number): number => Math.max(0, (after.get(bound) ?? 0) - (before.get(bound) ?? 0));
  const total = grown(bounds.at(-1) ?? 0);
  if (total === 0) return null;
  const rank = share * total;
  let [lower, below] = [0, 0];
  for (const bound of bounds) {
    const count = grown(bound);
    if (count >= rank) {
      if (bound === Number.POSITIVE_INFINITY) return lower;
      return lower + (bound - lower) * ((rank - below) / (count - below));
    }
    [lower, below] = [bound, count];
  }
  return lower;
}
