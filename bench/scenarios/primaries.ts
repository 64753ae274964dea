import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { cpuUs, processTree } from "../cpu.ts";
import { watchCore } from "../foreign.ts";
import { pace } from "../load/paced.ts";
import { saturate, type Target, warmUp, writeTargets } from "../load/wrk.ts";
import { generationTarget } from "../requests.ts";
import type { Context, Outcome, Scenario, Table } from "../scenario.ts";
import { startGateway } from "../subjects/gateway.ts";
import type { RunningSubject } from "../subjects/subject.ts";
import { judge, short } from "../targets.ts";
import { issueKeysOn, type Server, startCluster, startPrimary, type Topology } from "../topologies.ts";
import type { Tree } from "../tree.ts";
import { median } from "./compare.ts";
import { fleetTable, type GenerationCost } from "./fleet.ts";

const KEYS = 1000;
/** For each primary: one that serves a third of the load has smaller batches, and costs more. */
const CONNECTIONS = 64;
const PRIMARIES = 3;
/** So many connections that no request waits for one: a charge that waits for a replica keeps its connection longer. */
const PACED = { perSecond: 1000, connections: 64, seconds: 4 };
/** A latency counts only from stretches in which nobody else used the core, and so many of them. */
const CALM_MIN = 3;
/** Stretches alternate, so that what drifts meets all; more of them than rounds of other scenarios, for each is short. */
const STRETCHES_PER_ROUND = 2;
/** No sweep falls into a stretch: the tasks of all stretches before would be its work. */
const GATEWAY = { tasks: "sweep_interval: 1m, sweep_polls_per_second: 1" };
const SAMPLE_MS = 20;

/** A gateway in front of a store. */
interface Fleet {
  name: string;
  topology: Topology;
  gateway: RunningSubject;
  folder: string;
  /** The gateways of the other fleets, which are idle on the same core. */
  besides(): number[];
  connections: number;
  targets: Target[];
  stretches: Stretch[];
  /** At a fixed rate, at which nearly every call is by itself. */
  paced: Stretch[];
  p50Us: number[];
}

/** Microseconds of processor time, and bytes, per generation. */
export interface Stretch {
  gatewayUs: number;
  /** Of all primaries together. */
  redisUs: number;
  /** Of each primary, per generation that it served itself. */
  primaryUs: number[];
  replicaUs: number;
  /** Calls of scripts, at all primaries together. */
  calls: number;
  /** Written to the stream of replication. */
  replicationBytes: number;
  disturbed: string | undefined;
}

export const primaries: Scenario = {
  title: "Several primaries, and confirmed charges",
  quick: false,
  needs: ["taskset", "wrk", "nginx"],
  targets: ["gatewayByPrimaries", "redisByPrimaries", "throughputByPrimaries", "confirmCost", "confirmP50"],
  async run(context): Promise<Outcome> {
    const topologies: Topology[] = [];
    const gateways: RunningSubject[] = [];
    try {
      const fleets = await startFleets(context, topologies, gateways);
      for (const fleet of fleets) await warm(context, fleet);
      for (let stretch = 0; stretch < context.rounds * STRETCHES_PER_ROUND; stretch++) {
        const order = stretch % 2 === 0 ? fleets : fleets.toReversed();
        for (const fleet of order) fleet.stretches.push(await saturated(context, fleet));
        context.progress(`  ${fleets.map(progressOf).join("; ")}`);
      }
      const roundTripUs = await measureLatency(context, fleets);
      return outcomeOf(fleets, roundTripUs);
    } finally {
      for (const gateway of gateways) await gateway.stop();
      for (const topology of topologies) await topology.stop();
    }
  },
};

const [ONE, THREE, SPARSE, CLUSTERED, UNCONFIRMED, CONFIRMED] = [
  "one primary",
  "three primaries",
  "three primaries, with the connections of one",
  "a cluster of one primary",
  "one primary with a replica",
  "the same, charges confirmed",
] as const;

