import { processTree } from "../cpu.ts";
import { watchCore } from "../foreign.ts";
import { issueKeys } from "../keys.ts";
import { type PacedResult, pace } from "../load/paced.ts";
import { generationTarget } from "../requests.ts";
import type { Context, Outcome, Scenario, Table } from "../scenario.ts";
import { recordCalls } from "../subjects/calls.ts";
import { gatewaySubject } from "../subjects/gateway.ts";
import { nginxLuaSubject } from "../subjects/nginx-lua.ts";
import { nodeSubject } from "../subjects/node.ts";
import type { RunningSubject, Subject } from "../subjects/subject.ts";
import { judge, short } from "../targets.ts";
import type { Tree } from "../tree.ts";
import { apart, type World } from "../world.ts";
import { median } from "./compare.ts";

const KEYS = 1000;
const LOAD = { perSecond: 1000, connections: 8, seconds: 5 };
/** Rounds that end before this time after the start of the last program are those of the first minute. */
const FIRST_MS = 60_000;
const NGINX = "nginx + Lua";

/** No program at all: the load goes to the upstream itself. */
const direct: Subject = {
  name: "direct",
  native: true,
  start: async (world) => ({ url: world.upstreamUrl, pid: process.pid, stop: async () => {} }),
};

/** A program that takes part in the comparison. */
interface Program {
  subject: Subject;
  /** Whose code makes the keys. */
  tree: Tree;
  /** Left out of the first minute, which has time for few slices. */
  isExtra: boolean;
}

interface Running extends Program {
  own: World;
  started: RunningSubject;
  load(): Promise<PacedResult>;
  slices: Slice[];
}

interface Slice extends PacedResult {
  round: number;
  isFirst: boolean;
  /** Why the figures are not to be trusted; undefined when nothing was noticed. */
  disturbed: string | undefined;
}

async function programsOf({ world, trees, full, has }: Context): Promise<Program[]> {
  const [tree] = trees as [Tree];
  const programs: Program[] = [];
  const add = (subject: Subject, own = tree, isExtra = false): void =>
    void programs.push({ subject, tree: own, isExtra });
  if (has("nginx-lua")) add(nginxLuaSubject(tree, await recordCalls(world, tree)));
  for (const each of trees.toReversed()) add(gatewaySubject(each), each);
  if (!full) return programs;
  add(direct, tree, true);
  if (has("node-peers")) {
    add(nodeSubject("bare undici", "undici.js"), tree, true);
    add(nodeSubject("fastify stack", "fastify.js"), tree, true);
  }
  return programs;
}

/** Starts all of them, each on a Redis of its own, in as short a time as possible. */
async function startAll({ world }: Context, programs: readonly Program[], running: Running[]): Promise<void> {
  const prepared = [];
  for (const [nth, program] of programs.entries()) {
    const own = await apart(world, `latency-${nth}`);
    prepared.push({ program, own, keys: await issueKeys(program.tree, own.redis, KEYS) });
  }
  for (const { program, own, keys } of prepared) {
    const started = await program.subject.start(own, keys);
    const targets = keys.map(({ key }) => generationTarget(key));
    const load = () => pace(own.folder, started.url, targets, LOAD);
    running.push({ ...program, own, started, load, slices: [] });
  }
}

async function measureRound(
  { progress }: Context,
  running: readonly Running[],
  round: number,
  firstMs: number,
) {
  const regular = running.filter(({ isExtra }) => !isExtra);
  const isFirst = performance.now() + regular.length * LOAD.seconds * 1000 < firstMs;
  const present = isFirst ? regular : running;
  for (const { subject, started, load, slices } of round % 2 ? present.toReversed() : present) {
    const watched = watchCore(subject === direct ? [] : processTree(started.pid));
    const result = await load();
    const disturbed = watched.end();
    slices.push({ ...result, round, isFirst, disturbed });
    progress(
      `  slice ${round}, ${subject.name}: p50 ${result.p50Us} us, p99 ${result.p99Us} us, worst ${result.maxUs} us${disturbed ? `; disturbed: ${disturbed}` : ""}`,
    );
  }
}

