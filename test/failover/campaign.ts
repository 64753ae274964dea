import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { formatVerdict } from "../fault/checker.ts";
import { writeHistory } from "../fault/history.ts";
import { seedFor } from "../fault/random.ts";
import { copySources } from "../fault/tree.ts";
import { ROOT } from "../fault/world.ts";
import { TOPOLOGIES, type Topology } from "./driver.ts";
import { writeSection } from "./report.ts";
import { runRounds, stopRounds } from "./rounds.ts";

const ROUNDS = 50;
const SHORT_ROUNDS = 5;

/** What the gateway lacks for a topology; its servers, and what befalls them, are ready (`vitest --project failover`). */
const MISSING: Partial<Record<Topology, string>> = {
  trio: "a gateway cannot follow Sentinels yet: REDIS_URL has no redis+sentinel:// form",
  cluster:
    "a gateway cannot use a Redis Cluster of several primaries yet: REDIS_URL has no redis+cluster:// form",
};

/** `--rounds N --seed N --topology server|trio|cluster --short`: a full run writes its section of docs/faults.md. */
async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string" },
      seed: { type: "string" },
      topology: { type: "string", default: "server" },
      short: { type: "boolean", default: false },
    },
  });
  const topology = TOPOLOGIES.find((name) => name === values.topology);
  const rounds = Number(values.rounds ?? (values.short ? SHORT_ROUNDS : ROUNDS));
  const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
  if (!topology || !Number.isSafeInteger(rounds) || rounds < 1 || !Number.isSafeInteger(seed)) {
    refuse(`--topology is one of ${TOPOLOGIES.join(", ")}; --rounds and --seed are whole numbers`);
  }
  const missing = MISSING[topology];
  if (missing !== undefined) refuse(`--topology ${topology}: ${missing}`);

  const folder = await mkdtemp(join(tmpdir(), "tollgate-failover-"));
  console.log(`seed ${seed}: the same schedule comes with --seed ${seed}; history under ${folder}`);
  const root = copySources(ROOT, join(folder, "tree"));
  const startedMs = Date.now();
  const progress = (line: string): void =>
    console.log(`${topology} ${Math.round((Date.now() - startedMs) / 1000)} s: ${line}`);
  const scenario = `failover ${topology}`;
  const options = { scenario, seed: seedFor(seed, scenario), folder, root, progress, topology, rounds };
  const outcome = await runRounds(options);
  writeHistory(folder, outcome.history);
  await writeFile(join(folder, "operators.json"), JSON.stringify(outcome.history.operators, null, 2));
  await writeFile(join(folder, "rounds.json"), JSON.stringify(outcome.rounds, null, 2));
  const seconds = Math.round((Date.now() - startedMs) / 1000);
  console.log(formatVerdict(outcome.verdict));
  if (!values.short) await writeSection({ ...outcome, topology, seed, seconds });
  const clean = outcome.rounds.every(({ violations }) => violations.length === 0);
  const isMet = outcome.verdict.met && clean;
  console.log(isMet ? "all criteria met" : "criteria unmet");
  process.exit(isMet ? 0 : 1);
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
