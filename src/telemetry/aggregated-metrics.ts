import { AggregatorRegistry, type Registry } from "prom-client";

export type MetricValues = Awaited<ReturnType<Registry["getMetricsAsJSON"]>>;

/** prom-client declares the type as a number and never uses one. */
const CUMULATIVE = new Set<unknown>(["counter", "histogram"]);

/** Counts of an ended process stay: to Prometheus, a counter that falls was reset. */
export function createAggregatedMetrics() {
  const latest = new Map<number, MetricValues>();
  let ended: Promise<MetricValues> = Promise.resolve([]);
  return {
    update(processId: number, values: MetricValues): void {
      latest.set(processId, values);
    },
    /** Counts since the last update are lost; they were on no page. */
    processEnded(processId: number): void {
      const last = latest.get(processId) ?? [];
      latest.delete(processId);
      const counts = last.filter(({ type }) => CUMULATIVE.has(type));
      ended = ended.then((before) => AggregatorRegistry.aggregate([before, counts]).getMetricsAsJSON());
    },
    async text(): Promise<string> {
      return AggregatorRegistry.aggregate([...latest.values(), await ended]).metrics();
    },
  };
}
