import { readFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { givenExample } from "./example.ts";
import { type ArchiveStage, givenArchiveStage } from "./stage.ts";

const PAGE = join(import.meta.dirname, "../../docs/archive.md");

/** Each question of the page, with its query and the answer below it. */
const QUESTIONS = readFileSync(PAGE, "utf8")
  .split("\n## Questions that finance asks\n")[1]!
  .split("\n## ")[0]!
  .split("\n### ")
  .slice(1)
  .map((section) => {
    const [question = "", ...rest] = section.split("\n");
    const blocks = [...rest.join("\n").matchAll(/^```(\w+)\n([\s\S]*?)^```/gm)];
    const block = (language: string): string => blocks.find(([, name]) => name === language)?.[2] ?? "";
    return { question, sql: block("sql"), answer: block("text") };
  });

let stage: ArchiveStage;
let client: pg.Client;
/** Names of keys, which are random, by their ids. */
let names: Map<string, string>;
beforeAll(async () => {
  stage = await givenArchiveStage();
  const keys = await givenExample(stage);
  names = new Map([...keys].map(([name, { keyId }]) => [keyId, `key_${name.split("/")[1]}`]));
  await (await stage.copier()).copy();
  client = new pg.Client({ connectionString: stage.url });
  await client.connect();
  await client.query("SET TIME ZONE 'UTC'");
});
afterAll(async () => {
  await client.end();
  await stage.stop();
});

/** The answer as psql prints it. */
async function answerTo(sql: string): Promise<string> {
  const types = { getTypeParser: () => String };
  const { fields, rows } = await client.query<string[]>({ text: sql, rowMode: "array", types });
  const cells = rows.map((row) => row.map((value) => names.get(value ?? "") ?? value ?? ""));
  const widths = fields.map(({ name }, at) => Math.max(name.length, ...cells.map((row) => row[at]!.length)));
  const line = (row: readonly string[]): string =>
    ` ${row.map((cell, at) => cell.padEnd(widths[at]!)).join(" | ")}`.trimEnd();
  const rule = widths.map((width) => "-".repeat(width + 2)).join("+");
  const count = `(${rows.length} ${rows.length === 1 ? "row" : "rows"})`;
  return `${[line(fields.map(({ name }) => name)), rule, ...cells.map(line), count].join("\n")}\n`;
}

describe("docs/archive.md", () => {
  test("has these questions", () => {
    expect(QUESTIONS.length).toBeGreaterThanOrEqual(9);
  });

  test.each(QUESTIONS)("$question", async ({ sql, answer }) => {
    expect(answer).toBe(await answerTo(sql));
  });
});
