import { existsSync, globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "commander";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { tollgateProgram } from "../../../src/commands/program.ts";
import { createMetrics } from "../../../src/telemetry/metrics.ts";
import { spansOf } from "../../operators/guide/blocks.ts";

// Guarantee: what the pages name in their sentences exists: commands and their options, metrics, settings and files. Commands in
// blocks of their own run in test/operators/guide.test.ts.

const ROOT = join(import.meta.dirname, "../../..");
const read = (file: string): string => readFileSync(join(ROOT, file), "utf8");
const PAGES = globSync("{README,CONTRIBUTING,SECURITY}.md", { cwd: ROOT }).concat(
  globSync("docs/{,operations/}*.md", { cwd: ROOT }).filter((page) => !page.endsWith("cli.md")),
);

/** Faults of `tollgate ...` in a sentence; `...` and words in capitals stand for arguments. */
function commandFaults(span: string): string[] {
  const words = span.split(/\s+/).slice(1);
  let command: Command = tollgateProgram();
  while (command.commands.length > 0 && words.length > 0) {
    const next = command.commands.find((one) => one.name() === words[0]);
    if (!next) return [`${span}: \`${command.name()}\` has no \`${words[0]}\``];
    command = next;
    words.shift();
  }
  if (command.registeredArguments.length === 0 && /^\w/.test(words[0] ?? ""))
    return [`${span}: \`${command.name()}\` takes no ${words[0]}`];
  const known = ["--help", "--version", ...command.options.flatMap(({ long, short }) => [long, short])];
  return words
    .filter((word) => word.startsWith("--") && !known.includes(word.split("=")[0]))
    .map((word) => `${span}: no option ${word}`);
}

const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
const { services } = parse(read("compose.yaml")) as { services: Record<string, unknown> };

/** Other names in a sentence that do not exist: a file of ours, an npm script, a service of Compose, a unit of systemd. */
function nameFaults(span: string): string[] {
  const faults: string[] = [];
  const [, script] = /^npm run (?:-s )?([\w:-]+)/.exec(span) ?? [];
  if (script !== undefined && !(script in scripts)) faults.push(`no script ${script}`);
  const [, service] = /^docker compose (?:logs|kill|stop|exec|up) (?:-\S+ )*([\w-]+)/.exec(span) ?? [];
  if (service !== undefined && !(service in services)) faults.push(`no service ${service}`);
  const [, unit] = /^systemctl (?:\w+) ([\w-]+)/.exec(span) ?? [];
  const isOurs = ["", "@"].some((kind) => existsSync(join(ROOT, `deploy/systemd/${unit}${kind}.service`)));
  if (unit !== undefined && !isOurs) faults.push(`no unit ${unit}`);
  const [file] = /^(?:src|test|config|deploy|docs|lua|tools|bench)\/[\w./-]+$/.exec(span) ?? [];
  if (file !== undefined && !existsSync(join(ROOT, file))) faults.push(`no file ${file}`);
  return faults;
}

const metricNames: ReadonlySet<string> = new Set(
  (await createMetrics().registry.getMetricsAsJSON()).flatMap(({ name, type }) => [
    name,
    ...(String(type) === "histogram" ? ["_bucket", "_count", "_sum"].map((part) => name + part) : []),
  ]),
);

/** Metrics of a span that no gateway has. A name that is only begun, as in `tollgate_(store|config)_`, is a pattern. */
const metricFaults = (span: string): string[] =>
  [...span.matchAll(/\b(?:tollgate|nodejs|process)_[a-z0-9_]+(?![a-z0-9_*(])/g)]
    .map(([name]) => name)
    .filter((name) => !metricNames.has(name) && !name.endsWith("_"));

const settings = parse(read("config/tollgate.yaml")) as Record<string, Record<string, unknown>>;
const schema = JSON.parse(read("config/tollgate.schema.json")) as {
  properties: Record<string, { properties?: Record<string, unknown> }>;
};

/** Settings of a span that there are not, such as `store.jurnal: 1`. */
const settingFaults = (span: string): string[] => {
  const [, section = "", name = ""] = /^([a-z]+)\.([a-z_]+)(?:: .*)?$/.exec(span) ?? [];
  const isFile = /^(json|yaml|md|ts|js|sh|conf|env|acl|pem|key|rdb|csv|ndjson|log|jsonl|txt|test|d)$/.test(
    name,
  );
  if (!(section in settings) || isFile) return [];
  return name in (schema.properties[section]?.properties ?? {}) ? [] : [span];
};

/** The sources, with texts of several lines as one. */
const sources = globSync("src/**/*.ts", { cwd: ROOT })
  .map((file) => read(file).replaceAll(/" \+\s+["`]/g, ""))
  .join("\n");

/** Sentences of an alert's section that no line of the log has. */
const messageFaults = (span: string): string[] =>
  /^(?!docker |kubectl )[a-z]+(?: [a-z']+){2,}$/.test(span) && !sources.includes(span) ? [span] : [];

describe.each(PAGES)("%s", (page) => {
  const spans = spansOf(read(page));
  test("names commands and options that exist", () => {
    expect(spans.filter((span) => /^tollgate [a-z]/.test(span)).flatMap(commandFaults)).toEqual([]);
  });
  test("names metrics that exist", () => {
    expect(spans.flatMap(metricFaults)).toEqual([]);
  });
  test("names files, scripts, services and units that exist", () => {
    expect(spans.flatMap(nameFaults)).toEqual([]);
  });
  if (page.includes("/alerts-")) {
    test("quotes messages that the code has", () => {
      expect(spans.flatMap(messageFaults)).toEqual([]);
    });
  }
  test("names settings that exist", () => {
    expect(spans.flatMap(settingFaults)).toEqual([]);
  });
});

test("what does not exist is found", () => {
  const page =
    "`tollgate config show`, `tollgate keys set KEY --tear NAME`, `tollgate audit list`, `tollgate_event_loop`, `store.jurnal: 1`";
  const spans = spansOf(page);
  expect(spans.slice(0, 3).flatMap(commandFaults)).toEqual([
    "tollgate config show: `config` has no `show`",
    "tollgate keys set KEY --tear NAME: no option --tear",
    "tollgate audit list: `audit` takes no list",
  ]);
  expect(spans.flatMap(metricFaults)).toEqual(["tollgate_event_loop"]);
  expect(spans.flatMap(settingFaults)).toEqual(["store.jurnal: 1"]);
  const names = [
    "npm run servee",
    "docker compose logs --no-log-prefix gatway",
    "systemctl stop tollgate-redi@redis",
  ];
  expect([...names, "deploy/rediss"].flatMap(nameFaults)).toHaveLength(4);
  expect(["the ledger could not be verified", "the ledger was not verified"].flatMap(messageFaults)).toEqual([
    "the ledger was not verified",
  ]);
  expect(metricFaults("`tollgate_store_up` and `tollgate_upstream_duration_seconds_count`")).toEqual([]);
});
