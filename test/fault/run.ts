import { join } from "node:path";
import { check, formatVerdict } from "./checker.ts";
import { writeHistory } from "./history.ts";
import { seedFor } from "./random.ts";
import type { Outcome } from "./report.ts";
import type { Scenario } from "./scenarios/scenario.ts";

/** Runs one scenario, writes its history, and judges it. */
export async function judge(
  scenario: Scenario,
  options: { seed: number; folder: string; short: boolean; root: string; log(line: string): void },
): Promise<Outcome> {
  const { short, log, root } = options;
  const size = short ? scenario.short : scenario.full;
  const folder = join(options.folder, scenario.name);
  const seed = seedFor(options.seed, scenario.name);
  log(`${scenario.name}: ${scenario.title(size)}`);
  const startedMs = Date.now();
  const progress = (line: string): void => log(`${scenario.name}: ${line}`);
  const history = await scenario.run({ scenario: scenario.name, seed, folder, root, progress }, size);
  writeHistory(folder, history);
  const verdict = scenario.judge?.(history) ?? check(history);
  log(formatVerdict(verdict));
  const seconds = Math.round((Date.now() - startedMs) / 1000);
  return { name: scenario.name, title: scenario.title(size), seconds, ...verdict };
}
