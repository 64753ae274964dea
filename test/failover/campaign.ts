import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type Criterion, formatVerdict } from "../fault/checker.ts";
import { writeHistory } from "../fault/history.ts";
import { seedFor } from "../fault/random.ts";
import { bundleSources, copySources } from "../fault/tree.ts";
import { ROOT } from "../fault/world.ts";
import { newerBinary } from "../support/servers.ts";
import { CONTROLS, runControl } from "./controls.ts";
import { FAULTS_OF, TOPOLOGIES, type Topology } from "./driver.ts";
import { type Pace, planRounds, USUAL_PACE } from "./plan.ts";
import { writeControls, writeSection, writeWebhooks } from "./report.ts";
import { runRounds, stopRounds } from "./rounds.ts";
import type { Fault } from "./strikes.ts";
import { isFailover } from "./takeovers.ts";

/** Where another node takes over. */
const FAILING_OVER = ["trio", "cluster"] as const;
const ROUNDS = 50;
const SHORT_ROUNDS = 5;
/** More failovers than are asked for: on a busy machine a primary may be back before another node takes over. */
const WEBHOOK_ROUNDS = 12;
/** Time for some hundred ends, and for a few kills, in each round. */
const WEBHOOK_PACE: Pace = { beforeMs: [7000, 10_000], afterMs: 5000 };

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
 * `--webhooks`: failovers while gateways are killed and receivers answer in all ways, of a server with replicas and then of a cluster;
 * `--rounds N` of each. With `--topology` of one alone.
 * `--controls`: seeded bugs instead, each of which must be caught; `--only TEXT` for those whose name has it.
 */
async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string" },
      seed: { type: "string" },
      topology: { type: "string" },
      short: { type: "boolean", default: false },
      fault: { type: "string", multiple: true, default: [] },
      webhooks: { type: "boolean", default: false },
      controls: { type: "boolean", default: false },
      only: { type: "string", default: "" },
    },
  });
  const topology = TOPOLOGIES.find((name) => name === (values.topology ?? "server"));
  const usual = values.webhooks ? WEBHOOK_ROUNDS : values.short ? SHORT_ROUNDS : ROUNDS;
  const rounds = Number(values.rounds ?? usual);
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
    : values.webhooks
      ? await runWebhooks(run, rounds, values.topology ? [topology] : FAILING_OVER)
      : await runCampaign(run, { topology, faults, count: rounds });
  console.log(isMet ? "all criteria met" : "criteria unmet");
  process.exit(isMet ? 0 : 1);
}

interface Planned {
  topology: Topology;
  faults: readonly Fault[];
  count: number;
  webhooks?: boolean;
}

async function runCampaign(run: Run, planned: Planned): Promise<boolean> {
  const { outcome, isMet } = await runTopology(run, planned);
  if (!run.short) await writeSection({ ...outcome, topology: planned.topology, seed: run.seed });
  return isMet;
}

/** Nothing but faults in which another node takes over. */
async function runWebhooks(run: Run, count: number, topologies: readonly Topology[]): Promise<boolean> {
  // Dozens of gateways are started.
  await bundleSources(run.root);
  let allMet = true;
  for (const topology of topologies) {
    const faults = FAULTS_OF[topology].filter(isFailover);
    const { outcome, isMet } = await runTopology(run, { topology, faults, count, webhooks: true });
    if (!run.short) await writeWebhooks({ ...outcome, topology, seed: run.seed });
    allMet &&= isMet;
  }
  return allMet;
}

async function runTopology(run: Run, { topology, faults, count, webhooks = false }: Planned) {
  const { root } = run;
  const folder = join(run.folder, topology);
  const startedMs = Date.now();
  const progress = (line: string): void =>
    console.log(`${topology} ${Math.round((Date.now() - startedMs) / 1000)} s: ${line}`);
  const scenario = `failover ${topology}`;
  const seed = seedFor(run.seed, scenario);
  const rounds = planRounds(seed, faults, count, webhooks ? WEBHOOK_PACE : USUAL_PACE);
  const ran = await runRounds({ scenario, seed, folder, root, progress, topology, rounds, webhooks });
  writeHistory(folder, ran.history);
  await writeFile(join(folder, "operators.json"), JSON.stringify(ran.history.operators, null, 2));
  await writeFile(join(folder, "rounds.json"), JSON.stringify(ran.rounds, null, 2));
  const seconds = Math.round((Date.now() - startedMs) / 1000);
  console.log(`${ran.history.failovers} failovers`);
  console.log(formatVerdict(ran.verdict));
  const isMet = ran.verdict.met && ran.rounds.every(({ violations }) => violations.length === 0);
  return { outcome: { ...ran, seconds }, isMet };
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
