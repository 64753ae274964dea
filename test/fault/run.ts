import { join } from "node:path";
import { check, formatVerdict, type Verdict } from "./checker.ts";
import { writeHistory } from "./history.ts";
import { seedFor } from "./random.ts";
import { archive } from "./scenarios/archive.ts";
import { callbackSlots } from "./scenarios/callback-slots.ts";
import { callbacks } from "./scenarios/callbacks.ts";
import { clock } from "./scenarios/clock.ts";
import { CONTROLS, runControls, SHORT_CONTROLS } from "./scenarios/controls.ts";
import { crash, crashOnCluster } from "./scenarios/crash.ts";
import { disconnects } from "./scenarios/disconnects.ts";
import { disks } from "./scenarios/disks.ts";
import { kills, killsOnCluster } from "./scenarios/kills.ts";
import { lateBinds } from "./scenarios/late-binds.ts";
import { lookUps } from "./scenarios/look-ups.ts";
import { MODEL_SEQUENCES, runModel } from "./scenarios/model.ts";
import { overload } from "./scenarios/overload.ts";
import { redisLink } from "./scenarios/redis-link.ts";
import type { Scenario } from "./scenarios/scenario.ts";
import { runSourceMutants, SOURCE_MUTANTS } from "./scenarios/source-mutants.ts";
import { stores } from "./scenarios/stores.ts";
import { taskEnds } from "./scenarios/task-ends.ts";
import { unknownOutcomes } from "./scenarios/unknown-outcomes.ts";
import { unmetered } from "./scenarios/unmetered.ts";
import { upstream } from "./scenarios/upstream.ts";
import { loadsTitle, runWebhookLoads } from "./scenarios/webhook-loads.ts";
import { webhooks } from "./scenarios/webhooks.ts";
import { window } from "./scenarios/window.ts";
import type { RunOptions } from "./world.ts";

/** One part of the campaign as it ended. */
export interface Outcome extends Verdict {
  name: string;
  title: string;
  seconds: number;
}

/** A part of the campaign: its line for people, and what the checker says of it. */
export interface Part {
  name: string;
  title(short: boolean): string;
  judge(options: RunOptions, short: boolean): Promise<Verdict>;
  /** Scenarios that `npm test` runs by itself, and the short form leaves out. */
  fullOnly?: true;
}

const judged = <Size>(scenario: Scenario<Size>): Part => {
  const size = (short: boolean): Size => (short ? scenario.short : scenario.full);
  return {
    name: scenario.name,
    title: (short) => scenario.title(size(short)),
    async judge(options, short) {
      const history = await scenario.run(options, size(short));
      writeHistory(options.folder, history);
      return check(history);
    },
  };
};

/** In the order in which the campaign runs them. */
export const PARTS: readonly Part[] = [
  {
    name: "model",
    title: () =>
      `the scripts against a model in memory, ${MODEL_SEQUENCES} sequences; mutants of the scripts`,
    judge: runModel,
    fullOnly: true,
  },
  {
    name: "source mutants",
    title: () => `${SOURCE_MUTANTS.length} seeded bugs, each of which a test must catch`,
    judge: runSourceMutants,
    fullOnly: true,
  },
  judged(crash),
  judged(kills),
  judged(lateBinds),
  judged(redisLink),
  judged(stores),
  judged(unmetered),
  judged(upstream),
  judged(unknownOutcomes),
  judged(taskEnds),
  judged(webhooks),
  judged(callbacks),
  judged(callbackSlots),
  { name: "webhook-loads", title: loadsTitle, judge: runWebhookLoads },
  judged(overload),
  judged(disks),
  judged(disconnects),
  judged(archive),
  judged(lookUps),
  judged(crashOnCluster),
  judged(killsOnCluster),
  judged(window),
  judged(clock),
  {
    name: "controls",
    title: (short) =>
      `${short ? SHORT_CONTROLS : CONTROLS.length} seeded bugs, each of which the checker must catch`,
    judge: runControls,
  },
];

/** Runs one part under a seed of its own, and tells how it went. */
export async function runPart(
  part: Part,
  options: {
    seed: number;
    folder: string;
    short: boolean;
    root: string;
    control?: string;
    log(line: string): void;
  },
): Promise<Outcome> {
  const { short, log, root, control = "" } = options;
  const { name } = part;
  const title = part.title(short);
  log(`${name}: ${title}`);
  const startedMs = Date.now();
  const progress = (line: string): void => {
    log(`${name} ${Math.round((Date.now() - startedMs) / 1000)} s: ${line}`);
  };
  const seed = seedFor(options.seed, name);
  const folder = join(options.folder, name);
  const verdict = await part.judge({ scenario: name, seed, folder, root, control, progress }, short);
  const seconds = Math.round((Date.now() - startedMs) / 1000);
  log(
    `${name}: ${verdict.met ? "all criteria met" : "CRITERIA UNMET"} after ${seconds} s\n${formatVerdict(verdict)}`,
  );
  return { name, title, seconds, ...verdict };
}
