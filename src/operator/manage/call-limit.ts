import { Problem } from "./problems.ts";

/** Calls that are worked on at a time, and those that wait: customers' requests share the process. */
const RUNNING_MAX = 8;
const WAITING_MAX = 32;

/** Bounds the work under way: calls beyond that are refused at once. */
export function createCallLimit() {
  let running = 0;
  const waiting: (() => void)[] = [];

  return {
    /** @throws Problem `overloaded` */
    async run<T>(work: () => Promise<T>): Promise<T> {
      if (running < RUNNING_MAX) running++;
      else if (waiting.length < WAITING_MAX) await new Promise<void>((start) => waiting.push(start));
      else throw new Problem("overloaded", "too many calls at a time", { headers: { "Retry-After": "1" } });
      try {
        return await work();
      } finally {
        // Whoever waited longest takes the place.
        const next = waiting.shift();
        if (next) next();
        else running--;
      }
    },
  };
}
