import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createScriptRunner, scriptsOf } from "../../src/redis/script-runner.ts";
import { type OwnStore, openOwnStore } from "../support/own-store.ts";
import { openConnection, type TestConnection } from "../support/store.ts";
import { plantForTest } from "./mutant-client.ts";
import { TRIM_MUTANTS } from "./mutants.ts";
import { manySlices, playRefusals, playTrims, steps } from "./trim-model.ts";

// Trimming a partition concerns all its accounts, so these tests have a store of their own.

let server: OwnStore;
let connection: TestConnection;
beforeAll(async () => {
  server = await openOwnStore();
  connection = server.connection;
});
afterAll(() => server?.stop());

test("whatever leaves, balances, the ten transactions and the proof of the ledger stay as they were", {
  timeout: 300_000,
}, async () => {
  const property = fc.asyncProperty(steps, (all) => playTrims(connection, all));
  await fc.assert(property, {
    numRuns: Number(process.env.RUNS ?? 4),
    examples: [[[...manySlices]]],
  });
});

test("a ledger that is not the archive's, or does not add up, is not trimmed", async () => {
  await playRefusals(connection);
});

/** Fixed, so that a survivor survives again. */
const SEED = Number(process.env.SEED ?? 17);
const SEQUENCES = 12;
/** `npm test` plants one in ten, others each time; the fault campaign plants all of them. */
const SHARES = 10;
const SHARE = Number(process.env.MUTANTS_SHARE ?? Math.floor(Math.random() * SHARES));
const PLANTED =
  process.env.MUTANTS === "all" ? TRIM_MUTANTS : TRIM_MUTANTS.filter((_, at) => at % SHARES === SHARE);

// Guarantee: the model is no mere echo of the scripts; a mistake in them shows.
test.each(PLANTED)("a mistake in trimming shows: $what", { timeout: 60_000 }, async (mutant) => {
  const folder = await plantForTest(mutant);
  const reader = await openConnection(server.url);
  try {
    Object.assign(scriptsOf(reader.redis), createScriptRunner(reader.redis, { folder }));
    const mistake = await firstMistake(reader);
    expect(mistake).toBeDefined();
    // A script that does not even load proves nothing.
    expect(mistake).not.toContain("compiling script");
  } finally {
    await reader.close();
  }
});

async function firstMistake(reader: TestConnection): Promise<string | undefined> {
  const scenarios = [manySlices, ...fc.sample(steps, { seed: SEED, numRuns: SEQUENCES })];
  const plays = scenarios.map((all) => () => playTrims(reader, all));
  for (const play of [() => playRefusals(reader), ...plays]) {
    const mistake = await play().catch((error: Error) => error.message);
    if (mistake !== undefined) return mistake;
  }
  return undefined;
}
