import type { Control } from "./controls.ts";
import { unmetered } from "./unmetered.ts";

const caughtBy = "unmetered only while Redis is away, and bound once";
const run: Control["run"] = (options) => unmetered.run(options, { requests: 40, outages: 1 });

/** Bugs of a Redis that is away, and of `store.fallback_strategy: allow`. */
export const UNMETERED_CONTROLS: readonly Control[] = [
  {
    name: "a Redis that answers with an error is away",
    patches: [
      {
        file: "src/redis/away-verdict.ts",
        from: 'isUnreachable(failure) ? "away" : "refusing"',
        to: '"away"',
      },
    ],
    run,
    caughtBy,
    violation: /while Redis refused/,
  },
  {
    name: "an unmetered task is forgotten",
    patches: [
      {
        file: "src/durability/outbox/outbox.ts",
        from: "if (queues.sizeOf(true) >= UNMETERED_MAX) return this.#reportUnremembered(settlement);",
        to: "return;",
      },
    ],
    run,
    caughtBy,
    violation: /is not bound/,
  },
  {
    name: "a key goes on beyond its end",
    patches: [
      {
        file: "src/gateway/unmetered.ts",
        from: ">= valid.terms.expiresAtMs",
        to: ">= Number.POSITIVE_INFINITY",
      },
    ],
    run,
    caughtBy,
    violation: /had ended/,
  },
  {
    name: "a key goes on beyond its cap",
    patches: [
      {
        file: "src/gateway/unmetered.ts",
        from: "spent + price > valid.terms.cap",
        to: "price > valid.terms.cap",
      },
    ],
    run,
    caughtBy,
    violation: /above its cap/,
  },
  {
    name: "what passes is told limits of zero",
    patches: [
      {
        file: "src/gateway/unmetered.ts",
        from: "concurrentLimit = 0 } = usage.valid?.state ?? {};",
        to: "concurrentLimit = 0 } = {};",
      },
    ],
    run,
    caughtBy,
    violation: /was told that 0 remain/,
  },
  {
    name: "the figures of a Redis that is away stay as they were",
    patches: [
      {
        file: "src/jobs/background-work.ts",
        from: "if (!names.has(String(labels.primary))) gauge",
        to: "if (names.size > 9) gauge",
      },
    ],
    run,
    caughtBy: "faults struck as planned",
    violation: /figures of a Redis that is away/,
  },
  {
    name: "whether Redis keeps its data is not shown",
    patches: [
      {
        file: "src/jobs/background-work.ts",
        from: "    metrics.redisPersistent.set(labels, isPersistent(info) ? 1 : 0);\n",
        to: "",
      },
    ],
    run,
    caughtBy: "faults struck as planned",
    violation: /figures of Redis are shown/,
  },
];
