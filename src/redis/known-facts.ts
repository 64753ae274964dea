import type { Logger } from "../telemetry/log.ts";
import type { Deadlines } from "./deadlines.ts";
import type { StoreFacts } from "./store-facts.ts";

/**
 * The facts of the whole store, as the primary of `tg:meta` last answered them. They are kept while that primary is away, so
 * that the others stay in use.
 * @param options.identified is called with the store's id whenever the facts were read
 * @param options.replaced is called when the store has another id than before
 */
export function createKnownFacts(options: {
  identified(storeId: string): Promise<void> | undefined;
  replaced(): void;
  log: Logger;
}) {
  let facts: StoreFacts | undefined;
  /** Probes of other primaries at the start. */
  const waiting = new Set<() => void>();

  return {
    /** Undefined until they were read once. */
    current: (): StoreFacts | undefined => facts,
    async learn(latest: StoreFacts): Promise<void> {
      const before = facts;
      facts = latest;
      if (facts.id !== undefined) await options.identified(facts.id);
      else if (!before)
        options.log.warn(
          "the store refuses an id of its own; until it has one, no journal file is taken over",
        );
      for (const resolve of waiting) resolve();
      waiting.clear();
      if (before && before.id !== latest.id) options.replaced();
    },
    /** @throws Error if they are still unknown after the time of a command */
    async known(deadlines: Deadlines): Promise<void> {
      if (facts) return;
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const deadline = deadlines.begin(() => {
        waiting.delete(resolve);
        reject(new Error("the number of partitions is unknown: the primary of tg:meta does not answer"));
      });
      waiting.add(resolve);
      await promise;
      deadlines.end(deadline);
    },
  };
}
