import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { cpus, loadavg, release, tmpdir, totalmem } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { startRedis } from "../../src/sandbox/redis.ts";
import { ATTACKS } from "./attacks/index.ts";
import { isMet, judge, type Measured, p99Of, quantile } from "./criteria.ts";
import { page, unmetLines } from "./report.ts";
import { runAttack, stopAll } from "./run.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const PAGE = join(ROOT, "docs/attacks.md");

/** The whole campaign, or one attack of it. */
async function main(): Promise<void> {
  const { values } = parseArgs({ options: { attack: { type: "string" }, seed: { type: "string" } } });
  const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
  const chosen = ATTACKS.filter(({ name }) => values.attack === undefined || name === values.attack);
  if (chosen.length === 0 || !Number.isSafeInteger(seed)) {
    process.stderr.write(
      `--attack is one of ${ATTACKS.map(({ name }) => name).join(", ")}; --seed a number\n`,
    );
    process.exit(1);
  }
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
  for (const attack of chosen) {
    const measured = await runAttack(attack, { seed, folder, scale: 1 });
    all.push(measured);
    print(measured);
  }
  if (values.attack === undefined) {
    const minutes = Math.round((Date.now() - startedMs) / 60_000);
    const load = [loadBefore, loadavg()[0]!] as const;
    await writeFile(PAGE, page(all, { ...(await surroundings(folder)), seed, load, minutes }));
  }
  await rm(folder, { recursive: true, force: true });
  const unmet = unmetLines(all);
  console.log(unmet.length === 0 ? "all criteria met" : unmet.join("\n"));
  process.exit(unmet.length === 0 ? 0 : 1);
}

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
