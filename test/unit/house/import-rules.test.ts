import { spawnSync } from "node:child_process";
import { globSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "../../..");
const BIOME = join(ROOT, "node_modules/.bin/biome");

/** Imports that each room may have, as docs/ARCHITECTURE.md lists them, in an order in which no room comes before one it imports. */
const MAY_IMPORT: Record<string, string[]> = {
  domain: [],
  telemetry: [],
  api: ["domain"],
  upstream: ["domain", "telemetry"],
  config: ["domain", "telemetry", "upstream"],
  records: ["domain"],
  scripts: ["domain", "records"],
  redis: ["domain", "telemetry", "records", "scripts"],
  durability: ["domain", "telemetry", "records", "scripts", "redis"],
  settlement: ["domain", "telemetry", "upstream", "records", "scripts", "redis", "durability"],
  gateway: ["domain", "telemetry", "config", "upstream", "records", "scripts", "redis", "settlement"],
  operations: ["domain", "telemetry", "records", "scripts", "redis", "durability"],
  ledger: ["domain", "records", "scripts", "redis", "durability", "operations"],
  archive: ["domain", "telemetry", "records", "scripts", "redis", "operations", "ledger"],
  webhooks: ["domain", "telemetry", "upstream", "records", "scripts", "redis", "operations"],
  checks: [
    "domain",
    "telemetry",
    "config",
    "upstream",
    "records",
    "redis",
    "durability",
    "operations",
    "archive",
  ],
  admin: [
    "domain",
    "telemetry",
    "api",
    "config",
    "records",
    "redis",
    "gateway",
    "operations",
    "ledger",
    "archive",
    "webhooks",
    "checks",
  ],
  commands: [
    "domain",
    "telemetry",
    "config",
    "upstream",
    "records",
    "redis",
    "durability",
    "operations",
    "ledger",
    "archive",
    "checks",
    "admin",
  ],
  jobs: [
    "domain",
    "telemetry",
    "config",
    "upstream",
    "scripts",
    "redis",
    "durability",
    "settlement",
    "operations",
    "ledger",
    "archive",
    "webhooks",
  ],
  process: [
    "domain",
    "telemetry",
    "config",
    "redis",
    "durability",
    "settlement",
    "gateway",
    "operations",
    "ledger",
    "webhooks",
    "admin",
    "jobs",
  ],
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
  { folder, name: "cli", line: 'export * from "../cli.ts";' },
  { folder, name: "ioredis", line: 'import "ioredis";' },
  { folder, name: "undici", line: 'import "undici";' },
  { folder, name: "files", line: 'import "node:fs";' },
  { folder, name: "own names", line: 'export * from "../records/names.ts";' },
  { folder, name: "own scripts", line: 'export * from "../scripts/all.ts";' },
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

  test("no circle of rooms: each imports only rooms that stand before it", () => {
    for (const [nth, folder] of FOLDERS.entries())
      expect(MAY_IMPORT[folder]?.filter((other) => !FOLDERS.slice(0, nth).includes(other))).toEqual([]);
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
      expect(["type", "dynamic", "main", "cli"].filter((name) => !isRefused(folder, name))).toEqual([]);
    },
  );

  test("ioredis is known from the records on, and files are read outside the domain", () => {
    expect(FOLDERS.filter((folder) => !isRefused(folder, "ioredis"))).toEqual([
      "records",
      "redis",
      "durability",
      "settlement",
      "operations",
      "ledger",
      "archive",
      "checks",
      "commands",
      "sandbox",
    ]);
    expect(FOLDERS.filter((folder) => !isRefused(folder, "undici"))).toEqual([
      "upstream",
      "webhooks",
      "commands",
    ]);
    expect(isRefused("domain", "files")).toBe(true);
  });

  test("commands have no Redis names and scripts of their own", () => {
    expect(["own names", "own scripts"].map((name) => isRefused("commands", name))).toEqual([true, true]);
    expect(["own names", "own scripts"].map((name) => isRefused("ledger", name))).toEqual([false, false]);
  });
});

describe("no room is a heap", () => {
  const heapsIn = (lines: ReadonlyMap<string, number>): string[] => {
    const perFolder = Map.groupBy(lines.keys(), dirname);
    return [
      ...[...perFolder].filter(([, files]) => files.length > 40).map(([folder]) => folder),
      ...[...lines].filter(([, count]) => count > 400).map(([file]) => file),
    ];
  };

  test("no folder has more than 40 files, and no file more than 400 lines", () => {
    const files = globSync("{src,lua}/**/*.{ts,js,lua}", { cwd: ROOT });
    expect(files.length).toBeGreaterThan(400);
    const lines = files.map(
      (file) => [file, readFileSync(join(ROOT, file), "utf8").split("\n").length - 1] as const,
    );
    expect(heapsIn(new Map(lines))).toEqual([]);
  });

  test("a full folder and a long file are found", () => {
    const many = Array.from({ length: 41 }, (_, nth) => [`lua/${nth}.lua`, 50] as const);
    expect(heapsIn(new Map([...many, ["src/long.ts", 401], ["src/short.ts", 400]]))).toEqual([
      "lua",
      "src/long.ts",
    ]);
  });
});
