import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { givenExample } from "./example.ts";
import { type ArchiveStage, givenArchiveStage } from "./stage.ts";

interface Panel {
  title: string;
  type: string;
  targets: { rawSql: string }[];
}

const { panels, templating } = JSON.parse(
  readFileSync(join(import.meta.dirname, "../../config/grafana/usage.json"), "utf8"),
) as { panels: Panel[]; templating: { list: { name: string; query: string }[] } };

let stage: ArchiveStage;
beforeAll(async () => {
  stage = await givenArchiveStage();
  await givenExample(stage);
  await (await stage.copier()).copy();
});
afterAll(() => stage.stop());

/** Runs a panel's query as Grafana sends it, for October 2025. */
function answerOf(title: string, accounts: readonly string[]): Promise<Record<string, unknown>[]> {
  const { rawSql } = panels.find((panel) => panel.title === title)!.targets[0]!;
  const sql = rawSql
    .replaceAll("$__timeFrom()", "'2025-10-01T00:00:00Z'")
    .replaceAll("$__timeTo()", "'2025-10-31T23:59:59.999Z'")
    .replaceAll("$account", accounts.map((id) => `'${id}'`).join(","));
  expect(sql).not.toContain("$");
  return stage.database.query(sql);
}

const BOTH = ["acme", "globex"];

describe("the dashboard on the archive", () => {
  test("its variable lists the accounts", async () => {
    const { query } = templating.list.find(({ name }) => name === "account")!;
    expect(await stage.database.query(query)).toEqual([{ account_id: "acme" }, { account_id: "globex" }]);
  });

  test.each(panels.map(({ title, type }) => [title, type]))(
    "%s: its query answers (%s)",
    async (title, type) => {
      const rows = await answerOf(title, BOTH);
      expect(rows.length).toBeGreaterThan(0);
      if (type === "timeseries") expect(rows.every(({ time }) => time instanceof Date)).toBe(true);
      if (type === "stat") expect(rows).toHaveLength(1);
    },
  );

  test("figures are those of the time and the accounts that were chosen", async () => {
    expect(await answerOf("Credits used", BOTH)).toEqual([{ credits: "70" }]);
    expect(await answerOf("Credits used", ["globex"])).toEqual([{ credits: "0" }]);
    expect(await answerOf("Credits bought", BOTH)).toEqual([{ credits: "200" }]);
    expect(await answerOf("Credits owned now", ["globex"])).toEqual([{ credits: "70" }]);
    expect(Number((await answerOf("Failed tasks", BOTH))[0]!.failed)).toBeCloseTo(2 / 6);
    const days = await answerOf("Requests and ended tasks a day", BOTH);
    expect(days.map(({ time }) => (time as Date).toISOString())).toEqual(
      ["2025-10-01", "2025-10-02", "2025-10-17"].map((day) => `${day}T00:00:00.000Z`),
    );
    const kinds = await answerOf("Purchases, refunds and adjustments", BOTH);
    expect(kinds.map(({ kind }) => kind)).toEqual(["refund", "refund", "purchase"]);
  });
});
