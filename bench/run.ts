import { describeRun } from "./machine.ts";
import { type Options, readOptions } from "./options.ts";
import { writePage } from "./page.ts";
import { goFirst } from "./processes.ts";
import { profile } from "./profile.ts";
import { printOutcome, printSummary, type Results } from "./report.ts";
import { lookAround, type Requirement } from "./requirements.ts";
import type { Context, Outcome, Scenario } from "./scenario.ts";
import { SCENARIOS } from "./scenarios/index.ts";
import { judge } from "./targets.ts";
import { OUR_TREE, openYardstick } from "./tree.ts";
import { createWorld } from "./world.ts";

const progress = (line: string): void => void process.stderr.write(`${line}\n`);

/** Runs what is wanted and possible, from the command line to the page. */
async function main(options: Options): Promise<void> {
  const { found, advice } = lookAround();
  if (advice.length > 0) {
    progress(`Something is missing; what needs it is left out. To have it:\n  ${advice.join("\n  ")}\n`);
  }
  if (!found.has("taskset")) {
    process.exitCode = 1;
    return;
  }
  const trees = [OUR_TREE, ...(options.yardstick ? [await openYardstick()] : [])];
  if (options.first) goFirst();
  const world = await createWorld(found.has("nginx"));
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => void world.stop().then(() => process.exit(130)));
  }
  try {
    const has = (requirement: Requirement): boolean => found.has(requirement);
    const context: Context = { ...options, world, trees, has, progress };
    if (options.profile !== undefined) return await profile(context, options.profile);
    const results: Results = { run: await describeRun(options, world), outcomes: {} };
    for (const [name, scenario] of Object.entries(SCENARIOS)) {
      if (!options.wants(name, scenario)) continue;
      const outcome = await outcomeOf(scenario, context);
      if (world.stopped()) return;
      const shown = { title: scenario.title, ...outcome };
      results.outcomes[name] = shown;
      printOutcome(shown);
    }
    printSummary(results);
    if (options.page) writePage(results);
  } finally {
    await world.stop();
  }
}

/** Runs one scenario; what cannot be measured is said, and its targets are shown as open. */
async function outcomeOf(scenario: Scenario, context: Context): Promise<Outcome> {
  const missing = scenario.needs.filter((requirement) => !context.has(requirement));
  if (missing.length > 0) return notMeasured(scenario, `Left out for want of ${missing.join(", ")}.`);
  context.progress(`${scenario.title} …`);
  try {
    return await scenario.run(context);
  } catch (error) {
    if (!context.world.stopped()) context.progress(`${scenario.title}: ${(error as Error).stack}`);
    process.exitCode = 1;
    return notMeasured(scenario, `Failed: ${(error as Error).message}`);
  }
}

const notMeasured = ({ targets }: Scenario, why: string): Outcome => ({
  method: why,
  tables: [],
  verdicts: targets.map((target) => judge(target, Number.NaN)),
  disturbed: [],
  figures: {},
});

await main(readOptions(process.argv.slice(2)));