async function startFleets(
  { world, trees }: Context,
  topologies: Topology[],
  gateways: RunningSubject[],
): Promise<Fleet[]> {
  const [tree] = trees as [Tree];
  const fleets: Fleet[] = [];
  const begin = async (name: string, topology: Topology, store = "confirm_replicas: 0"): Promise<Fleet> => {
    const folder = join(world.folder, `fleet-${fleets.length}`);
    mkdirSync(folder, { recursive: true });
    const { redisUrl } = topology;
    const keys = await issueKeysOn(topology, KEYS);
    const gateway = await startGateway({ ...world, folder, redisUrl }, tree, { ...GATEWAY, store });
    gateways.push(gateway);
    const targets = keys.map(generationTarget);
    const connections = CONNECTIONS * topology.primaries.length;
    const besides = () => gateways.filter((other) => other !== gateway).map(({ pid }) => pid);
    const fleet = {
      besides,
      name,
      topology,
      gateway,
      folder,
      connections,
      targets,
      stretches: [],
      paced: [],
      p50Us: [],
    };
    fleets.push(fleet);
    return fleet;
  };
  const add = async (starting: Promise<Topology>): Promise<Topology> => {
    const topology = await starting;
    topologies.push(topology);
    return topology;
  };
  await begin(ONE, await add(startPrimary(join(world.folder, "one"))));
  const three = await begin(THREE, await add(startCluster(join(world.folder, "three"), PRIMARIES)));
  fleets.push({ ...three, name: SPARSE, connections: CONNECTIONS, stretches: [], paced: [], p50Us: [] });
  await begin(CLUSTERED, await add(startCluster(join(world.folder, "clustered"), 1)));
  const replicated = await add(startPrimary(join(world.folder, "replicated"), { withReplica: true }));
  await begin(UNCONFIRMED, replicated);
  await begin(CONFIRMED, replicated, "confirm_replicas: 1");
  return fleets;
}

const load = ({ folder, gateway, connections, targets }: Fleet, seconds: number) =>
  saturate(folder, gateway.url, writeTargets(folder, "targets", targets), { seconds, connections });

async function warm({ progress, warmUpSeconds }: Context, fleet: Fleet): Promise<void> {
  progress(`  ${fleet.name}: warm-up`);
  await warmUp((seconds) => load(fleet, seconds), warmUpSeconds);
}

/** As many generations as the gateway bears. */
const saturated = ({ seconds }: Context, fleet: Fleet): Promise<Stretch> =>
  measured(fleet, async () => {
    const { requests, unsuccessful, broken } = await load(fleet, seconds);
    if (unsuccessful + broken > 0)
      throw new Error(`${fleet.name}: ${unsuccessful + broken} of ${requests} requests were not answered`);
    return requests;
  });

/** @param run puts a load on the fleet, and answers how many generations it was */
async function measured(fleet: Fleet, run: () => Promise<number>): Promise<Stretch> {
  const { gateway, topology, besides } = fleet;
  const pids = processTree(gateway.pid);
  const servers = [...topology.primaries, ...(topology.replica ? [topology.replica] : [])];
  const read = async () => ({
    gatewayUs: cpuUs(pids),
    serverUs: servers.map(({ pid }) => cpuUs([pid])),
    commands: await Promise.all(topology.primaries.map(commandsOf)),
    replicated: await replicationOffset(topology.primaries[0]!),
  });
  const watched = watchCore([...pids, ...besides().flatMap(processTree)]);
  const before = await read();
  const requests = await run();
  const after = await read();
  const disturbed = watched.end();
  const serverUs = after.serverUs.map((us, at) => us - before.serverUs[at]!);
  const during = after.commands.map((commands, at) => ({
    calls: commands.calls - before.commands[at]!.calls,
    charges: commands.charges - before.commands[at]!.charges,
  }));
  const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
  const served = during.map(({ charges }) => charges);
  const primaryUs = serverUs.slice(0, served.length);
  return {
    gatewayUs: (after.gatewayUs - before.gatewayUs) / requests,
    redisUs: sum(primaryUs) / requests,
    primaryUs: primaryUs.map((us, at) => us / served[at]!),
    replicaUs: topology.replica ? serverUs.at(-1)! / requests : 0,
    calls: sum(during.map(({ calls }) => calls)) / requests,
    replicationBytes: (after.replicated - before.replicated) / requests,
    disturbed,
  };
}

