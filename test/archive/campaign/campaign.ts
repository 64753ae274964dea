import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { copySources } from "../../fault/tree.ts";
import { ROOT } from "../../fault/world.ts";
import { CONTROLS } from "./controls.ts";
import { writeSection } from "./report.ts";
import { isRight, type Run, runKills } from "./run.ts";

const KILLS = 120;
const SHORT_KILLS = 10;
const CONTROL_KILLS = 12;

/**
 * `--kills N --seed N --short`: kills under load; a full run writes its section of docs/faults.md. `--controls`: also seeded bugs, each of
 * which must be caught; `--only TEXT` for those whose name has it, without the run.
 */
async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      kills: { type: "string" },
      seed: { type: "string" },
      short: { type: "boolean", default: false },
      controls: { type: "boolean", default: false },
      only: { type: "string" },
    },
  });
  const kills = Number(values.kills ?? (values.short ? SHORT_KILLS : KILLS));
  const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
  if (!Number.isSafeInteger(kills) || kills < 1 || !Number.isSafeInteger(seed)) {
    console.error("--kills and --seed are whole numbers");
    process.exit(2);
  }
  const folder = await mkdtemp(join(tmpdir(), "tollgate-archive-kills-"));
  console.log(`seed ${seed}: the same schedule comes with --seed ${seed}; logs under ${folder}`);
  const run = values.only === undefined ? await runOne("run", { seed, kills, folder }) : undefined;
  const caught: { name: string; words: string; isCaught: boolean }[] = [];
  const controls = CONTROLS.filter(({ name }) => values.controls && name.includes(values.only ?? ""));
  for (const { name, patches, caughtBy } of controls) {
    const { verdict } = await runOne(name, { seed, kills: CONTROL_KILLS, folder, patches });
    const isCaught = verdict[caughtBy].length > 0;
    const words = `${verdict.missing.length} missing, ${verdict.doubled.length} doubled, ${verdict.wrongFolds.length} wrong folds`;
    caught.push({ name, words, isCaught });
    console.log(`${name}: ${isCaught ? "caught" : "NOT CAUGHT"}: ${words}`);
  }
  if (run && !values.short) await writeSection({ ...run, seed }, caught);
  const isMet = (!run || isRight(run.verdict)) && caught.every(({ isCaught }) => isCaught);
  console.log(isMet ? "all criteria met" : "criteria unmet");
  process.exit(isMet ? 0 : 1);
}

async function runOne(
  name: string,
  {
    folder,
    patches,
    ...options
  }: { seed: number; kills: number; folder: string; patches?: Parameters<typeof copySources>[2] },
): Promise<Run> {
  const own = join(folder, name.replaceAll(" ", "-"));
  const progress = (line: string): void => console.log(`${name}: ${line}`);
  const root = copySources(ROOT, join(own, "tree"), patches);
  const run = await runKills({ ...options, root, folder: own, progress });
  await writeFile(join(own, "run.json"), JSON.stringify(run, null, 2));
  const { missing, doubled, wrongFolds } = run.verdict;
  const { archived, inRedis, uncopied } = run.verdict;
  progress(
    `${run.seconds} s, ${run.charged} charged, ${run.failed} failed, ${run.granted} granted; ${archived} archived, ${inRedis} in Redis, ` +
      `${uncopied} uncopied, ${run.left} left; missing ${missing.length}, doubled ${doubled.length}, wrong folds ${wrongFolds.length}`,
  );
  for (const line of [...missing, ...doubled, ...wrongFolds].slice(0, 10)) progress(`  ${line}`);
  return run;
}

await main();
