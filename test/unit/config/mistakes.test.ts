import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { Settings } from "typebox/system";
import { expect, test } from "vitest";
import { loadConfig } from "../../support/load-config.ts";
import { configOf, errorOf } from "./support.ts";

const FOLDER = path.join(import.meta.dirname, "fixtures");
/** Files that the linter cannot parse either are kept from it as `.yaml.txt`. */
const FIXTURES = readdirSync(FOLDER).filter((name) => /\.yaml(\.txt)?$/.test(name));

/** A fixture ends with the lines that it must give, each behind `#> `; its folder is left out of them. */
function expectedLines(name: string): string[] {
  const lines = readFileSync(path.join(FOLDER, name), "utf8").split("\n");
  return lines.filter((line) => line.startsWith("#> ")).map((line) => line.slice(3));
}

test.each(FIXTURES)("%s is refused in the words that it ends with", (name) => {
  const error = errorOf(() => loadConfig({ env: {}, file: path.join(FOLDER, name) }));
  const folder = `${path.relative(process.cwd(), FOLDER)}${path.sep}`;
  const expected = expectedLines(name);
  expect(error.message.replaceAll(folder, "").split("\n")).toEqual(expected);
  expect(error.problems).toHaveLength(expected.length);
  expect(expected.length).toBeGreaterThan(0);
});

test("a problem says file, path, line and message apart", () => {
  const file = path.join(FOLDER, "unknown-key.yaml");
  expect(errorOf(() => loadConfig({ env: {}, file })).problems).toEqual([
    {
      file: path.relative(process.cwd(), file),
      path: "server.prot",
      line: 2,
      message: "is unknown; did you mean port?",
    },
  ]);
});

test("checking a config leaves typebox's own limit of problems as it was", () => {
  const before = Settings.Get().maxErrors;
  errorOf(() => loadConfig({ env: {}, file: path.join(FOLDER, "everything-at-once.yaml") }));
  expect(Settings.Get().maxErrors).toBe(before);
});

test.each(["__proto__: { server: { port: 1 } }", "constructor: 1", "server: { __proto__: { port: 1 } }"])(
  "%s is an unknown key like any other",
  (content) => {
    expect(errorOf(() => configOf(content)).message).toMatch(/is unknown/);
  },
);

// Guarantee: a running gateway does not end because of it.
test.each([
  "a: &a [*a]",
  "server: &a { tls: *a }",
  "confirm_price_changes: &a { a: *a }",
  "? [server]\n: 1",
  `${"[".repeat(20_000)}`,
  "&a server: { port: *a }",
  "server: !!omap [ port: 1 ]",
  "!!omap [ server: { port: 1 } ]",
  "server: !!set { port }",
])("odd YAML ends in a ConfigError: %.20s", (content) => {
  expect(errorOf(() => configOf(content)).problems.length).toBeGreaterThan(0);
});

test("an anchor may be used again", () => {
  const { tiers } = configOf(`
tiers:
  standard: &default { rate_limit: 5, max_concurrent: 1, daily_limit: 9 }
  partner: *default
`);
  expect(tiers.partner).toEqual({ rate_limit: 5, max_concurrent: 1, daily_limit: 9 });
  const error = errorOf(() => configOf("tiers:\n  standard: &d { rate_limit: 5 }\n  partner: *d\n"));
  expect(error.problems.map(({ path, line }) => [path, line])).toEqual([
    ["tiers.standard.max_concurrent", 2],
    ["tiers.standard.daily_limit", 2],
    ["tiers.partner.max_concurrent", 3],
    ["tiers.partner.daily_limit", 3],
  ]);
});

// Guarantee: what the schema refuses is refused, however much else is wrong, and the list of it has a bound.
test.each([30, 120, 1200])("%i unknown settings hide no broken one, and the list has a bound", (count) => {
  const unknown = Array.from({ length: count }, (_, at) => `  setting_${at}: 1`).join("\n");
  const { problems, message } = errorOf(() => configOf(`server:\n${unknown}\n  max_header_lines: x\n`));
  expect(message).toContain("server.setting_0: is unknown");
  expect(message).toContain('server.max_header_lines: must be a whole number, not "x"');
  expect(message.includes("has more problems than are listed here")).toBe(count > 50);
  expect(problems).toHaveLength(count > 50 ? 52 : count + 1);
});
