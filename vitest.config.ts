import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import { COMPILE_CACHE } from "./test/support/child-env.ts";

// For the processes of the tests, and for programs under test that get their environment.
process.env.NODE_COMPILE_CACHE ??= COMPILE_CACHE;

/** Files share processes: each process would load the same source again. */
const shared = { isolate: false, setupFiles: "test/support/left-as-found.ts" };
/** `unit` needs nothing but Node; `lua` and `gateway` run against a real Redis started once per run, `archive` also against a PostgreSQL. */
const redis = {
  globalSetup: "test/support/global-redis.ts",
  testTimeout: 120_000,
  hookTimeout: 120_000,
};
/** These start gateways as processes of their own, too. */
const programs = { ...redis, globalSetup: [redis.globalSetup, "test/support/global-bundle.ts"] };

/** After all others and not beside them: a store that is busy for longer than a timeout is away, and a fault does not strike it. */
const faults = {
  sequence: { groupOrder: 1 },
  maxWorkers: availableParallelism() + 1,
  hookTimeout: 120_000,
};

/** Files that take long for their size, by which others are ordered. Started last, they would run alone. */
const LONGEST = [
  "test/code/code.test.ts",
  "test/archive/memory.test.ts",
  "test/unit/house/recipes.test.ts",
  "test/unit/house/release.test.ts",
  "test/unit/house/shop-types.test.ts",
  "test/unit/api/openapi-lint.test.ts",
  "test/fault/short.test.ts",
  "test/failover/follow.test.ts",
  "test/failover/slot-move.test.ts",
  "test/failover/short.test.ts",
];
const isShort = ({ moduleId }: TestSpecification): boolean =>
  !LONGEST.some((file) => moduleId.endsWith(file));
const groupOf = ({ project }: TestSpecification): number => project.config.sequence.groupOrder;

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return sorted.sort((a, b) => groupOf(a) - groupOf(b) || Number(isShort(a)) - Number(isShort(b)));
  }
}

export default defineConfig({
  test: {
    // More than there are cores: with four workers, the files of gateway use half of two cores.
    maxWorkers: availableParallelism() + 4,
    sequence: { sequencer: LongestFirst },
    projects: [
      { test: { name: "code", include: ["test/code/**/*.test.ts"], testTimeout: 300_000 } },
      {
        test: {
          name: "unit",
          include: ["test/unit/**/*.test.ts"],
          ...shared,
          testTimeout: 60_000,
          hookTimeout: 60_000,
        },
      },
      { test: { name: "lua", include: ["test/lua/**/*.test.ts"], ...shared, ...redis } },
      { test: { name: "gateway", include: ["test/gateway/**/*.test.ts"], ...shared, ...programs } },
      {
        test: {
          name: "archive",
          include: ["test/archive/**/*.test.ts"],
          ...shared,
          ...redis,
          globalSetup: [redis.globalSetup, "test/support/global-postgres.ts"],
        },
      },
      // Needs the package registry, or programs that are no dependency: `npm run test:operators`, not `npm test`.
      {
        test: {
          name: "operators",
          include: ["test/operators/**/*.test.ts"],
          ...programs,
          // A browser beside other work draws late.
          expect: { poll: { timeout: 20_000 } },
        },
      },
      {
        test: {
          name: "fault",
          include: ["test/fault/**/*.test.ts"],
          ...faults,
          testTimeout: 300_000,
        },
      },
      {
        test: {
          name: "failover",
          include: ["test/failover/**/*.test.ts"],
          ...faults,
          testTimeout: 120_000,
        },
      },
    ],
  },
});