/** How often a server has run scripts, and has made a charge: an entry of the ledger. */
async function commandsOf({ redis }: Server): Promise<{ calls: number; charges: number }> {
  const stats = await redis.info("commandstats");
  const count = (command: string): number =>
    Number(new RegExp(`^cmdstat_${command}:calls=(\\d+)`, "m").exec(stats)?.[1] ?? 0);
  return { calls: count("evalsha"), charges: count("xadd") };
}

async function replicationOffset({ redis }: Server): Promise<number> {
  return Number(/^master_repl_offset:(\d+)/m.exec(await redis.info("replication"))?.[1] ?? 0);
}

/**
 * Generations at a fixed rate, in turn with and without confirmation.
 * @returns the median time of a write until the replica has it, microseconds, under the same load
 */
async function measureLatency({ rounds, progress }: Context, fleets: readonly Fleet[]): Promise<number> {
  const roundTrips: number[] = [];
  const pacedLoad = ({ folder, gateway, targets }: Fleet) => pace(folder, gateway.url, targets, PACED);
  const pacedStretch = (fleet: Fleet): Promise<Stretch> =>
    measured(fleet, async () => {
      const { requests, p50Us } = await pacedLoad(fleet);
      fleet.p50Us.push(p50Us);
      return requests;
    });
  const unconfirmed = fleetOf(fleets, UNCONFIRMED);
  const paced = fleets.filter(({ name }) => name !== SPARSE);
  for (let round = 0; round < rounds * STRETCHES_PER_ROUND; round++) {
    for (const fleet of round % 2 === 0 ? paced : paced.toReversed())
      fleet.paced.push(await pacedStretch(fleet));
    if (round % STRETCHES_PER_ROUND > 0) continue;
    const sampling = sampleRoundTrips(unconfirmed.topology);
    await pacedLoad(unconfirmed);
    roundTrips.push(...(await sampling.end()));
    progress(`  p50: ${paced.map(({ name, p50Us }) => `${name} ${p50Us.at(-1)} us`).join("; ")}`);
  }
  return median(roundTrips);
}

function sampleRoundTrips({ primaries }: Topology): { end(): Promise<number[]> } {
  const { redis } = primaries[0]!;
  const samples: number[] = [];
  let ended = false;
  const sampling = (async () => {
    while (!ended) {
      const startedMs = performance.now();
      await redis.pipeline().set("bench:round-trip", "1").wait(1, 1000).exec();
      samples.push((performance.now() - startedMs) * 1000);
      await delay(SAMPLE_MS);
    }
  })();
  return {
    async end() {
      ended = true;
      await sampling;
      return samples;
    },
  };
}

const fleetOf = (fleets: readonly Fleet[], name: string): Fleet =>
  fleets.find((fleet) => fleet.name === name)!;

/** The median of one figure of a fleet's stretches. */
const of = ({ stretches }: Fleet, figure: (stretch: Stretch) => number): number =>
  median(stretches.map(figure));

const costOf = (stretches: readonly Stretch[]): GenerationCost => ({
  gatewayUs: median(stretches.map(gatewayUs)),
  primaryUs: median(stretches.map(redisUs)),
  replicaUs: median(stretches.map(({ replicaUs }) => replicaUs)),
  replicationBytes: median(stretches.map(({ replicationBytes }) => replicationBytes)),
});

/** Each stretch beside the one of the same round: the median of their ratios. */
const ratio = (a: Fleet, b: Fleet, figure: (stretch: Stretch) => number): number =>
  median(a.stretches.map((stretch, at) => figure(stretch) / figure(b.stretches[at]!)));

const gatewayUs = ({ gatewayUs }: Stretch): number => gatewayUs;
const redisUs = ({ redisUs }: Stretch): number => redisUs;
const cost = (stretch: Stretch): number => stretch.gatewayUs + stretch.redisUs;
const dearestUs = ({ primaryUs }: Stretch): number => Math.max(...primaryUs);

