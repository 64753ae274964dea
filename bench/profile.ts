import { mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { emptyStore, issueKeys } from "./keys.ts";
import { saturate, writeTargets } from "./load/wrk.ts";
import type { Context } from "./scenario.ts";
import type { Entry } from "./scenarios/compare.ts";
import { generationEntry } from "./scenarios/generation.ts";
import { pollEntry } from "./scenarios/poll.ts";
import { refusalEntry } from "./scenarios/refusal.ts";
import { gatewaySubject } from "./subjects/gateway.ts";
import { short } from "./targets.ts";
import type { Tree } from "./tree.ts";

const WARM_UP_SECONDS = 2;
const FUNCTIONS_SHOWN = 40;

/** The clock that V8 stamps its samples with. */
const monotonicUs = (): number => Number(process.hrtime.bigint() / 1000n);

/** What V8 writes with --cpu-prof. */
interface CpuProfile {
  nodes: { id: number; callFrame: { functionName: string; url: string; lineNumber: number } }[];
  startTime: number;
  samples: number[];
  timeDeltas: number[];
}

const LOADS: Record<string, (tree: Tree, profileFolder: string) => Entry> = {
  generation: (tree, folder) => generationEntry(profiled(tree, folder), tree),
  refusal: (tree, folder) => refusalEntry(profiled(tree, folder), tree),
  poll: (tree, folder) => pollEntry(tree, profiled(tree, folder)),
};

const profiled = (tree: Tree, folder: string) =>
  gatewaySubject(tree, { nodeArgs: ["--cpu-prof", `--cpu-prof-dir=${folder}`] });

/** The names that --profile takes. */
export const PROFILES = Object.keys(LOADS);

/** Puts a gateway under one kind of load with V8's profiler on, and prints where its time went. */
export async function profile(context: Context, name: string): Promise<void> {
  const { world, trees, seconds, progress } = context;
  const [tree] = trees as [Tree];
  const folder = mkdtempSync(join(tmpdir(), "tollgate-profile-"));
  const entry = LOADS[name]!(tree, folder);
  await emptyStore(world);
  const keys = await issueKeys(tree, world.redis, entry.keys, entry.limits);
  const running = await entry.subject.start(world, keys);
  let fromUs = 0;
  let untilUs = 0;
  try {
    const wanted = await entry.targets(keys, running);
    const targets = typeof wanted === "string" ? wanted : writeTargets(world.folder, "targets", wanted);
    const load = (length: number) =>
      saturate(world.folder, running.url, targets, { seconds: length, connections: 64 });
    await load(WARM_UP_SECONDS);
    fromUs = monotonicUs();
    await load(seconds);
    untilUs = monotonicUs();
  } finally {
    await running.stop();
  }
  const [file] = readdirSync(folder).filter((each) => each.endsWith(".cpuprofile"));
  if (file === undefined) throw new Error(`the gateway left no profile in ${folder}`);
  print(JSON.parse(readFileSync(join(folder, file), "utf8")) as CpuProfile, tree.root, fromUs, untilUs);
  progress(`\nFor Chrome's DevTools: ${join(folder, file)}`);
}

/** Self time by group and by function, as shares of all time under load that was not idle. */
function print(
  { nodes, samples, timeDeltas, startTime }: CpuProfile,
  root: string,
  fromUs: number,
  untilUs: number,
): void {
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
  const table = (title: string, sums: Map<string, number>, most: number): string => {
    const sorted = [...sums].sort(([, a], [, b]) => b - a).slice(0, most);
    return [
      title,
      ...sorted.map(([label, spent]) => `${short((spent / all) * 100).padStart(6)} %  ${label}`),
    ].join("\n");
  };
  process.stdout.write(
    `${table("By group", groups, 40)}\n\n${table("By function", functions, FUNCTIONS_SHOWN)}\n`,
  );
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
