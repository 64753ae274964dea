import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { isFigures, type Results, type Shown } from "./report.ts";
import type { Table } from "./scenario.ts";
import { SCENARIOS } from "./scenarios/index.ts";
import { judge, type Verdict } from "./targets.ts";

const PAGE = join(import.meta.dirname, "../docs/performance.md");

/** Writes docs/performance.md from what full runs have found. */
export function writePage({ run, outcomes }: Results): void {
  const shown = Object.keys(SCENARIOS).flatMap((name) => outcomes[name] ?? []);
  // A target that no run has looked at is on the page all the same.
  const verdicts = Object.entries(SCENARIOS).flatMap(
    ([name, { targets }]) => outcomes[name]?.verdicts ?? targets.map((target) => judge(target, Number.NaN)),
  );
  const missed = verdicts.filter(({ met }) => met === false).length;
  const unknown = verdicts.filter(({ met }) => met === undefined).length;
  const lines = [
    "# Performance",
    "",
    "Written by `npm run bench -- --full` ([how it measures](../bench/README.md)); not edited by hand.",
    "",
    `- **Latest run** commit ${run.commit}, ${run.startedAt.slice(0, 16).replace("T", " ")} UTC; each part measured at another commit names it`,
    `- **Machine** ${run.machine}`,
    `- **Versions** ${run.versions}`,
    `- **Method** ${run.rounds} interleaved rounds of ${run.seconds} s, medians; the program under test alone on one core, load, Redis and upstream on ${run.otherCores}.`,
    "",
    "Absolute times belong to this machine at this hour. What counts are the ratios within one part. Figures of parts that were measured at different commits are not comparable.",
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
    ...shown.flatMap((outcome) => section(outcome, run.commit)),
  ];
  writeFileSync(PAGE, `${lines.join("\n")}\n`);
}

const verdictCells = ({ target, reached, met }: Verdict): string[] => [
  target,
  reached,
  met === undefined ? "?" : met ? "met" : "**missed**",
];

function section({ title, method, tables, disturbed, measuredAt, commit }: Shown, latest: string): string[] {
  const elsewhere =
    commit === latest ? [] : [`Measured at commit ${commit}, ${measuredAt.slice(0, 10)}.`, ""];
  const marks =
    disturbed.length === 0
      ? []
      : [
          "",
          "Disturbed intervals (marked `!` in the table where it has rounds):",
          "",
          ...disturbed.map((line) => `- ${line}`),
        ];
  return [
    "",
    `## ${title}`,
    "",
    ...elsewhere,
    method,
    ...tables.flatMap((table) => ["", ...markdown(table)]),
    ...marks,
  ];
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
