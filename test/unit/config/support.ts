import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { onTestFinished } from "vitest";
import { type Config, ConfigError } from "../../../src/config/config.ts";
import { loadConfig } from "../../support/load-config.ts";

/** Writes files into a folder of its own, which goes with the test. Answers the path of the first one. */
export function givenFiles(files: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(path.join(tmpdir(), "tollgate-config-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  for (const [name, content] of Object.entries(files)) writeFileSync(path.join(folder, name), content);
  return path.join(folder, Object.keys(files)[0] ?? "");
}

/** The configuration that a file of this content gives. */
export function configOf(content: string, env: Readonly<Record<string, string>> = {}): Config {
  return loadConfig({ env, file: givenFiles({ "tollgate.yaml": content }) });
}

/** The error that loading ends in; fails when it does not. */
export function errorOf(load: () => unknown): ConfigError {
  try {
    load();
  } catch (error) {
    if (error instanceof ConfigError) return error;
    throw error;
  }
  throw new Error("expected a ConfigError");
}
