import { defineConfig } from "vitest/config";

/** `unit` needs nothing but Node; `lua` and `gateway` run against a real Redis started once per run. */
const redis = { globalSetup: "test/support/global-redis.ts", testTimeout: 120_000, hookTimeout: 120_000 };

export default defineConfig({
  test: {
    // All cores: tests wait for processes and timers most of their time.
    maxWorkers: "100%",
    projects: [
      { test: { name: "unit", include: ["test/unit/**/*.test.ts"], testTimeout: 60_000 } },
      { test: { name: "lua", include: ["test/lua/**/*.test.ts"], ...redis } },
      { test: { name: "gateway", include: ["test/gateway/**/*.test.ts"], ...redis } },
      // Needs the package registry, or programs that are no dependency: `npm run test:operators`, not `npm test`.
      { test: { name: "operators", include: ["test/operators/**/*.test.ts"], ...redis } },
      {
        test: {
          name: "fault",
          include: ["test/fault/**/*.test.ts"],
          testTimeout: 300_000,
          hookTimeout: 120_000,
        },
      },
      {
        test: {
          name: "failover",
          include: ["test/failover/**/*.test.ts"],
          testTimeout: 120_000,
          hookTimeout: 120_000,
        },
      },
    ],
  },
});
