import { setTimeout as delay } from "node:timers/promises";
import { processTree } from "../cpu.ts";
import { watchCore } from "../foreign.ts";
import { emptyStore, issueKeys } from "../keys.ts";
import { type PacedResult, pace } from "../load/paced.ts";
import { saturate, warmUp, writeTargets } from "../load/wrk.ts";
import { generationTarget } from "../requests.ts";
import type { Context, Outcome, Scenario } from "../scenario.ts";
import { recordCalls } from "../subjects/calls.ts";
import { gatewaySubject } from "../subjects/gateway.ts";
import { nginxLuaSubject } from "../subjects/nginx-lua.ts";
import { nodeSubject } from "../subjects/node.ts";
import { type Subject, warmUpOf } from "../subjects/subject.ts";
import { judge } from "../targets.ts";
import type { Tree } from "../tree.ts";
import { median } from "./compare.ts";

const KEYS = 1000;
const LOAD = { perSecond: 1000, connections: 8 };
const SETTLE_SECONDS = 3;
const SECONDS = 10;
/** Between two programs, so that what the last one left behind is over. */
const PAUSE_MS = 500;

/** No program at all: the load goes to the upstream itself. */
const direct: Subject = {
  name: "direct",
  native: true,
  start: async (world) => ({ url: world.upstreamUrl, pid: process.pid, stop: async () => {} }),
};

/** What one round found, and why it is not to be trusted, if so. */
type Paced = PacedResult & { disturbed: string | undefined };

/** One program at a fixed rate, from an empty store. */
async function once({ world, warmUpSeconds }: Context, subject: Subject, tree: Tree): Promise<Paced> {
  await emptyStore(world);
  const keys = await issueKeys(tree, world.redis, KEYS);
  const running = await subject.start(world, keys);
  try {
    const targets = keys.map(({ key }) => generationTarget(key));
    const file = writeTargets(world.folder, "targets", targets);
    await warmUp(
      (seconds) => saturate(world.folder, running.url, file, { seconds, connections: 64 }),
      warmUpOf(subject, warmUpSeconds),
    );
    await pace(world.folder, running.url, targets, { ...LOAD, seconds: SETTLE_SECONDS });
    const watched = watchCore(subject === direct ? [] : processTree(running.pid));
    const result = await pace(world.folder, running.url, targets, { ...LOAD, seconds: SECONDS });
    return { ...result, disturbed: watched.end() };
  } finally {
    await running.stop();
    await delay(PAUSE_MS);
  }
}

/** What is compared, each with the tree whose keys it is given. */
async function subjectsOf({ world, trees, has }: Context): Promise<[Subject, Tree][]> {
  const [tree] = trees as [Tree];
  const subjects: [Subject, Tree][] = [
    [direct, tree],
    ...trees.map((each) => [gatewaySubject(each), each] as [Subject, Tree]),
  ];
  if (has("nginx-lua")) subjects.push([nginxLuaSubject(tree, await recordCalls(world, tree)), tree]);
  if (has("node-peers")) {
    subjects.push(
      [nodeSubject("bare undici", "undici.js"), tree],
      [nodeSubject("fastify stack", "fastify.js"), tree],
    );
  }
  return subjects;
}

export const latency: Scenario = {
  title: "Latency at 1,000 requests a second",
  quick: false,
  needs: ["taskset", "wrk", "nginx"],
  targets: ["p50", "p99"],
  async run(context): Promise<Outcome> {
    const { trees, rounds, progress } = context;
    const [tree] = trees as [Tree];
    const subjects = await subjectsOf(context);
    const results = new Map<string, Paced[]>(subjects.map(([{ name }]) => [name, []]));
    for (let round = 1; round <= rounds; round++) {
      for (const [subject, each] of subjects) {
        const result = await once(context, subject, each);
        results.get(subject.name)!.push(result);
        progress(
          `  round ${round}, ${subject.name}: p50 ${result.p50Us} us, p99 ${result.p99Us} us, worst ${result.maxUs} us`,
        );
      }
    }
    const of = (name: string, figure: (result: PacedResult) => number) =>
      median((results.get(name) ?? []).map(figure));
    const ratio = (figure: (result: PacedResult) => number) =>
      of(tree.name, figure) / of("nginx + Lua", figure);
    const columns = [
      "",
      "p50 us",
      "added",
      "p90 us",
      "p99 us",
      "added",
      "p99.9 us",
      "worst us",
      "p50 us by round",
    ];
    const rows = [...results].map(([name, each]) => {
      const [p50, p99] = [of(name, ({ p50Us }) => p50Us), of(name, ({ p99Us }) => p99Us)];
      return [
        name,
        p50,
        p50 - of("direct", ({ p50Us }) => p50Us),
        of(name, ({ p90Us }) => p90Us),
        p99,
        p99 - of("direct", ({ p99Us }) => p99Us),
        of(name, ({ p999Us }) => p999Us),
        of(name, ({ maxUs }) => maxUs),
        each.map(({ p50Us }) => p50Us).join(", "),
      ].map(String);
    });
    return {
      method: `${LOAD.perSecond} generations a second over ${LOAD.connections} connections for ${SECONDS} s, as an open loop: a request that must wait for a connection counts from when it was due. Medians over the rounds; "added" is over the direct call.`,
      tables: [{ columns, rows }],
      verdicts: [
        judge(
          "p50",
          ratio(({ p50Us }) => p50Us),
        ),
        judge(
          "p99",
          ratio(({ p99Us }) => p99Us),
        ),
      ],
      disturbed: [...results].flatMap(([name, each]) =>
        each.flatMap(({ disturbed }, at) => (disturbed ? [`${name}, round ${at + 1}: ${disturbed}`] : [])),
      ),
      figures: Object.fromEntries(results),
    };
  },
};
