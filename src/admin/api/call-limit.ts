import { createRoundRobin } from "../../domain/round-robin.ts";
import { Problem } from "./problems.ts";

/** Calls that are worked on at a time, and those that wait: customers' requests share the process. */
const RUNNING_MAX = 8;
const WAITING_MAX = 32;

interface Waiter {
  start(): void;
  refuse(problem: Problem): void;
}

/**
 * Bounds the work under way. Tokens take turns, so one with many calls delays another's by one. Calls beyond the bound are refused: if
 * all places are taken, the newest call of the token with the most makes room for one of a token with fewer.
 */
export function createCallLimit() {
  let running = 0;
  const waiting = createRoundRobin<Waiter>();

  function wait(owner: string): Promise<void> {
    if (waiting.size >= WAITING_MAX) {
      const displaced = waiting.makeRoom(owner);
      if (!displaced) throw overloaded();
      displaced.refuse(overloaded());
    }
    const { promise, resolve: start, reject: refuse } = Promise.withResolvers<void>();
    waiting.add(owner, { start, refuse });
    return promise;
  }

  return {
    /**
     * @param owner whose call it is: those of one token are one owner's
     * @throws Problem `overloaded`
     */
    async run<T>(owner: string, work: () => Promise<T>): Promise<T> {
      if (running < RUNNING_MAX) running++;
      else await wait(owner);
      try {
        return await work();
      } finally {
        // The next call takes the place.
        const next = waiting.next();
        if (next) next.start();
        else running--;
      }
    },
  };
}

const overloaded = (): Problem =>
  new Problem("overloaded", "too many calls at a time", { headers: { "Retry-After": "1" } });
