import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Connection } from "../../src/store/connection.ts";
import { openConnection } from "../support/store.ts";
import { scenario } from "./commands.ts";
import { play } from "./drive.ts";
import { readHeader } from "./headers.ts";

const SEED = Number(process.env.SEED ?? Date.now() % 2 ** 31);
const MODEL_RUNS = Number(process.env.MODEL_RUNS ?? 60);

let connection: Connection;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());

test("any order of requests, settlements, replays and steps of the clock does what the model says", {
  timeout: 600_000,
}, async () => {
  console.log(`model: SEED=${SEED} MODEL_RUNS=${MODEL_RUNS}`);
  const seen = new Map<string, number>();
  const note = (outcome: string): void => void seen.set(outcome, (seen.get(outcome) ?? 0) + 1);
  const property = fc.asyncProperty(scenario, (one) =>
    play(connection, one, { seen: (verb, [outcome]) => note(`${verb} ${outcome}`) }),
  );
  await fc.assert(property, { seed: SEED, numRuns: MODEL_RUNS });
  console.log(
    [...seen]
      .filter(([k]) => !k.startsWith("claim"))
      .sort()
      .map(([k, v]) => `${k} ${v}`)
      .join("\n"),
  );
});
