import { mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { emptyStore, issueKeys } from "./keys.ts";
import { saturate, warmUp, writeTargets } from "./load/wrk.ts";
import type { Context } from "./scenario.ts";
import type { Entry } from "./scenarios/compare.ts";
import { generationEntry } from "./scenarios/generation.ts";
import { pollEntry } from "./scenarios/poll.ts";
import { refusalEntry } from "./scenarios/refusal.ts";
import { uploadEntry, withUploadUpstream } from "./scenarios/uploads.ts";
import { gatewaySubject } from "./subjects/gateway.ts";
import type { Subject } from "./subjects/subject.ts";
import { short } from "./targets.ts";
import type { Tree } from "./tree.ts";
import type { World } from "./world.ts";

const SHOWN = 40;

/** The clock that V8 stamps its samples with. */
const monotonicUs = (): number => Number(process.hrtime.bigint() / 1000n);

/** The file that V8 writes with --cpu-prof. */
interface CpuProfile {
  nodes: { id: number; callFrame: { functionName: string; url: string; lineNumber: number } }[];
  startTime: number;
  samples: number[];
  timeDeltas: number[];
}

interface Load {
  entry(tree: Tree, subject: Subject, world: World): Entry;
  /** Runs something with what the load needs beside the world, if that is anything. */
  within?: typeof withUploadUpstream;
}

const LOADS: Record<string, Load> = {
  generation: { entry: (tree, subject) => generationEntry(subject, tree) },
  refusal: { entry: (tree, subject) => refusalEntry(subject, tree) },
  poll: { entry: (tree, subject) => pollEntry(tree, subject) },
  upload: { entry: (tree, subject, world) => uploadEntry(world, subject, tree), within: withUploadUpstream },
};

/** The names that --profile takes. */
export const PROFILES = Object.keys(LOADS);

/** Where the time of one kind of load went. Shares are of all time that was not idle, largest first. */
export interface Profile {
  groups: Share[];
  functions: Share[];
  /** Calls and microseconds of Redis per request, by command. */
  redis: { command: string; calls: number; us: number }[];
  /** For Chrome's DevTools. */
  file: string;
}
type Share = [label: string, share: number];

/** Puts a gateway under one kind of load with V8's profiler on. */
export async function takeProfile(context: Context, name: string): Promise<Profile> {
  const { entry, within = (world, run) => run(world) } = LOADS[name]!;
  const [tree] = context.trees as [Tree];
  const folder = mkdtempSync(join(tmpdir(), "tollgate-profile-"));
  const subject = gatewaySubject(tree, { nodeArgs: ["--cpu-prof", `--cpu-prof-dir=${folder}`] });
  return within(context.world, async (world) => {
    const span = await underLoad({ ...context, world }, entry(tree, subject, world), tree);
    const [file] = readdirSync(folder).filter((each) => each.endsWith(".cpuprofile"));
    if (file === undefined) throw new Error(`the gateway left no profile in ${folder}`);
    const written = JSON.parse(readFileSync(join(folder, file), "utf8")) as CpuProfile;
    return { ...sharesOf(written, tree.root, span), redis: span.redis, file: join(folder, file) };
  });
}

interface Span {
  fromUs: number;
  untilUs: number;
  redis: Profile["redis"];
}

async function underLoad(context: Context, entry: Entry, tree: Tree): Promise<Span> {
  const { world, seconds, warmUpSeconds } = context;
  await emptyStore(world);
  const keys = await issueKeys(tree, world.redis, entry.keys, entry.limits);
  const running = await entry.subject.start(world, keys);
  try {
    const wanted = await entry.targets(keys, running, world);
    const targets = typeof wanted === "string" ? wanted : writeTargets(world.folder, "targets", wanted);
    const { connections = 64 } = entry;
    const load = (length: number) =>
      saturate(world.folder, running.url, targets, { seconds: length, connections });
    await warmUp(load, warmUpSeconds);
    await world.redis.config("RESETSTAT");
    const fromUs = monotonicUs();
    const { requests } = await load(seconds);
    const untilUs = monotonicUs();
    return { fromUs, untilUs, redis: commandsOf(await world.redis.info("commandstats"), requests) };
  } finally {
    await running.stop();
  }
}

/** Redis's own account of its commands; those that a script calls have lines of their own. */
function commandsOf(info: string, requests: number): Profile["redis"] {
  const lines = [...info.matchAll(/^cmdstat_(\S+?):calls=(\d+),usec=(\d+)/gm)];
  return lines
    .map(([, command = "", calls, us]) => ({
      command,
      calls: Number(calls) / requests,
      us: Number(us) / requests,
    }))
    .toSorted((a, b) => b.us - a.us);
}

/** Takes a profile and prints it. */
export async function profile(context: Context, name: string): Promise<void> {
  const { groups, functions, file } = await takeProfile(context, name);
  const table = (title: string, shares: readonly Share[]): string =>
    [
      title,
      ...shares.slice(0, SHOWN).map(([label, share]) => `${percent(share).padStart(6)} %  ${label}`),
    ].join("\n");
  process.stdout.write(`${table("By group", groups)}\n\n${table("By function", functions)}\n`);
  context.progress(`\nFor Chrome's DevTools: ${file}`);
}

export const percent = (share: number): string => short(share * 100);

/** Self time by group and by function, as shares of all time under load that was not idle. */
function sharesOf(
  { nodes, samples, timeDeltas, startTime }: CpuProfile,
  root: string,
  { fromUs, untilUs }: Span,
): Pick<Profile, "groups" | "functions"> {
  const frames = new Map(nodes.map(({ id, callFrame }) => [id, callFrame]));
  const groups = new Map<string, number>();
  const functions = new Map<string, number>();
  let all = 0;
  let atUs = startTime;
  for (const [at, id] of samples.entries()) {
    const spent = timeDeltas[at] ?? 0;
    atUs += spent;
    const frame = frames.get(id);
    if (!frame || atUs < fromUs || atUs > untilUs || frame.functionName === "(idle)") continue;
    all += spent;
    const place = placeOf(frame.url, root);
    const group = groupOf(frame.functionName, place);
    groups.set(group, (groups.get(group) ?? 0) + spent);
    const label = `${frame.functionName || "(anonymous)"}  ${place}${place && `:${frame.lineNumber + 1}`}`;
    functions.set(label, (functions.get(label) ?? 0) + spent);
  }
  const shares = (sums: Map<string, number>): Share[] =>
    [...sums].sort(([, a], [, b]) => b - a).map(([label, spent]) => [label, spent / all]);
  return { groups: shares(groups), functions: shares(functions) };
}

/** A script's place without what lies before the tree or its packages. */
function placeOf(url: string, root: string): string {
  const path = url.replace("file://", "");
  const inPackage = path.lastIndexOf("node_modules/");
  if (inPackage >= 0) return path.slice(inPackage + "node_modules/".length);
  return path.startsWith(`${root}/`) ? path.slice(root.length + 1) : path;
}

/** A folder of the gateway, a package, a part of Node, or what V8 does by itself. */
function groupOf(name: string, place: string): string {
  if (place === "") return name === "(garbage collector)" ? "garbage collection" : "native code and V8";
  if (place.startsWith("node:")) return place.split("/").slice(0, 2).join("/");
  const parts = place.split("/");
  return parts[0] === "src"
    ? parts.slice(0, 2).join("/")
    : parts[0]!.startsWith("@")
      ? parts.slice(0, 2).join("/")
      : parts[0]!;
}
