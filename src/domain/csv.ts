export const csvLine = (cells: readonly (string | number | null)[]): string =>
  `${cells.map(csvCell).join(",")}\r\n`;

/** Where a spreadsheet may take what follows for a formula: at the beginning, and after what may end a cell. As in console/page/table.js. */
const FORMULA = /(^|[;\t\r\n])(?=[" \u00a0]{0,20}[=+\-@＝＋－＠])/g;

/** A text is quoted, and an apostrophe leads what could be a formula. A value that is not known is empty. */
function csvCell(value: string | number | null): string {
  if (value === null || value === "") return "";
  if (typeof value === "number") return String(value);
  const lead = /^[\t\r\n]/.test(value) ? "'" : "";
  return `"${lead}${value.replace(FORMULA, "$1'").replaceAll('"', '""')}"`;
}
