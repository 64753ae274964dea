import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import type { TestProject } from "vitest/node";

declare module "vitest" {
  export interface ProvidedContext {
    /** Folder of the bundle that the image runs too: a gateway of its own process starts with half of the CPU. */
    bundle: string;
  }
}

/** One bundle per run. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = await mkdtemp(join(tmpdir(), "tollgate-bundle-"));
  const program = resolve(import.meta.dirname, "../../tools/bundle.ts");
  await promisify(execFile)(process.execPath, [program, folder]);
  project.provide("bundle", folder);
  return () => rm(folder, { recursive: true });
}