const progressOf = (fleet: Fleet): string => {
  const { gatewayUs, redisUs, disturbed } = fleet.stretches.at(-1)!;
  return `${fleet.name} ${short(gatewayUs)} + ${short(redisUs)} us${disturbed ? " !" : ""}`;
};

function outcomeOf(fleets: readonly Fleet[], roundTripUs: number): Outcome {
  const [one, three, unconfirmed, confirmed] = [ONE, THREE, UNCONFIRMED, CONFIRMED].map((name) =>
    fleetOf(fleets, name),
  ) as [Fleet, Fleet, Fleet, Fleet];
  const redisByPrimaries = ratio(three, one, dearestUs);
  const addedUs = calmP50Us(confirmed) - calmP50Us(unconfirmed);
  return {
    method: `Gateways that run at the same time, ${KEYS} keys each and ${CONNECTIONS} connections for each primary, get the load of "Generation" in turn; ratios are medians over ${one.stretches.length} pairs of neighbouring stretches. The three primaries are a Redis Cluster with 21, 21 and 22 of 64 partitions; what each costs is its processor time over the charges that it made itself. "calls" are those of scripts per generation: what arrives at a time is spread over three, so calls carry less. The cluster of one primary shows what is left: a task id is claimed by a command of its own, and the server checks the slot of each name that a script uses. All servers share one core with the load, so the throughput of three primaries is computed: what the busiest can serve with its share of the partitions, over what one can serve with all. p50 counts only stretches that nobody disturbed. A replica round trip is a write and a WAIT for one replica, under 1,000 generations a second. "Redis" is the primaries without the replica. Sweeps hardly run. The fleet on paper has the costs of confirmed charges; its cores are half busy. A process that spreads its calls over many primaries sends most of them by themselves, as here at ${PACED.perSecond} generations a second; the fewer primaries each has, the nearer it comes to full batches. Polls come on top: three cost about as much as a generation.`,
    tables: [costTable(fleets), fleetTable(costOf(confirmed.stretches), costOf(confirmed.paced))],
    verdicts: [
      judge("gatewayByPrimaries", ratio(three, one, gatewayUs)),
      judge("redisByPrimaries", redisByPrimaries),
      judge("throughputByPrimaries", 1 / (redisByPrimaries * three.topology.busiestShare)),
      judge("confirmCost", ratio(confirmed, unconfirmed, cost)),
      judge(
        "confirmP50",
        addedUs / roundTripUs,
        `${short(addedUs)} us, ${short(addedUs / roundTripUs)} of a round trip of ${short(roundTripUs)} us`,
      ),
    ],
    disturbed: fleets.flatMap(({ name, stretches, paced }) => [
      ...disturbancesOf(name, stretches),
      ...disturbancesOf(`${name}, at ${PACED.perSecond}/s`, paced),
    ]),
    figures: {
      roundTripUs,
      fleets: fleets.map(({ name, stretches, paced, p50Us }) => ({ name, stretches, paced, p50Us })),
    },
  };
}

const disturbancesOf = (name: string, stretches: readonly Stretch[]): string[] =>
  stretches.flatMap(({ disturbed }, at) => (disturbed ? [`${name}, stretch ${at + 1}: ${disturbed}`] : []));

/** NaN where too few stretches were undisturbed. */
function calmP50Us({ paced, p50Us }: Fleet): number {
  const calm = p50Us.filter((_, at) => paced[at]!.disturbed === undefined);
  return calm.length < CALM_MIN ? Number.NaN : median(calm);
}

const costTable = (fleets: readonly Fleet[]): Table => ({
  columns: ["", "CPU us", "Redis us", "dearest primary us", "calls", "replica us", "p50 us at 1,000/s"],
  rows: fleets.map((fleet) => [
    fleet.name,
    short(of(fleet, gatewayUs)),
    short(of(fleet, redisUs)),
    short(of(fleet, dearestUs)),
    short(of(fleet, ({ calls }) => calls)),
    fleet.topology.replica ? short(of(fleet, ({ replicaUs }) => replicaUs)) : "",
    short(calmP50Us(fleet)),
  ]),
});
