import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ConfigSchema } from "../../../src/config/schema.ts";
import { startLanguageServer } from "../../support/language-server.ts";

// The real YAML language server, as an editor runs it, on the schemas beside the files.
let server: Awaited<ReturnType<typeof startLanguageServer>>;
beforeAll(async () => {
  server = await startLanguageServer();
});
afterAll(() => server?.stop());

const CONFIG = "# yaml-language-server: $schema=tollgate.schema.json\n";

/** Opens a config file of this content; lines count from 1 then, since the schema's line stands above. */
const open = (content: string) => server.open("config/some.yaml", CONFIG + content);

test.each(["config/tollgate.yaml", "config/prices/reference.yaml", "config/prices/overview.yaml"])(
  "%s has nothing that an editor would mark, and does have its schema",
  async (file) => {
    const text = readFileSync(file, "utf8");
    expect((await server.open(file, text)).diagnostics).toEqual([]);
    const broken = `${text}surplus: 1\n`;
    expect((await server.open(file, broken)).diagnostics).toMatchObject([
      { message: "Property surplus is not allowed." },
    ]);
  },
);

test("names of settings are completed, with their default and what they are about", async () => {
  const { completion } = await open("server:\n  \n");
  const { items } = await completion(2, 2);
  expect(items.map(({ label }) => label)).toEqual(Object.keys(ConfigSchema.properties.server.properties));
  expect(items.find(({ label }) => label === "drain_delay")).toMatchObject({
    insertText: expect.stringMatching(/^drain_delay: .*1s/),
    documentation: expect.stringContaining("after SIGTERM"),
  });
  const sections = await (await open("\n")).completion(1, 0);
  expect(sections.items.map(({ label }) => label).sort()).toEqual(
    Object.keys(ConfigSchema.properties).sort(),
  );
});

test("values are completed where there are a few", async () => {
  const { completion } = await open("store:\n  fallback_strategy: \n");
  const { items } = await completion(2, 21);
  expect(items.map(({ label }) => label)).toEqual(expect.arrayContaining(["deny", "allow"]));
});

test("a setting under the pointer is explained, with what it needs", async () => {
  const { hover } = await open("server:\n  port: 80\n");
  expect(JSON.stringify(await hover(2, 4))).toContain(
    "Port to listen on; 0 picks a free one. A change needs a restart.",
  );
});

test("a typo and a value out of bounds are marked where they stand", async () => {
  const { diagnostics } = await open("server:\n  prot: 80\n  port: 80000\nlog:\n  level: loud\n");
  const found = diagnostics.map(({ range, message }) => `${range.start.line}: ${message}`).sort();
  expect(found).toEqual([
    "2: Property prot is not allowed.",
    expect.stringMatching(/^3: .*65535/),
    expect.stringMatching(/^5: .*"trace"/),
  ]);
});

test("what the gateway accepts is not marked: an empty section, a quoted number, an own tier", async () => {
  const { diagnostics } = await open(
    "server:\nlog:\n  # level: warn\ntiers:\n  standard: { rate_limit: 1, max_concurrent: 1, daily_limit: 1 }\n" +
      "  trial-2: { rate_limit: 1, max_concurrent: 1, daily_limit: 1 }\n",
  );
  expect(diagnostics).toEqual([]);
  const prices = readFileSync("config/prices/reference.yaml", "utf8").replaceAll(/^( +)(\d+):/gm, '$1"$2":');
  expect(prices).toContain('"15":');
  expect((await server.open("config/prices/own.yaml", prices)).diagnostics).toEqual([]);
});
