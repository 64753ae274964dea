import type { Run } from "./machine.ts";
import type { Outcome, Table } from "./scenario.ts";
import type { Verdict } from "./targets.ts";

/** An outcome with the title of its scenario. */
export type Shown = Outcome & { title: string };

export interface Results {
  run: Run;
  outcomes: Record<string, Shown>;
}

/** One scenario, for a terminal. */
export function printOutcome({ title, method, tables, disturbed }: Shown): void {
  const lines = [`\n${title}`, method, ...tables.flatMap((table) => ["", ...aligned(table)])];
  if (disturbed.length > 0) lines.push("", "! disturbed:", ...disturbed.map((line) => `  ${line}`));
  process.stdout.write(`${lines.join("\n")}\n`);
}

/** All targets of what was run. */
export function printSummary({ run, outcomes }: Results): void {
  const rows = Object.values(outcomes).flatMap(({ verdicts }) => verdicts.map(verdictRow));
  const table = { columns: ["target", "reached", ""], rows };
  const head = `\nTargets (commit ${run.commit}; ${run.machine})`;
  process.stdout.write(`${[head, ...aligned(table)].join("\n")}\n`);
}

const verdictRow = ({ target, reached, met }: Verdict): string[] => [
  target,
  reached,
  met === undefined ? "?" : met ? "met" : "MISSED",
];

/** True if all cells of a column are figures. */
export const isFigures = (cells: readonly string[]): boolean =>
  cells.every((cell) => /^(-?[\d.]+( x)?)?$/.test(cell));

/** Columns of figures to the right, columns of words to the left. */
function aligned({ columns, rows }: Table): string[] {
  const shapes = columns.map((title, at) => {
    const cells = rows.map((row) => row[at] ?? "");
    const width = Math.max(title.length, ...cells.map((cell) => cell.length));
    return (text: string) => (isFigures(cells) ? text.padStart(width) : text.padEnd(width));
  });
  const line = (cells: string[]) =>
    cells
      .map((cell, at) => shapes[at]!(cell))
      .join("  ")
      .trimEnd();
  return [line(columns), ...rows.map(line)];
}
