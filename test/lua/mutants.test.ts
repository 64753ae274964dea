import { rm } from "node:fs/promises";
import fc from "fast-check";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { createScriptRunner } from "../../src/redis/script-runner.ts";
import { createClient } from "../support/client.ts";
import { openConnection, type TestConnection } from "../support/store.ts";
import { scenario } from "./commands.ts";
import { Disagreement } from "./disagreement.ts";
import { play } from "./drive.ts";
import * as mutants from "./mutants.ts";
import { MUTANTS, type Mutant, mutatedText, plant } from "./mutants.ts";
import { rareScenarios } from "./rare-scenarios.ts";

/** Fixed, so that a survivor survives again. */
const SEED = Number(process.env.SEED ?? 53);
const SEQUENCES = 60;
const KILLED_MIN_SHARE = 0.95;
/**
 * `npm test` plants one in a hundred, others each time; the fault campaign plants all of them (`MUTANTS=all`). Any other
 * text plants those whose file or name has it.
 */
const WANTED = process.env.MUTANTS;
const ALL = WANTED === "all";
const SHARES = 100;
const SHARE = Number(process.env.MUTANTS_SHARE ?? Math.floor(Math.random() * SHARES));
const isPlanted = ({ file, what }: Mutant, at: number): boolean =>
  WANTED === undefined ? at % SHARES === SHARE : `${file}: ${what}`.includes(WANTED);
const PLANTED = ALL ? MUTANTS : MUTANTS.filter(isPlanted);

let connection: TestConnection;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());

// Guarantee: scripts that moved on take their mutants along, and not only at the next full campaign.
test.each(Object.entries(mutants).filter(([, list]) => Array.isArray(list)))(
  "each mutant can be planted: %s",
  async (_name, list) => {
    for (const mutant of list as Mutant[]) await mutatedText(mutant);
  },
);

/** Store and model disagree, or the script itself fails while it runs. */
const isFound = (mistake: unknown): boolean =>
  mistake instanceof Disagreement ||
  (mistake instanceof Error &&
    mistake.name === "ReplyError" &&
    !mistake.message.includes("compiling script"));

// Guarantee: the model is no mere echo of the scripts; a mistake in them shows.
test("a mistake planted in a script is found by the model", { timeout: 3_600_000 }, async () => {
  const scenarios = [...rareScenarios, ...fc.sample(scenario, { seed: SEED, numRuns: SEQUENCES })];
  const survivors: string[] = [];
  for (const mutant of PLANTED) {
    if (!(await killed(mutant))) survivors.push(`${mutant.file}: ${mutant.what}`);
  }
  const killedCount = PLANTED.length - survivors.length;
  console.log(
    `mutants: ${killedCount} of ${PLANTED.length} killed`,
    ALL ? "" : `(MUTANTS_SHARE=${SHARE})`,
    survivors,
  );
  expect(killedCount / PLANTED.length, `survivors: ${survivors}`).toBeGreaterThanOrEqual(KILLED_MIN_SHARE);

  async function killed(mutant: Mutant): Promise<boolean> {
    const folder = await plant(mutant);
    const redis = createClient(inject("redisUrl"), 10_000);
    try {
      await redis.connect();
      const scripts = createScriptRunner(redis, { folder });
      for (const one of scenarios) {
        const mistake = await play(connection, one, { scripts }).catch((error: unknown) => error);
        if (mistake === undefined) continue;
        // A script that does not even load proves nothing, nor does a Redis that is away.
        if (!isFound(mistake)) throw new Error(`${mutant.file}: ${mutant.what}`, { cause: mistake });
        return true;
      }
      return false;
    } finally {
      redis.disconnect();
      await rm(folder, { recursive: true });
    }
  }
});
