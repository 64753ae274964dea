import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { CONTROLS } from "./scenarios/controls.ts";
import { SOURCE_MUTANTS } from "./scenarios/source-mutants.ts";
import { STEPPED_CLOCK } from "./scenarios/stepped-clock.ts";
import { COMPRESSED } from "./scenarios/task-ends.ts";
import { FREQUENT_FIGURES } from "./scenarios/unmetered.ts";
import { ROOT } from "./world.ts";

const patched = [
  ...CONTROLS.map(({ name, patches }) => ({ name, patches })),
  ...SOURCE_MUTANTS.map((mutant) => ({ name: mutant.name, patches: [mutant] })),
  { name: "a clock that can be stepped", patches: STEPPED_CLOCK },
  { name: "three 404s within seconds", patches: COMPRESSED },
  { name: "frequent figures of Redis", patches: FREQUENT_FIGURES },
];

// Guarantee: code that moved on takes its seeded bugs along, and not only at the next full campaign.
test.each(patched)("the sources have what is patched for: $name", ({ patches }) => {
  const counts = patches.map(
    ({ file, from }) => readFileSync(join(ROOT, file), "utf8").split(from).length - 1,
  );
  expect(counts).toEqual(patches.map(() => 1));
});
