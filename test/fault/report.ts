import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Outcome } from "./run.ts";
import { ROOT } from "./world.ts";

/** Of what was accepted but uncharged; the histories have all. */
const LISTED_MAX = 20;
const PAGE = join(ROOT, "docs/faults.md");

/** Sections that other campaigns write begin so, and stand at the end of the page. */
const PARTS_BEGIN = "\n## failover: ";

/** Writes one section of another campaign, and leaves the rest of the page. */
export async function writePart(name: string, text: string): Promise<void> {
  const [own = "", ...parts] = (await readFile(PAGE, "utf8")).split(PARTS_BEGIN);
  const title = name.slice("failover: ".length);
  const others = parts.filter((part) => !part.startsWith(`${title}\n`)).map((part) => part.trimEnd());
  const all = [...others, `${title}\n\n${text.trimEnd()}`].sort();
  await writeFile(PAGE, [own.trimEnd(), ...all].join(`\n${PARTS_BEGIN}`).concat("\n"));
}

/** Writes the page of figures of a full run. */
export async function writeReport(seed: number, outcomes: readonly Outcome[]): Promise<void> {
  const all = outcomes.every(({ met }) => met) ? "All criteria met." : "**Some criteria are not met.**";
  const minutes = Math.round(outcomes.reduce((sum, { seconds }) => sum + seconds, 0) / 60);
  const sections = outcomes.map(section).join("\n");
  const page = await readFile(PAGE, "utf8").catch(() => "");
  const parts = page.includes(PARTS_BEGIN) ? page.slice(page.indexOf(PARTS_BEGIN)) : "";
  await writeFile(
    PAGE,
    `# Figures of the fault campaign

Written by \`npm run test:fault\`; do not edit. What is injected and judged, and how, is told in \`test/fault/\`.
${all} A repeat with \`npm run test:fault -- --seed ${seed}\` makes the same schedule.

| | |
| --- | --- |
| seed | ${seed} |
| commit | ${commit()} |
| Node | ${process.version} |
| ioredis, undici | ${version("ioredis")}, ${version("undici")} |
| took | ${minutes} min |

${sections}${parts}`,
  );
}

/** Writes the sections of some scenarios, each with its own seed and commit, and leaves the rest of the page. */
export async function recordSections(seed: number, outcomes: readonly Outcome[]): Promise<void> {
  const page = await readFile(PAGE, "utf8");
  const end = page.includes(PARTS_BEGIN) ? page.indexOf(PARTS_BEGIN) : page.length;
  const [head = "", ...sections] = page.slice(0, end).split("\n## ");
  for (const outcome of outcomes) {
    const title = `${outcome.title}. Run alone: seed ${seed}, commit ${commit()}`;
    const text = section({ ...outcome, title }).slice("## ".length);
    const at = sections.findIndex((one) => one.startsWith(`${outcome.name}\n`));
    if (at === -1) sections.push(text);
    else sections[at] = text;
  }
  const own = [head, ...sections].map((part) => part.trimEnd()).join("\n\n## ");
  await writeFile(PAGE, `${own}\n${page.slice(end)}`);
}

function section({ name, title, seconds, criteria, uncharged }: Outcome): string {
  const rows = criteria.map(
    ({ name: criterion, met, figure }) => `| ${criterion} | ${met ? "met" : "**not met**"} | ${figure} |`,
  );
  const listed = uncharged.slice(0, LISTED_MAX).map((line) => `- ${line}`);
  if (uncharged.length > LISTED_MAX) listed.push(`- … and ${uncharged.length - LISTED_MAX} more`);
  const list =
    listed.length === 0
      ? ""
      : `\n<details><summary>${uncharged.length} accepted but uncharged, each beside its reason</summary>\n\n${listed.join("\n")}\n\n</details>\n`;
  return `## ${name}\n\n${title}. ${seconds} s.\n\n| criterion | | figures |\n| --- | --- | --- |\n${rows.join("\n")}\n${list}`;
}

export function commit(): string {
  const git = (...words: string[]): string =>
    execFileSync("git", words, { cwd: ROOT, encoding: "utf8" }).trim();
  try {
    const changed =
      git("status", "--porcelain", "--", "src", "lua", "test/fault", "test/failover") === ""
        ? ""
        : ", with changes";
    return git("rev-parse", "--short=12", "HEAD") + changed;
  } catch {
    return "unknown";
  }
}

function version(name: string): string {
  const file = join(ROOT, "node_modules", name, "package.json");
  return (JSON.parse(readFileSync(file, "utf8")) as { version: string }).version;
}
