import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type Criterion, formatVerdict } from "../fault/checker.ts";
import { writeHistory } from "../fault/history.ts";
import { seedFor } from "../fault/random.ts";
import { copySources } from "../fault/tree.ts";
import { ROOT } from "../fault/world.ts";
import { newerBinary } from "../support/servers.ts";
import { CONTROLS, runControl } from "./controls.ts";
import { FAULTS_OF, TOPOLOGIES, type Topology } from "./driver.ts";
import { planRounds } from "./plan.ts";
import { writeControls, writeSection } from "./report.ts";
import { runRounds, stopRounds } from "./rounds.ts";
import type { Fault } from "./strikes.ts";

const ROUNDS = 50;
const SHORT_ROUNDS = 5;

interface Run {
  seed: number;
  folder: string;
  root: string;
  /** Leaves the page of figures as it is. */
  short: boolean;
}

/**
 * `--rounds N --seed N --topology server|trio|cluster --short`: a full run writes its section of docs/faults.md.
 * `--fault NAME`, several times: these faults alone; the page stays as it is.
 * `--controls`: seeded bugs instead, each of which must be caught; `--only TEXT` for those whose name has it.
 */
async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string" },
      seed: { type: "string" },
      topology: { type: "string", default: "server" },
      short: { type: "boolean", default: false },
      fault: { type: "string", multiple: true, default: [] },
      controls: { type: "boolean", default: false },
      only: { type: "string", default: "" },
    },
  });
  const topology = TOPOLOGIES.find((name) => name === values.topology);
  const rounds = Number(values.rounds ?? (values.short ? SHORT_ROUNDS : ROUNDS));
  const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
  if (!topology || !Number.isSafeInteger(rounds) || rounds < 1 || !Number.isSafeInteger(seed)) {
    refuse(`--topology is one of ${TOPOLOGIES.join(", ")}; --rounds and --seed are whole numbers`);
  }
  const faults = FAULTS_OF[topology].filter(
    (fault) => values.fault.length === 0 || values.fault.includes(fault),
  );
  if (faults.length === 0) refuse(`--fault is one of: ${FAULTS_OF[topology].join("; ")}`);
  const folder = await mkdtemp(join(tmpdir(), "tollgate-failover-"));
  console.log(`seed ${seed}: the same schedule comes with --seed ${seed}; history under ${folder}`);
  const run = {
    seed,
    folder,
    root: copySources(ROOT, join(folder, "tree")),
    short: values.short || values.fault.length > 0,
  };
  const isMet = values.controls
    ? await runControls(run, values.only)
    : await runCampaign(run, { topology, faults, count: rounds });
  console.log(isMet ? "all criteria met" : "criteria unmet");
  process.exit(isMet ? 0 : 1);
}

async function runCampaign(
  run: Run,
  { topology, faults, count }: { topology: Topology; faults: readonly Fault[]; count: number },
): Promise<boolean> {
  const { folder, root } = run;
  const startedMs = Date.now();
  const progress = (line: string): void =>
    console.log(`${topology} ${Math.round((Date.now() - startedMs) / 1000)} s: ${line}`);
  const scenario = `failover ${topology}`;
  const seed = seedFor(run.seed, scenario);
  const rounds = planRounds(seed, faults, count);
  const outcome = await runRounds({ scenario, seed, folder, root, progress, topology, rounds });
  writeHistory(folder, outcome.history);
  await writeFile(join(folder, "operators.json"), JSON.stringify(outcome.history.operators, null, 2));
  await writeFile(join(folder, "rounds.json"), JSON.stringify(outcome.rounds, null, 2));
  const seconds = Math.round((Date.now() - startedMs) / 1000);
  console.log(formatVerdict(outcome.verdict));
  if (!run.short) await writeSection({ ...outcome, topology, seed: run.seed, seconds });
  return outcome.verdict.met && outcome.rounds.every(({ violations }) => violations.length === 0);
}

async function runControls(run: Run, only: string): Promise<boolean> {
  const { seed, folder, root } = run;
  const chosen = CONTROLS.filter(({ name }) => name.includes(only));
  const criteria: Criterion[] = [];
  for (const control of chosen) {
    console.log(control.name);
    const progress = (line: string): void => console.log(`  ${line}`);
    const found = await runControl(control, { seed, folder, root, progress, newer });
    console.log(formatVerdict({ met: found.met, criteria: [found], uncharged: [] }));
    criteria.push(found);
  }
  if (!run.short && chosen.length === CONTROLS.length) await writeControls(seed, criteria);
  return criteria.every(({ met }) => met);
}

async function newer() {
  const found = await newerBinary();
  if ("missing" in found) throw new Error(found.missing);
  return found;
}

function refuse(why: string): never {
  process.stderr.write(`${why}\n`);
  process.exit(1);
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => void stopRounds().then(() => process.exit(130)));
}
main().catch(async (error: unknown) => {
  console.error(error);
  await stopRounds();
  process.exit(1);
});
