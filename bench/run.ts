import { describeRun } from "./machine.ts";
import { type Options, readOptions } from "./options.ts";
import { writePage } from "./page.ts";
import { goFirst } from "./processes.ts";
import { profile } from "./profile.ts";
import { printOutcome, printSummary, type Results, saveResults } from "./report.ts";
import { lookAround } from "./requirements.ts";
import type { Context } from "./scenario.ts";
import { SCENARIOS } from "./scenarios/index.ts";
import { openTree } from "./tree.ts";
import { createWorld } from "./world.ts";

const progress = (line: string): void => void process.stderr.write(`${line}\n`);

/** Runs the scenarios that are wanted and possible; returns what they found. */
async function run(options: Options): Promise<void> {
  const { found, advice } = lookAround();
  if (advice.length > 0)
    progress(`Something is missing; what needs it is left out. To have it:\n  ${advice.join("\n  ")}\n`);
  const trees = await Promise.all(
    options.trees.map((folder, at) => openTree(at === 0 ? "gateway" : `gateway of ${folder}`, folder)),
  );
  if (options.first) goFirst();
  const world = await createWorld(found.has("nginx"));
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => void world.stop().then(() => process.exit(130)));
  }
  try {
    const context: Context = {
      ...options,
      world,
      trees,
      has: (requirement) => found.has(requirement),
      progress,
    };
    if (options.profile !== undefined) return await profile(context, options.profile);
    const results: Results = { run: await describeRun(options, world), outcomes: {} };
    for (const [name, scenario] of Object.entries(SCENARIOS)) {
      if (!options.wants(name, scenario)) continue;
      const missing = scenario.needs.filter((requirement) => !found.has(requirement));
      if (missing.length > 0) {
        progress(`${scenario.title}: left out, for want of ${missing.join(", ")}`);
        continue;
      }
      progress(`${scenario.title} …`);
      try {
        const outcome = await scenario.run(context);
        const { title } = scenario;
        const measuredAt = new Date().toISOString();
        results.outcomes[name] = { title, measuredAt, commit: results.run.commit, ...outcome };
        printOutcome(results.outcomes[name]);
      } catch (error) {
        progress(`${scenario.title}: failed, ${(error as Error).stack}`);
        process.exitCode = 1;
      }
    }
    printSummary(results);
    const all = saveResults(results);
    if (options.full) writePage(all);
  } finally {
    await world.stop();
  }
}

await run(readOptions(process.argv.slice(2)));
