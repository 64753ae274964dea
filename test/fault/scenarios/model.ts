import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Verdict } from "../checker.ts";
import { ROOT, type RunOptions } from "../world.ts";

/** Sequences of about 50 commands each; `npm test` plays forty of them. */
export const MODEL_SEQUENCES = 5000;
/** On a Redis Cluster, where the gateway claims task ids beside the scripts. */
export const CLUSTER_SEQUENCES = 1000;
/** Of about 55 steps each; `npm test` plays six of them, and a tenth of the mutants of TRIM. */
const TRIM_SEQUENCES = 60;

/** The scripts against the model in memory, and mutants of the scripts against model and tests: both run by vitest. */
export async function runModel({ seed, folder, progress }: RunOptions): Promise<Verdict> {
  const model = await vitest("test/lua/model.test.ts", {
    SEED: String(seed),
    MODEL_RUNS: String(MODEL_SEQUENCES),
  });
  // Whole: the counterexample stands in the middle.
  writeFileSync(`${folder}-output.txt`, model.output);
  progress(`model: ${model.passed ? "no divergence" : "diverges"}`);
  const clustered = await vitest("test/lua/model.test.ts", {
    SEED: String(seed),
    MODEL_RUNS: String(CLUSTER_SEQUENCES),
    MODEL_ON: "cluster",
  });
  progress(`model on a Redis Cluster: ${clustered.passed ? "no divergence" : "diverges"}`);
  const trims = await vitest("test/lua/trim.test.ts", { MUTANTS: "all", RUNS: String(TRIM_SEQUENCES) });
  progress(`trims: ${trims.passed ? "no divergence, all mutants caught" : "a divergence or a survivor"}`);
  const own = await vitest("test/lua", { MUTANTS: "all" }, ["-t", "the mistake is found"]);
  progress(`mutants of single files: ${own.passed ? "all caught" : "a survivor"}`);
  const mutants = await vitest("test/lua/mutants.test.ts", { MUTANTS: "all" });
  const found = /mutants: (\d+ of \d+ killed)\s+(\[[^\]]*\])/.exec(mutants.output);
  const survivors = found && found[2] !== "[]" ? `; survivors: ${found[2]!.replace(/\s+/g, " ")}` : "";
  const killed = found ? `${found[1]}${survivors}` : "not run";
  progress(`mutants: ${killed}`);
  const criteria = [
    {
      name: "scripts and model never diverge",
      met: model.passed,
      figure: `${MODEL_SEQUENCES} random sequences, with duplicates and reordering`,
      violations: model.passed ? [] : [model.output.slice(-4000)],
    },
    {
      name: "scripts and model never diverge on a Redis Cluster",
      met: clustered.passed,
      figure: `${CLUSTER_SEQUENCES} random sequences on a node in cluster mode, which refuses names of two slots`,
      violations: clustered.passed ? [] : [clustered.output.slice(-4000)],
    },
    {
      name: "trims never diverge, and every mutant of them is caught",
      met: trims.passed,
      figure: `${TRIM_SEQUENCES} random sequences`,
      violations: trims.passed ? [] : [trims.output.slice(-4000)],
    },
    {
      name: "every mutant that a test of its own looks for is caught",
      met: own.passed,
      figure: "all files of test/lua",
      violations: own.passed ? [] : [own.output.slice(-4000)],
    },
    {
      name: "at least 95 % of the mutants of the scripts are caught",
      met: mutants.passed,
      figure: killed,
      violations: mutants.passed ? [] : [mutants.output.slice(-4000)],
    },
  ];
  return { met: criteria.every(({ met }) => met), criteria, uncharged: [] };
}

/** Runs one test file, or a folder's, as `npm test` would. */
function vitest(
  file: string,
  env: Record<string, string>,
  args: readonly string[] = [],
): Promise<{ passed: boolean; output: string }> {
  const child = spawn(
    process.execPath,
    [join(ROOT, "node_modules/vitest/vitest.mjs"), "run", "--project", "lua", file, ...args],
    { cwd: ROOT, env: { ...process.env, NO_COLOR: "1", ...env }, stdio: ["ignore", "pipe", "pipe"] },
  );
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  }
  return new Promise((resolve) => {
    // Vitest ends with 0 only when at least one test ran and all passed.
    child.once("close", (code) => resolve({ passed: code === 0, output }));
  });
}
