import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "../../..");
const BIOME = join(ROOT, "node_modules/.bin/biome");

/** What each folder may import, as docs/ARCHITECTURE.md has it; main.ts and cli.ts compose everything. */
const MAY_IMPORT: Record<string, string[]> = {
  domain: [],
  telemetry: [],
  config: ["domain", "telemetry"],
  store: ["domain", "telemetry"],
  upstream: ["domain", "telemetry"],
  ledger: ["domain", "store", "telemetry"],
  settlement: ["domain", "store", "upstream", "telemetry"],
  gateway: ["domain", "config", "store", "upstream", "settlement", "telemetry"],
  operator: ["domain", "config", "store", "upstream", "settlement", "ledger", "gateway", "telemetry"],
  commands: ["domain", "config", "store", "upstream", "settlement", "ledger", "telemetry"],
  sandbox: ["domain"],
};
const FOLDERS = Object.keys(MAY_IMPORT);

/** Lines that stand alone in a file of `folder`, each named. */
const FIXTURES: { folder: string; name: string; line: string }[] = FOLDERS.flatMap((folder) => [
  ...FOLDERS.filter((other) => other !== folder).map((other) => ({
    folder,
    name: other,
    line: `export * from "../${other}/some.ts";`,
  })),
  { folder, name: "own", line: 'export * from "./other.ts";' },
  { folder, name: "type", line: 'export type { A } from "../sandbox/a.ts";' },
  { folder, name: "dynamic", line: 'export const a = import("../sandbox/a.ts");' },
  { folder, name: "main", line: 'export * from "../main.ts";' },
  { folder, name: "start", line: 'export * from "../start-gateway.ts";' },
  { folder, name: "ioredis", line: 'import "ioredis";' },
  { folder, name: "undici", line: 'import "undici";' },
  { folder, name: "files", line: 'import "node:fs";' },
  { folder, name: "names", line: 'export * from "../store/names.ts";' },
  { folder, name: "scripts", line: 'export * from "../store/scripts/all.ts";' },
]);

/** `folder/name` of every fixture that the import rules of biome.json refuse. */
function refusedFixtures(): Set<string> {
  const tree = mkdtempSync(join(tmpdir(), "tollgate-import-rules-"));
  const rules = JSON.parse(readFileSync(join(ROOT, "biome.json"), "utf8"));
  writeFileSync(join(tree, "biome.json"), JSON.stringify({ ...rules, vcs: { enabled: false } }));
  for (const { folder, name, line } of FIXTURES) {
    mkdirSync(join(tree, "src", folder), { recursive: true });
    writeFileSync(join(tree, "src", folder, `${name}.ts`), `${line}\n`);
  }
  const flags = ["lint", "--only=style/noRestrictedImports", "--reporter=json", "--max-diagnostics=none"];
  const { stdout } = spawnSync(BIOME, flags, { cwd: tree, encoding: "utf8" });
  rmSync(tree, { recursive: true });
  const { summary, diagnostics } = JSON.parse(stdout) as {
    summary: { unchanged: number };
    diagnostics: { category: string; location: { path: string } }[];
  };
  // A run over no files would refuse nothing, too.
  expect(summary.unchanged).toBeGreaterThanOrEqual(FIXTURES.length);
  return new Set(diagnostics.map(({ location }) => location.path.replace(/^.*src\//, "").replace(".ts", "")));
}

describe("import rules", () => {
  const refused = refusedFixtures();
  const isRefused = (folder: string, name: string): boolean => refused.has(`${folder}/${name}`);

  test("every folder under src has its rule here", () => {
    const found = readdirSync(join(ROOT, "src"), { withFileTypes: true }).filter((entry) =>
      entry.isDirectory(),
    );
    expect(found.map((entry) => entry.name).sort()).toEqual([...FOLDERS].sort());
  });

  test.each(FOLDERS)(
    "%s imports its own files and those it may, and is refused every other folder",
    (folder) => {
      const others = FOLDERS.filter((other) => other !== folder);
      expect(others.filter((other) => isRefused(folder, other))).toEqual(
        others.filter((other) => !MAY_IMPORT[folder]?.includes(other)),
      );
      expect(isRefused(folder, "own")).toBe(false);
    },
  );

  test.each(FOLDERS.filter((folder) => folder !== "sandbox"))(
    "%s can import the sandbox in no form",
    (folder) => {
      expect(["type", "dynamic", "main", "start"].filter((name) => !isRefused(folder, name))).toEqual([]);
    },
  );

  test("Redis is spoken to in the store and the ledger, and files are read outside the domain", () => {
    expect(FOLDERS.filter((folder) => !isRefused(folder, "ioredis"))).toEqual([
      "store",
      "ledger",
      "commands",
      "sandbox",
    ]);
    expect(FOLDERS.filter((folder) => !isRefused(folder, "undici"))).toEqual(["upstream", "commands"]);
    expect(isRefused("domain", "files")).toBe(true);
  });

  test("commands have no Redis names and scripts of their own", () => {
    expect(["names", "scripts"].map((name) => isRefused("commands", name))).toEqual([true, true]);
    expect(["names", "scripts"].map((name) => isRefused("ledger", name))).toEqual([false, false]);
  });
});
