import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { parseAllDocuments } from "yaml";

const run = promisify(execFile);
const TSC = resolve(import.meta.dirname, "../../../node_modules/.bin/tsc");

/** Fetched by the tests that need it. */
export const KUBERNETES_TYPES = "kubernetes-types@1.30.0";

/** Where `kubernetes-types` has the kinds of an API group. */
const GROUPS: Record<string, string> = {
  v1: "core/v1",
  "apps/v1": "apps/v1",
  "policy/v1": "policy/v1",
  "networking.k8s.io/v1": "networking/v1",
};

/**
 * Checks objects as literals of their kinds' types: unknown, missing and mistyped fields are errors of tsc. Kinds that Kubernetes itself
 * does not have are left out.
 *
 * @param dir where `kubernetes-types` is installed
 */
export async function checkedByTypes(
  dir: string,
  files: readonly string[],
): Promise<{ ok: boolean; text: string }> {
  const texts = await Promise.all(files.map((file) => readFile(file, "utf8")));
  const literals = texts
    .flatMap((text) => parseAllDocuments(text).map((document) => document.toJS()))
    .filter((object) => GROUPS[object?.apiVersion] !== undefined)
    .map((object, at) => {
      const types = `import("kubernetes-types/${GROUPS[object.apiVersion]}.d.ts").${object.kind}`;
      return `export const object${at}: ${types} = ${JSON.stringify(object)};\n`;
    });
  await writeFile(join(dir, "manifests.ts"), literals.join(""));
  const flags = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--ignoreConfig"];
  return run(TSC, [...flags, "--allowImportingTsExtensions", "manifests.ts"], { cwd: dir }).then(
    ({ stdout }) => ({ ok: true, text: stdout }),
    (error: { stdout: string; stderr: string }) => ({ ok: false, text: error.stdout + error.stderr }),
  );
}