type Figure = (slice: Slice) => number;
const p50: Figure = ({ p50Us }) => p50Us;
const p90: Figure = ({ p90Us }) => p90Us;
const p99: Figure = ({ p99Us }) => p99Us;

/** The median of the ratios to nginx + Lua, slice by slice. */
function ratioOf(running: readonly Running[], name: string, isFirst: boolean, figure: Figure): number {
  const slicesOf = (wanted: string) => running.find(({ subject }) => subject.name === wanted)?.slices ?? [];
  const ratios = slicesOf(name)
    .filter((slice) => slice.isFirst === isFirst)
    .flatMap((slice) => {
      const other = slicesOf(NGINX).find(({ round }) => round === slice.round);
      return other ? [figure(slice) / figure(other)] : [];
    });
  return median(ratios);
}

function tableOf(running: readonly Running[], isFirst: boolean): Table {
  const rows = running.flatMap(({ subject: { name }, slices }) => {
    const own = slices.filter((slice) => slice.isFirst === isFirst);
    if (own.length === 0) return [];
    const of = (figure: Figure): string => String(median(own.map(figure)));
    const ratio = (figure: Figure): string => `${short(ratioOf(running, name, isFirst, figure))} x`;
    return [
      [
        name,
        ...[of(p50), ratio(p50), of(p90), ratio(p90), of(p99), ratio(p99)],
        ...[of(({ p999Us }) => p999Us), of(({ maxUs }) => maxUs)],
        own.map((slice) => slice.p99Us + (slice.disturbed ? " !" : "")).join(", "),
      ],
    ];
  });
  return {
    columns: [
      isFirst ? "in the first minute" : "later",
      ...["p50 us", "of nginx + Lua", "p90 us", "of nginx + Lua", "p99 us", "of nginx + Lua"],
      ...["p99.9 us", "worst us", "p99 us by slice"],
    ],
    rows,
  };
}

function outcomeOf(running: readonly Running[], ours: string): Outcome {
  return {
    method: `${LOAD.perSecond} generations a second over ${LOAD.connections} connections as an open loop: a request that must wait for a connection counts from when it was due. All programs run at the same time without a warm-up and take turns in slices of ${LOAD.seconds} s. Medians over the slices; ratios are medians of those slice by slice.`,
    tables: [tableOf(running, true), tableOf(running, false)],
    verdicts: [
      judge("p50First", ratioOf(running, ours, true, p50)),
      judge("p99First", ratioOf(running, ours, true, p99)),
      judge("p50Later", ratioOf(running, ours, false, p50)),
      judge("p99Later", ratioOf(running, ours, false, p99)),
    ],
    disturbed: running.flatMap(({ subject, slices }) =>
      slices.flatMap(({ round, disturbed }) =>
        disturbed ? [`${subject.name}, slice ${round}: ${disturbed}`] : [],
      ),
    ),
    figures: Object.fromEntries(running.map(({ subject, slices }) => [subject.name, slices])),
  };
}

export const latency: Scenario = {
  title: "Latency at 1,000 requests a second",
  quick: false,
  needs: ["taskset", "nginx"],
  targets: ["p50First", "p99First", "p50Later", "p99Later"],
  async run(context): Promise<Outcome> {
    const [tree] = context.trees as [Tree];
    const running: Running[] = [];
    try {
      await startAll(context, await programsOf(context), running);
      const firstMs = performance.now() + FIRST_MS;
      for (let round = 1; round <= context.rounds; round++)
        await measureRound(context, running, round, firstMs);
      return outcomeOf(running, tree.name);
    } finally {
      for (const { started, own } of running) {
        await started.stop();
        await own.stop();
      }
    }
  },
};
