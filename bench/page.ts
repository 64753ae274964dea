import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { isFigures, type Results, type Shown } from "./report.ts";
import type { Table } from "./scenario.ts";
import { SCENARIOS } from "./scenarios/index.ts";
import { judge, type Verdict } from "./targets.ts";

const PAGE = join(import.meta.dirname, "../docs/performance.md");

/** Writes docs/performance.md from one run: all on it was measured at one commit. */
export function writePage({ run, outcomes }: Results): void {
  // A target that the run has not looked at is on the page all the same.
  const verdicts = Object.entries(SCENARIOS).flatMap(
    ([name, { targets }]) => outcomes[name]?.verdicts ?? targets.map((target) => judge(target, Number.NaN)),
  );
  const missed = verdicts.filter(({ met }) => met === false).length;
  const unknown = verdicts.filter(({ met }) => met === undefined).length;
  const lines = [
    "# Performance",
    "",
    "Written by `npm run bench -- --page` ([how it measures](../bench/README.md)); not edited by hand.",
    "",
    `- **Run** commit ${run.commit}, ${run.startedAt.slice(0, 16).replace("T", " ")} UTC`,
    `- **Machine** ${run.machine}`,
    `- **Versions** ${run.versions}`,
    `- **Method** ${run.rounds} slices of ${run.seconds} s of each program in turn, medians; the program under test alone on one core, load, Redis and upstream on ${run.otherCores}.`,
    "",
    "Absolute times belong to this machine at this hour. What counts are the ratios within one part.",
    "",
    "## Targets",
    "",
    "Each is a ratio to something that you could run instead, or a figure that you need to plan capacity.",
    "",
    `${verdicts.length - missed - unknown} met, ${missed} missed${unknown > 0 ? `, ${unknown} not measured` : ""}.`,
    "",
    ...markdown({
      columns: ["target", "reached", ""],
      rows: verdicts.map(verdictCells),
    }),
    ...Object.values(outcomes).flatMap(section),
  ];
  writeFileSync(PAGE, `${lines.join("\n")}\n`);
}

const verdictCells = ({ target, reached, met }: Verdict): string[] => [
  target,
  reached,
  met === undefined ? "?" : met ? "met" : "**missed**",
];

function section({ title, method, tables, disturbed }: Shown): string[] {
  const marks = disturbed.length === 0 ? [] : ["", `${disturbed.length} slices were disturbed (\`!\`).`];
  return ["", `## ${title}`, "", method, ...tables.flatMap((table) => ["", ...markdown(table)]), ...marks];
}

function markdown({ columns, rows }: Table): string[] {
  const line = (cells: string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return [
    line(columns),
    line(columns.map((_, at) => (isFigures(rows.map((row) => row[at] ?? "")) ? "---:" : "---"))),
    ...rows.map(line),
  ];
}
