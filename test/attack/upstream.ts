import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { type Generator, startGenerator } from "../support/generator.ts";
import type { Attack } from "./attack.ts";
import { startProcess } from "./process.ts";
import type { TwistedJob } from "./twisted-upstream.ts";

const STOP_GRACE_MS = 5000;

export interface AttackedUpstream {
  url: string;
  generator: Generator;
  stop(): Promise<void>;
}

/** The sandbox generator; with a twist, behind a process that changes its answers. */
export async function startUpstream(attack: Attack, folder: string): Promise<AttackedUpstream> {
  const generator = await startGenerator();
  if (attack.twist === undefined) return { url: generator.url, generator, stop: () => generator.stop() };
  const file = join(folder, "upstream.json");
  const job: TwistedJob = { attack: attack.name, generatorUrl: generator.url };
  writeFileSync(file, JSON.stringify(job));
  const child = await startProcess("twisted-upstream.ts", file);
  const stop = async (): Promise<void> => {
    await child.stop(STOP_GRACE_MS);
    await generator.stop();
  };
  for await (const url of createInterface(child.process.stdout!)) return { url, generator, stop };
  await stop();
  throw new Error(`the upstream of ${attack.name} did not start: ${await child.ended}`);
}
