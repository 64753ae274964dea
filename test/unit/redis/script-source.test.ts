import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { createScriptReader } from "../../../src/redis/script-source.ts";

// An upgrade replaced the files under a running gateway, which then sent old arguments to new scripts.
test("scripts that are replaced after the first use stay those of the process", () => {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-scripts-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, "include"));
  writeFileSync(join(folder, "one.lua"), "first");
  writeFileSync(join(folder, "include/two.lua"), "first");
  const read = createScriptReader(folder);
  expect(read("one")).toBe("first");
  writeFileSync(join(folder, "include/two.lua"), "second");
  expect(read("include/two")).toBe("first");
  expect(createScriptReader(folder)("include/two")).toBe("second");
  expect(() => read("three")).toThrow("there is no three.lua in");
});
