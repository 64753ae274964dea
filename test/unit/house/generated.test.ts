import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { GENERATED } from "../../../tools/generated.ts";

const ROOT = join(import.meta.dirname, "../../..");

test.each(GENERATED)("$file is what `npm run generate` writes", async ({ file, text }) => {
  expect(readFileSync(join(ROOT, file), "utf8")).toBe(await text());
});
