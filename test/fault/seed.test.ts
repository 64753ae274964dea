import { expect, test } from "vitest";
import { createRandom, seedFor } from "./random.ts";
import { planErrands } from "./scenarios/traffic.ts";

const planOf = (seed: number, scenario: string) =>
  planErrands(createRandom(seedFor(seed, scenario)), 200, 16, 3);

// Guarantee: a failure can be looked for again under the seed that was printed.
test("a seed makes the same schedule each time, and another seed or scenario another one", () => {
  expect(planOf(799976666, "kills")).toEqual(planOf(799976666, "kills"));
  expect(planOf(799976667, "kills")).not.toEqual(planOf(799976666, "kills"));
  expect(planOf(799976666, "redis-link")).not.toEqual(planOf(799976666, "kills"));
});
