import { execFile } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "../..");

/** All that a program of node_modules says if it fails, else nothing. */
const complaints = (program: string, ...args: string[]): Promise<string> =>
  new Promise((done) => {
    const options = { cwd: ROOT, maxBuffer: 64e6 };
    execFile(join(ROOT, "node_modules/.bin", program), args, options, (error, stdout, stderr) =>
      done(error ? `${error.message}\n${stdout}${stderr}` : ""),
    );
  });

// With several threads the compiler checks much of it several times, and the other core has tests to run.
test("all types are right", async () => {
  expect(await complaints("tsc", "--noEmit", "--singleThreaded")).toBe("");
});

test("all types of the console's page are right", async () => {
  expect(await complaints("tsc", "--noEmit", "--singleThreaded", "-p", "src/admin/console/page")).toBe("");
});

test("biome finds nothing to mend, in format, rules or imports", async () => {
  expect(await complaints("biome", "check", "--error-on-warnings", "--colors=off", ".")).toBe("");
});
