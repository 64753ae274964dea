import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { cpus, loadavg, release, tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startRedis } from "../../src/sandbox/redis.ts";
import { ROOT } from "../fault/world.ts";
import type { Attack } from "./attack.ts";
import { ATTACKS } from "./attacks/index.ts";
import { type Caught, CONTROLS, type Control, runControl } from "./controls.ts";
import { isMet, judge, type Measured, p99Of, quantile } from "./criteria.ts";
import { page, unmetLines, withRecorded } from "./report.ts";
import { runAttack, stopAll } from "./run.ts";

const PAGE = join(ROOT, "docs/attacks.md");

interface Chosen {
  seed: number;
  attacks: readonly Attack[];
  controls: readonly Control[];
  /** True if these attacks and seeded bugs replace their rows on the page, and leave the rest of it. */
  isRecorded: boolean;
}

/** The part of the campaign that the arguments select; all of it without arguments. */
function choose(): Chosen {
  const { values } = parseArgs({
    options: {
      attack: { type: "string", multiple: true, default: [] },
      controls: { type: "boolean", default: false },
      control: { type: "string" },
      record: { type: "boolean", default: false },
      seed: { type: "string" },
    },
  });
  const { attack, control, record: isRecorded } = values;
  const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
  const onlyControls = values.controls || control !== undefined;
  const isChosen = ({ name }: Attack): boolean => attack.length === 0 || attack.includes(name);
  const attacks = onlyControls ? [] : ATTACKS.filter(isChosen);
  const controls = attack.length === 0 ? named(CONTROLS, control) : [];
  if (attacks.length + controls.length === 0 || !Number.isSafeInteger(seed)) {
    const names = (all: readonly { name: string }[]): string => all.map(({ name }) => `"${name}"`).join(", ");
    process.stderr.write(
      `--attack is one of ${names(ATTACKS)}; --control one of ${names(CONTROLS)}; --controls runs all of these; --seed a number; --record\n`,
    );
    process.exit(1);
  }
  return { seed, attacks, controls, isRecorded };
}

const named = <T extends { name: string }>(all: readonly T[], wanted: string | undefined): readonly T[] =>
  all.filter(({ name }) => wanted === undefined || name === wanted);

/** The whole campaign, or the attacks or seeded bugs that were asked for. */
async function main(): Promise<void> {
  const { seed, attacks, controls, isRecorded } = choose();
  if (!existsSync("/proc/self/clear_refs")) {
    process.stderr.write(
      "The campaign reads memory from /proc and needs addresses like 127.0.0.2: Linux only.\n",
    );
    process.exit(1);
  }
  const startedMs = Date.now();
  const loadBefore = loadavg()[0]!;
  const folder = await mkdtemp(join(tmpdir(), "tollgate-attack-"));
  console.log(`seed ${seed}: the same is sent with --seed ${seed}`);
  const all: Measured[] = [];
  for (const attack of attacks) {
    const measured = await runAttack(attack, { seed, folder, scale: 1 });
    all.push(measured);
    print(measured);
  }
  const caught: Caught[] = [];
  for (const control of controls) {
    const result = await runControl(control, { seed, folder });
    caught.push(result);
    console.log(caughtLine(result));
  }
  if (attacks.length === ATTACKS.length && controls.length === CONTROLS.length) {
    const minutes = Math.round((Date.now() - startedMs) / 60_000);
    const load = [loadBefore, loadavg()[0]!] as const;
    await writeFile(PAGE, page(all, caught, { ...(await surroundings(folder)), seed, load, minutes }));
  } else if (isRecorded) {
    await writeFile(
      PAGE,
      withRecorded(await readFile(PAGE, "utf8"), all, caught, { seed, commit: commit() }),
    );
  }
  await rm(folder, { recursive: true, force: true });
  const unmet = [...unmetLines(all), ...caught.filter(({ met }) => !met).map(caughtLine)];
  console.log(unmet.length === 0 ? "all criteria met" : unmet.join("\n"));
  process.exit(unmet.length === 0 ? 0 : 1);
}

const caughtLine = ({ name, met, figure }: Caught): string =>
  `${name}: ${met ? "caught" : "NOT CAUGHT"}, ${figure}`;

function print(measured: Measured): void {
  console.log(`${measured.name}: ${isMet(measured) ? "met" : "NOT MET"}`);
  for (const { name, met, figure } of judge(measured)) {
    console.log(`  ${met ? "  " : "! "}${name}: ${figure}`);
  }
  const { baseline, during } = measured;
  const late = quantile(
    during.map(({ lateMs }) => lateMs),
    0.99,
  );
  console.log(
    `    alone: p99 ${Math.round(p99Of(baseline))} ms; the honest process itself late: p99 ${Math.round(late)} ms`,
  );
  const { requests, connections } = measured.sent;
  console.log(
    `    sent: ${requests} requests, ${connections} connections; ${JSON.stringify(measured.sent.answers)}`,
  );
}

/** Machine, versions and commit. */
async function surroundings(folder: string) {
  const redis = await startRedis({ dir: join(folder, "version"), persistent: false });
  await redis.stop();
  const gib = Math.round(totalmem() / 2 ** 30);
  return {
    commit: commit(),
    node: `Node ${process.versions.node}`,
    redis: redis.source.replace(/ (?:from|unpacked).*$/, ""),
    machine: `${cpus().length} cores, ${cpus()[0]?.model.trim()}, ${gib} GiB, Linux ${release()}`,
  };
}

function commit(): string {
  const git = (...words: string[]): string =>
    execFileSync("git", words, { cwd: ROOT, encoding: "utf8" }).trim();
  try {
    const changed =
      git("status", "--porcelain", "--", "src", "lua", "test/attack") === "" ? "" : ", with changes";
    return git("rev-parse", "--short=12", "HEAD") + changed;
  } catch {
    return "unknown";
  }
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => void stopAll().then(() => process.exit(130)));
}
main().catch(async (error: unknown) => {
  console.error(error);
  await stopAll();
  process.exit(1);
});
