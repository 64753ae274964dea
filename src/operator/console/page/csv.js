import { el } from "./dom.js";

/**
 * A value as RFC 4180 has it. A text that a spreadsheet would take for a formula is led by an apostrophe.
 * @param {string | number | null | undefined} value
 */
function cell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  const harmless = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

/**
 * Hands a table to the browser as a file.
 * @param {string} name of the file
 * @param {string[]} titles
 * @param {(string | number | null | undefined)[][]} rows
 */
export function downloadCsv(name, titles, rows) {
  const lines = [titles, ...rows].map((row) => `${row.map(cell).join(",")}\r\n`);
  const url = URL.createObjectURL(new Blob(lines, { type: "text/csv;charset=utf-8" }));
  el("a", { href: url, download: name }).click();
  // The browser has begun to read it when this runs.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
