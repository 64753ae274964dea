import { rm } from "node:fs/promises";
import { onTestFinished } from "vitest";
import { CHECKS_FROZEN, createScriptRunner, scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { createClient } from "../support/client.ts";
import { type Mutant, plant } from "./mutants.ts";

/** As `plant`; the folder is removed when the current test has ended. */
export async function plantForTest(mutant: Mutant): Promise<string> {
  const folder = await plant(mutant);
  onTestFinished(() => rm(folder, { recursive: true }));
  return folder;
}

/** Does an operator's work on a client of its own. @param mutant a mistake that the scripts of this client have; without one, they have none */
export async function withMutant<Result>(
  url: string,
  mutant: Mutant | undefined,
  work: (nodes: RedisNodes) => Promise<Result>,
): Promise<Result> {
  const folder = mutant && (await plantForTest(mutant));
  const client = createClient(url, 10_000);
  try {
    await client.connect();
    const scripts = scriptsOf(client);
    if (folder !== undefined)
      Object.assign(scripts, createScriptRunner(client, { folder, form: CHECKS_FROZEN }));
    return await work(oneNode(client));
  } finally {
    client.disconnect();
  }
}
