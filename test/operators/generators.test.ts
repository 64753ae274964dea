import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, readdir, rm } from "node:fs/promises";
import { delimiter, dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, expect, test } from "vitest";

const ROOT = resolve(import.meta.dirname, "../..");
const DOCUMENT = join(ROOT, "docs/openapi.json");
/** Below the packages that generated clients import. */
const FOLDER = join(ROOT, `node_modules/.generated-clients-${process.pid}`);
const BINARIES = ["test/generators/node_modules/.bin", "node_modules/.bin"].map((path) => join(ROOT, path));
/** As strict as a customer's project usually is. */
const TSC = [
  ...["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--lib", "es2022,dom,dom.iterable"],
  ...["--module", "esnext", "--moduleResolution", "bundler"],
];

afterAll(() => rm(FOLDER, { recursive: true, force: true }));

/** Runs a program of the packages in test/generators with this Node. @throws with what it prints when it fails */
async function run(name: string, args: readonly string[]): Promise<void> {
  const file = BINARIES.map((folder) => join(folder, name)).find((path) => existsSync(path));
  if (file === undefined) throw new Error(`${name} is not installed; run npm ci`);
  const PATH = [dirname(process.execPath), process.env.PATH].join(delimiter);
  const env = { ...process.env, PATH };
  await promisify(execFile)(file, args, { cwd: FOLDER, env }).catch((error: Error & { stdout?: string }) => {
    throw new Error(`${name}: ${error.message}\n${error.stdout ?? ""}`.slice(0, 4000));
  });
}

const GENERATORS: readonly [name: string, args: (folder: string) => string[]][] = [
  ["openapi-typescript", (folder) => [DOCUMENT, "--output", join(folder, "client.ts")]],
  ["openapi-ts", (folder) => ["-i", DOCUMENT, "-o", folder]],
  ["orval", (folder) => ["--input", DOCUMENT, "--output", join(folder, "client.ts"), "--client", "fetch"]],
  ["openapi", (folder) => ["--input", DOCUMENT, "--output", folder]],
  ["swagger-typescript-api", (folder) => ["generate", "-p", DOCUMENT, "-o", folder, "-n", "client.ts"]],
  ["oazapfts", (folder) => [DOCUMENT, join(folder, "client.ts")]],
];

// Guarantee: customers can generate a client from the description, with the generator that they have.
test.each(GENERATORS)("%s generates a client, and it compiles", async (name, args) => {
  const folder = join(FOLDER, name);
  await mkdir(folder, { recursive: true });
  await run(name, args(folder));
  const written = await readdir(folder, { recursive: true });
  const sources = written.filter((path) => path.endsWith(".ts")).map((path) => join(folder, path));
  expect(sources).not.toEqual([]);
  await run("tsc", [...TSC, ...sources]);
});
