import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { RunningRedis } from "../../src/sandbox/redis.ts";
import { openConnection, type TestConnection, times } from "../support/store.ts";
import { startWholeCluster } from "../support/whole-cluster.ts";
import { scenario } from "./commands.ts";
import { play } from "./drive.ts";
import { readHeader } from "./headers.ts";
import { rareScenarios } from "./rare-scenarios.ts";

/** `SEED=… MODEL_RUNS=…` plays the same sequences again, `MODEL_ON=cluster` on a Redis Cluster. */
const SEED = Number(process.env.SEED ?? Date.now() % 2 ** 31);
const MODEL_RUNS = Number(process.env.MODEL_RUNS ?? 24);
const ON_CLUSTER = process.env.MODEL_ON === "cluster";
/** So many sequences run at a time: what one waits for the store is another's turn. Each lane has its own seed. */
const LANES = 4;
/** The verbs of the model. PROBE is no part of an account's life, ISSUE only begins it. */
const MODELLED = ["admit", "bind", "void", "inspect", "observe", "credits", "recharge", "reverse"];
/** Commands that the sequences never have; the tests of each script do. */
const UNASKED = [
  "admit restricted",
  ...["recharge", "reverse"].flatMap((script) => [`${script} unknown_account`, `${script} forgotten`]),
];

let dir: string;
let server: RunningRedis | undefined;
let connection: TestConnection;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "tollgate-model-"));
  if (ON_CLUSTER) server = await startWholeCluster(dir);
  connection = await openConnection(server?.url);
});
afterAll(async () => {
  connection?.close();
  await server?.stop();
  await rm(dir, { recursive: true, force: true });
});

// Guarantee: every script has the effect that DESIGN says, in any order, late and repeated.
test("any order of requests, settlements, replays and steps of the clock does what the model says", {
  timeout: 3_600_000,
}, async () => {
  console.log(`model: SEED=${SEED} MODEL_RUNS=${MODEL_RUNS}`);
  const seen = new Map<string, number>();
  const property = fc.asyncProperty(scenario, (one) =>
    play(connection, one, {
      seen(script, [outcome]) {
        const name = script === "lease" ? script : `${script} ${outcome}`;
        seen.set(name, (seen.get(name) ?? 0) + 1);
      },
    }),
  );
  const examples = rareScenarios.map((one): [typeof one] => [one]);
  const share = Math.ceil(MODEL_RUNS / LANES);
  const lanes = times(LANES, (lane) => {
    const given = examples.filter((_, at) => at % LANES === lane);
    return fc.assert(property, { seed: SEED + lane, numRuns: share + given.length, examples: given });
  });
  await Promise.all(lanes);

  const coverage = [...seen].sort().map(([name, times]) => `${name} ${times}`);
  console.log(`model: outcomes seen: ${coverage.join(", ")}`);
  const promised = MODELLED.flatMap((script) =>
    readHeader(script).outcomes.map((outcome) => `${script} ${outcome}`),
  );
  expect(promised.filter((name) => !seen.has(name) && !UNASKED.includes(name))).toEqual([]);
});
