import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openApiText } from "../../../src/api/document.ts";
import { ERROR_NAMES, refuse } from "../../../src/domain/errors.ts";
import { createMetrics } from "../../../src/telemetry/metrics.ts";
import { readDescription } from "../../support/openapi.ts";

const ROOT = join(import.meta.dirname, "../../..");
const read = (file: string): string => readFileSync(join(ROOT, file), "utf8");
const [HEAD = "", ...SECTIONS] = read("docs/errors.md").split(/^## /m);

/** Examples of an error in the API description, whichever operation shows it. */
const EXAMPLES = readDescription(JSON.parse(openApiText())).operations.flatMap(({ answers }) =>
  Object.values(answers).flatMap(({ examples }) => Object.entries(examples)),
);

test("docs/errors.md has one section for each error, in the table's order", () => {
  expect(SECTIONS.map((section) => section.split("\n")[0])).toEqual(ERROR_NAMES.map((name) => `\`${name}\``));
});

test.each(ERROR_NAMES)(
  "the section %s has status, code and text of the table, and says what to do",
  (name) => {
    const section = SECTIONS.find((each) => each.startsWith(`\`${name}\``)) ?? "";
    const { status, code, text } = refuse(name);
    expect(section.replaceAll(/\s+/g, " ")).toContain(`HTTP ${status}, code ${code}: "${text}"`);
    for (const part of ["Meaning", "Customer", "Operator"])
      expect(section).toMatch(new RegExp(`^\\*\\*${part}\\.\\*\\* \\S.{5}`, "m"));
  },
);

test.each(ERROR_NAMES)("the body that %s shows is one of the API description", (name) => {
  const section = SECTIONS.find((each) => each.startsWith(`\`${name}\``)) ?? "";
  const shown = JSON.parse(/```json\n([\s\S]*?)```/.exec(section)?.[1] ?? "null");
  const documented = EXAMPLES.flatMap(([example, { value }]) => (example === name ? [value] : []));
  expect(documented).toContainEqual(shown);
});

test("the index lists every outcome under its code", () => {
  const listed = [...HEAD.matchAll(/^\| (\d+) \| (.*) \|$/gm)].flatMap(([, code, outcomes = ""]) =>
    [...outcomes.matchAll(/\[(\w+)\]/g)].map(([, name]) => `${code} ${name}`),
  );
  expect(listed.sort()).toEqual(ERROR_NAMES.map((name) => `${refuse(name).code} ${name}`).sort());
});

test("outcomes that are no errors are those that the code has", () => {
  const [, names = ""] = HEAD.split("Outcomes that are no errors:");
  const source = globSync("src/{domain,gateway}/*.ts", { cwd: ROOT }).map(read).join("\n");
  const listed = [...names.matchAll(/`(\w+)`[;,.:]/g)].map(([, name = ""]) => name);
  expect(listed.length).toBeGreaterThan(3);
  expect(listed.filter((name) => !source.includes(`"${name}"`))).toEqual([]);
});

test("every metric that is named exists", async () => {
  const metrics = await createMetrics().registry.getMetricsAsJSON();
  const known = new Set(metrics.map(({ name }) => name));
  const named = [...SECTIONS.join(), HEAD].join("").matchAll(/tollgate_\w+/g);
  const missing = [...named].filter(([name]) => !known.has(name.replace(/_count$/, "")) && !known.has(name));
  expect(missing.map(([name]) => name)).toEqual([]);
});
