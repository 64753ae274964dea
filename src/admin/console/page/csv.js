import { el } from "./dom.js";

/** Where a spreadsheet may take what follows for a formula: at the beginning, and behind what another one takes for the end of a cell. */
const FORMULA = /(^|[;\t\r\n])(?=[" \u00a0]{0,20}[=+\-@＝＋－＠])/g;

/**
 * A value as RFC 4180 has it. A text is quoted, and an apostrophe leads what could be a formula.
 * @param {string | number | null | undefined} value
 */
function cell(value) {
  if (value === null || value === undefined || value === "") return "";
  if (typeof value === "number") return String(value);
  const lead = /^[\t\r\n]/.test(value) ? "'" : "";
  return `"${lead}${value.replace(FORMULA, "$1'").replaceAll('"', '""')}"`;
}

/**
 * Hands a table to the browser as a file.
 * @param {string} name of the file
 * @param {string[]} titles
 * @param {(string | number | null | undefined)[][]} rows
 */
export function downloadCsv(name, titles, rows) {
  const lines = [titles.join(","), ...rows.map((row) => row.map(cell).join(","))].map(
    (line) => `${line}\r\n`,
  );
  const url = URL.createObjectURL(new Blob(lines, { type: "text/csv;charset=utf-8" }));
  el("a", { href: url, download: name }).click();
  // The browser has begun to read it when this runs.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
