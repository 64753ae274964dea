import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { cpus, release, totalmem } from "node:os";
import { join } from "node:path";
import type { Options } from "./options.ts";
import { OTHER_CORES, SEARCHED } from "./processes.ts";
import { OUR_TREE } from "./tree.ts";
import type { World } from "./world.ts";

/** Under which circumstances figures came about. */
export interface Run {
  startedAt: string;
  rounds: number;
  seconds: number;
  /** Of the tree that was measured; with a plus when it had changes. */
  commit: string;
  machine: string;
  /** In words: where load, Redis and upstream run. */
  otherCores: string;
  versions: string;
}

/** Reads machine, versions and commit. */
export async function describeRun(options: Options, world: World): Promise<Run> {
  const [cpu] = cpus();
  const redis = /^redis_version:(\S+)/m.exec(await world.redis.info("server"))?.[1];
  const { rounds, seconds } = options;
  return {
    startedAt: new Date().toISOString(),
    rounds,
    seconds,
    commit: commitOf(OUR_TREE.root),
    machine: `${cpus().length} cores, ${cpu?.model.trim()}, ${Math.round(totalmem() / 2 ** 30)} GiB, Linux ${release()}`,
    otherCores: OTHER_CORES.includes("-") ? `cores ${OTHER_CORES}` : `core ${OTHER_CORES}`,
    versions: [
      `Node ${process.versions.node}`,
      `Redis ${redis}`,
      version("nginx", ["-v"], /nginx\/(\S+)/),
      version("haproxy", ["-v"], /version (\d[\d.]*)/),
      version("wrk", ["-v"], /wrk \S*?(\d[\d.]*)/),
      ...peerVersions(),
    ]
      .filter(Boolean)
      .join(", "),
  };
}

/** The commit of a checkout, with a plus when what runs is not quite it. */
function commitOf(root: string): string {
  const git = (...args: string[]): string =>
    execFileSync("git", ["-C", root, ...args], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    }).trim();
  try {
    return git("rev-parse", "--short", "HEAD") + (git("status", "--porcelain", "--", "src", "lua") && "+");
  } catch {
    return "unknown";
  }
}

/** Of the libraries that are compared: pinned, so these are the ones. */
function peerVersions(): string[] {
  const { dependencies } = JSON.parse(readFileSync(join(import.meta.dirname, "package.json"), "utf8"));
  return Object.entries(dependencies).map(([name, number]) => `${name} ${number}`);
}

function version(program: string, args: string[], pattern: RegExp): string {
  const found = pattern.exec(output(program, args))?.[1];
  return found === undefined ? "" : `${program} ${found}`;
}

/** Output of a program, on either channel; empty when it is not there. */
function output(program: string, args: string[]): string {
  try {
    return execFileSync("sh", ["-c", '"$0" "$@" 2>&1 || true', program, ...args], {
      encoding: "utf8",
      env: { ...process.env, PATH: SEARCHED },
    }).trim();
  } catch {
    return "";
  }
}
