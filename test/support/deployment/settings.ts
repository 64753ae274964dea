import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import type { Config } from "../../../src/config/config.ts";
import { durationMs } from "../../../src/config/setting-types.ts";
import { loadConfig } from "../load-config.ts";

/** The text of a file of the repository; undefined when there is none. A folder reads as empty. */
export type Read = (path: string) => string | undefined;

// biome-ignore lint/suspicious/noExplicitAny: manifests are read as their authors wrote them.
export type Manifest = any;

/** A gateway needs so long after its drain for its connections, journal and workers; src/process/start-gateway.ts, `drain`. */
const CLOSING_MS = 5000;

/** A file that must be there. */
export function text(read: Read, path: string): string {
  const found = read(path);
  if (found === undefined) throw new Error(`${path} is missing`);
  return found;
}

/** All documents of a YAML file. @throws what the parser complains or warns of */
export function documents(read: Read, path: string): Manifest[] {
  return parseAllDocuments(text(read, path), { merge: true }).map((document) => {
    const [problem] = [...document.errors, ...document.warnings];
    if (problem) throw new Error(`${path}: ${problem.message}`);
    return document.toJS();
  });
}

/** The configuration that a gateway makes of a file's text, without any variable set. */
export function configOf(yaml: string): Config {
  const dir = mkdtempSync(join(tmpdir(), "tollgate-deployment-"));
  try {
    const file = join(dir, "tollgate.yaml");
    // A relative price file is looked for beside the file; here the shipped set stands for it.
    writeFileSync(file, yaml.replace(/^prices: prices\/reference.yaml$/m, ""));
    return loadConfig({ env: {}, file });
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/** Problems of the time that a supervisor gives a gateway to end. */
export function graceProblems(where: string, grace: string | number | undefined, config: Config): string[] {
  const graceMs = typeof grace === "number" ? 1000 * grace : durationMs(grace);
  const { drainDelayMs, drainTimeoutMs } = config.server;
  const neededMs = drainDelayMs + drainTimeoutMs + CLOSING_MS;
  if (graceMs !== undefined && graceMs >= neededMs) return [];
  return [`${where}: ${grace} is less than the ${neededMs} ms of drain_delay, drain_timeout and closing`];
}

/** Every variable that a gateway reads: the table of docs/configuration.md, which a house test holds against the code. */
export function knownVariables(read: Read): Set<string> {
  const [, section = ""] = text(read, "docs/configuration.md").split("\n## Environment variables\n");
  const [page = ""] = section.split("\n## ");
  return new Set([...page.matchAll(/^\| `([A-Z_]+)` \|/gm)].map(([, name = ""]) => name));
}

/** Variables that Node.js, its packages and its allocator read. */
const OF_NODE = [
  ...["NODE_ENV", "NODE_EXTRA_CA_CERTS", "NODE_COMPILE_CACHE", "NODE_COMPILE_CACHE_PORTABLE"],
  "MALLOC_ARENA_MAX",
];

/** Names that no gateway reads, so that what they say is silently lost. */
export function unknownVariables(read: Read, where: string, names: Iterable<string>): string[] {
  const known = knownVariables(read);
  for (const name of OF_NODE) known.add(name);
  return [...names].filter((name) => !known.has(name)).map((name) => `${where}: no gateway reads ${name}`);
}

const ROUTES = join(import.meta.dirname, "../../../src/admin");

/** True if the admin port answers a path: some file of the routes names it. */
export const isAdminPath = (path: string): boolean =>
  globSync("*.ts", { cwd: ROUTES }).some((file) =>
    readFileSync(join(ROUTES, file), "utf8").includes(`"${path}"`),
  );

const RUNBOOKS = ["gateway", "redis", "ledger", "webhooks", "upstream"].map(
  (subject) => `docs/operations/alerts-${subject}.md`,
);

/** Alerts whose runbook is not a section of docs/operations, and sections that no alert has. */
export function guideProblems(read: Read): string[] {
  const [{ groups }] = documents(read, "config/prometheus/alerts.yaml");
  // By section: the page that has it.
  const sections = new Map(
    RUNBOOKS.flatMap((page) =>
      [...text(read, page).matchAll(/^### (\w+)$/gm)].map(([, name]): [string, string] => [name!, page]),
    ),
  );
  const rules: Manifest[] = groups
    .flatMap((group: Manifest) => group.rules)
    .filter((rule: Manifest) => rule.alert);
  const names = new Set<string>(rules.map(({ alert }) => alert));
  const right = (name: string) => `${sections.get(name)}#${name.toLowerCase()}`;
  const astray = rules.filter(({ alert, annotations }) => annotations.runbook_url !== right(alert));
  return [
    ...[...names].filter((name) => !sections.has(name)).map((name) => `no section for ${name}`),
    ...[...sections.keys()]
      .filter((name) => name.startsWith("Tollgate") && !names.has(name))
      .map((name) => `no alert ${name}`),
    ...astray.map(({ alert }) => `${alert} sends its reader elsewhere`),
  ];
}
