import { spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { childEnv } from "../support/child-env.ts";
import { ROOT } from "./world.ts";

/** A change of one file of the source tree: `from` must stand in it exactly once. */
export interface Patch {
  file: string;
  from: string;
  to: string;
}

/** The checker compares histories with the records of refused requests, which stay for ten minutes. A scenario may take longer, or step its clock. */
const RECORDS_FOR_THE_CHECKER: Patch = {
  file: "lua/include/request.lua",
  from: "local REFUSED_KEPT_MS = 600000",
  to: "local REFUSED_KEPT_MS = 604800000",
};

/**
 * Copies what a gateway is run from, so that a run sees one state of the sources, and changes it where asked to.
 * @returns the copy's root
 * @throws when a patch does not apply: the code has moved on, and the patch must too
 */
export function copySources(from: string, folder: string, patches: readonly Patch[] = []): string {
  mkdirSync(folder, { recursive: true });
  for (const part of ["src", "lua", "config", "docs/operations", "package.json"]) {
    cpSync(join(from, part), join(folder, part), { recursive: true });
  }
  symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
  // A copy of a copy has it already.
  const all = from === ROOT ? [RECORDS_FOR_THE_CHECKER, ...patches] : patches;
  for (const { file, from: old, to } of all) {
    const path = join(folder, file);
    const parts = readFileSync(path, "utf8").split(old);
    if (parts.length !== 2) throw new Error(`${file} has ${parts.length - 1} times ${JSON.stringify(old)}`);
    writeFileSync(path, parts.join(to));
  }
  return folder;
}

/**
 * Bundles a copy, as the image is built: its gateways, dozens of which are killed, then start with half of the CPU, and its
 * command line with a quarter.
 */
export async function bundleSources(root: string): Promise<void> {
  cpSync(join(ROOT, "tools/bundle.ts"), join(root, "tools/bundle.ts"));
  const child = spawn(process.execPath, [join(root, "tools/bundle.ts")], {
    env: childEnv(),
    stdio: ["ignore", "ignore", "inherit"],
  });
  const [code] = await once(child, "exit");
  if (code !== 0) throw new Error(`the sources under ${root} cannot be bundled`);
}
