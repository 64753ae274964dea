import { AggregatorRegistry, type Registry } from "prom-client";

/** All metrics of one process, as they go to another. */
export type Numbers = Awaited<ReturnType<Registry["getMetricsAsJSON"]>>;

/** prom-client's type says numbers, which it never uses. */
const COUNTED = new Set<unknown>(["counter", "histogram"]);

/**
 * One metrics page of several processes. What one had counted stays on it when it has ended: Prometheus takes a counter
 * that falls for one that began anew, and all that is left of it for new.
 */
export function createCommonPage() {
  const latest = new Map<number, Numbers>();
  let ended: Promise<Numbers> = Promise.resolve([]);
  return {
    /** Takes what a process says of itself. */
    say(processId: number, numbers: Numbers): void {
      latest.set(processId, numbers);
    },
    /** What it counted after it last said so is lost, and was on no page. */
    end(processId: number): void {
      const last = latest.get(processId) ?? [];
      latest.delete(processId);
      const counted = last.filter(({ type }) => COUNTED.has(type));
      ended = ended.then((before) => AggregatorRegistry.aggregate([before, counted]).getMetricsAsJSON());
    },
    async text(): Promise<string> {
      return AggregatorRegistry.aggregate([...latest.values(), await ended]).metrics();
    },
  };
}
