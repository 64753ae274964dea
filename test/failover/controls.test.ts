import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "../fault/world.ts";
import { CONTROLS } from "./controls.ts";

// Guarantee: code that moved on takes its seeded bugs along, and not only at the next full campaign.
test.each(CONTROLS)("the sources have what is patched for: $name", ({ patches }) => {
  const counts = patches.map(
    ({ file, from }) => readFileSync(join(ROOT, file), "utf8").split(from).length - 1,
  );
  expect(counts).toEqual(patches.map(() => 1));
});
