import { describe, expect, test } from "vitest";
import { csvLine } from "../../../src/domain/operator-texts.ts";

describe("a line of CSV", () => {
  // Guarantee: whoever opens an export in a spreadsheet runs nothing that a reference or a label says.
  test.each(["=1+1", "+1", "-1", "@SUM(A1)", "\tcmd", "\rcmd", '=HYPERLINK("https://a.example")'])(
    "has no text that a spreadsheet takes for a formula: %j",
    (text) => {
      expect(csvLine([text]).replace(/^"/, "")).toMatch(/^'/);
      expect(csvLine([text]).replaceAll(/["\r\n]/g, "")).toBe(`'${text.replaceAll(/["\r\n]/g, "")}`);
    },
  );

  test("has numbers as they are, negative ones too, and all other texts", () => {
    expect(csvLine([-30, 5, "a=b", "a-1", null, ""])).toBe('-30,5,"a=b","a-1",,\r\n');
  });

  // Guarantee: also where a spreadsheet separates cells by semicolons, or takes full-width signs for plain ones.
  test.each([
    ["＝1+1", "'＝1+1"],
    ["＋1", "'＋1"],
    ["－1", "'－1"],
    ["＠SUM(A1)", "'＠SUM(A1)"],
    ["a;=1+1", "a;'=1+1"],
    ["a;\u00a0 ＝1", "a;'\u00a0 ＝1"],
    ['a;"=1+1"', `a;'""=1+1""`],
    ["a\n=1+1;@b", "a\n'=1+1;'@b"],
    ["a\t+1", "a\t'+1"],
    ["  =1", "'  =1"],
    ["\n=1", "'\n'=1"],
    ["a;b=c-d", "a;b=c-d"],
    ["a@b.example", "a@b.example"],
  ])("has %j as %j", (text, cell) => expect(csvLine([text])).toBe(`"${cell}"\r\n`));

  test("quotes what RFC 4180 wants quoted", () => {
    expect(csvLine(['a "b", c', "a\nb"])).toBe('"a ""b"", c","a\nb"\r\n');
  });
});
