import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ATTACKS } from "../../attack/attacks/index.ts";
import { CONTROLS } from "../../attack/controls.ts";
import { ROOT } from "../../fault/world.ts";

// Guarantee: code that moved on takes its seeded bugs along, and not only at the next full campaign.
test.each(CONTROLS)("the sources have what is patched for, and an attack: $name", ({ patches, attack }) => {
  const counts = patches.map(
    ({ file, from }) => readFileSync(join(ROOT, file), "utf8").split(from).length - 1,
  );
  expect(counts).toEqual(patches.map(() => 1));
  expect(ATTACKS.map(({ name }) => name)).toContain(attack);
});
