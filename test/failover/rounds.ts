import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import type { RedisBinary } from "../../src/sandbox/redis-server.ts";
import { callBackAtTheEnd } from "../fault/callbacks.ts";
import type { Verdict } from "../fault/checker.ts";
import { type Customer, generate } from "../fault/client.ts";
import { anyGateway, createFleet, type Fleet, type RunOptions, settlementsWaiting } from "../fault/fleet.ts";
import { isReady } from "../fault/gateways.ts";
import type { History } from "../fault/history.ts";
import { createRandom, seedFor } from "../fault/random.ts";
import { WEBHOOKS, type WebhookStage } from "../fault/webhook-stage.ts";
import { eventually } from "../fault/world.ts";
import { checkEnd, checkRound, type FailoverHistory } from "./checker.ts";
import { TOGETHER } from "./criteria-together.ts";
import { type Driver, startDriver, type Topology } from "./driver.ts";
import { startKilling } from "./killing.ts";
import { type Crowd, givenCrowd, type Load, serveAll, startLoad } from "./load.ts";
import { createOperators, isRevoked, type Operators } from "./operators.ts";
import { GATEWAYS, type PlannedRound } from "./plan.ts";
import { PARTITIONS } from "./slots.ts";
import { type Fault, losesConfirmed, type Strike } from "./strikes.ts";
import { takeoversSince, withFurtherTakeovers } from "./takeovers.ts";
import { callbackUrlBy, giveEndpointsToAll, giveEndpointsToSome } from "./webhook-crowd.ts";

export interface RoundsOptions extends RunOptions {
  topology: Topology;
  rounds: readonly PlannedRound[];
  /** Instead of the usual Redis. */
  binary?: RedisBinary | undefined;
  /** How long a store that does not come back is waited for; 30 s when left out. */
  waitMaxMs?: number;
  /** No further round after one that has violations. */
  stopsAtViolation?: boolean;
  /** All ends are told, to receivers of all manners, while gateways are killed one after the other. */
  webhooks?: boolean;
}

/** One round as it went. */
export interface Round {
  fault: Fault;
  /** How many gateways were killed along with the node. */
  gatewaysKilled: number;
  lostAllGateways: boolean;
  victim: string;
  /** When it was struck, Unix ms. */
  strikeMs: number;
  /** Writes that the primary took between these moments may be lost, Unix ms. */
  forgets: Strike["forgets"];
  /** Until the customers of each partition were served again, in ascending order, ms. */
  servedMs: number[];
  /** Findings of the checker after it. */
  violations: string[];
}

export interface Outcome {
  rounds: Round[];
  history: FailoverHistory;
  verdict: Verdict;
}

/** Shorter than the failures, longer than any healthy call on a busy machine. */
const COMMAND_TIMEOUT_MS = 500;
/** Until what has waited for this process is passed on, and answered. */
const PASSED_ON_MS = 500;
const WAIT_MAX_MS = 30_000;
const START_MAX_MS = 90_000;
const READS_MAX = 3;
/** Where unknown outcomes wait for a callback: beyond any failover, short enough that their holds end. */
const MAX_AGE_MS = 30_000;
/** Until all are served again, where a gateway that has just become ready may be killed. */
const SERVED_BESIDE_KILLS_MAX_MS = 30_000;
/** Each command of an operator starts a process, which a long round has not to spare all the time. */
const OPERATOR_REST_MS = 2000;

const running = new Set<() => Promise<void>>();

/** Ends everything that any campaign has started. */
export async function stopRounds(): Promise<void> {
  await Promise.all([...running].map((stop) => stop()));
}

/**
 * Rounds of load with a fault in the middle, over one store. After each round everything is healed, the load rests, what
 * waits is sent, and what customers and operators were told is compared with the store.
 */
export async function runRounds(options: RoundsOptions): Promise<Outcome> {
  const { folder, root, binary } = options;
  const startedMs = Date.now();
  const driver = await startDriver(options.topology, { folder: join(folder, "redis"), root, binary });
  const fleet = createFleet(
    options,
    GATEWAYS,
    // Also on one server, where a replica is nothing that gateways wait for by themselves.
    {
      commandTimeoutMs: COMMAND_TIMEOUT_MS,
      partitions: PARTITIONS,
      confirmReplicas: 1,
      // A gateway that is started while the primary is away serves as soon as there is another primary.
      waitsForStore: false,
      webhooks: WEBHOOKS,
      ...(options.webhooks && { maxAgeMs: MAX_AGE_MS }),
    },
    {
      listen: async () => driver.redisUrl,
      nodes: driver.nodes,
      linkEvents: () => driver.linkEvents().map((event) => ({ ...event })),
    },
  );
  const ended: (() => void)[] = [];
  const stop = async (): Promise<void> => {
    if (!running.delete(stop)) return;
    for (const end of ended) end();
    await fleet.stopGateways();
    await driver.stop();
  };
  running.add(stop);
  try {
    await fleet.startAll();
    if (!(await eventually(START_MAX_MS, () => allReady(fleet))))
      throw new Error("the gateways do not start");
    const { crowd, webhooks } = await prepare(options, driver, fleet);
    ended.push(() => webhooks.stop());
    const callbacks = options.webhooks ? callBackAtTheEnd(fleet) : undefined;
    const enabling = options.webhooks ? webhooks.startEnabling() : undefined;
    const operators = createOperators(fleet, driver.redisUrl, crowd.wide);
    const rounds: Round[] = [];
    const scene = { options, driver, fleet, crowd, webhooks, operators, rounds };
    for (const [at, planned] of options.rounds.entries()) {
      const round = await runRound(scene, planned, at);
      options.progress(formatRound(at, round));
      if (options.stopsAtViolation && round.violations.length > 0) break;
      // A store that does not come back does not come back in the next round.
      if (round.servedMs.length < crowd.wide.length) break;
    }
    await callbacks?.idle();
    const finished = await fleet.finish();
    await enabling?.stop();
    const seen = { operators: operators.events, rounds, failovers: takeovers(options, startedMs).length };
    const servedMaxMs = options.webhooks ? SERVED_BESIDE_KILLS_MAX_MS : undefined;
    const history = { ...finished, webhooks: await webhooks.facts(), ...seen, servedMaxMs };
    return { rounds, history, verdict: checkEnd(history, options.webhooks ? TOGETHER : []) };
  } finally {
    await stop();
  }
}

/** Nobody is ready for a failover yet, and a busy machine makes one for nothing. */
async function prepare({ webhooks }: RoundsOptions, driver: Driver, fleet: Fleet) {
  let prepared: { crowd: Crowd; webhooks: WebhookStage } | undefined;
  await driver.withoutFailover(async () => {
    const crowd = await givenCrowd(fleet);
    prepared = { crowd, webhooks: await (webhooks ? giveEndpointsToAll : giveEndpointsToSome)(fleet, crowd) };
  });
  return prepared!;
}

const takeovers = ({ folder }: RoundsOptions, sinceMs: number): number[] =>
  takeoversSince(join(folder, "redis"), sinceMs);

interface Scene {
  options: RoundsOptions;
  driver: Driver;
  fleet: Fleet;
  crowd: Crowd;
  webhooks: WebhookStage;
  operators: Operators;
  /** Rounds that have run. */
  rounds: Round[];
}

async function runRound(scene: Scene, planned: PlannedRound, at: number): Promise<Round> {
  const { options, driver, fleet, rounds } = scene;
  const { fault, partition } = planned;
  const startedMs = Date.now();
  const load = startLoadOf(scene, planned, at);
  await pause(planned.beforeMs);
  // No gateway sends an operator's command again.
  if (losesConfirmed(fault)) await load.restOperators();
  const strike = await driver.strike(fault, partition);
  // A gateway that is being started after another kill does not count yet.
  const killed = planned.killed.filter((slot) => fleet.gateways[slot] !== undefined);
  for (const slot of killed) fleet.kill(slot, `with ${strike.victim}`);
  fleet.note(fault, `${strike.victim} in round ${at}`);
  const restarted = Promise.all(killed.map((slot) => fleet.startIn(slot)));
  restarted.catch(() => undefined);
  const servedMs = await outlast(scene, strike, planned.awayMs);
  await restarted;
  await pause(planned.afterMs);
  await load.stop();
  await settle(scene);
  const { victim, atMs: strikeMs } = strike;
  const replaced = takeovers(options, startedMs);
  const forgets = withFurtherTakeovers(fault, strike, replaced);
  if (forgets !== strike.forgets) fleet.note("another failover", `${replaced.length} in round ${at}`);
  const killing = { gatewaysKilled: killed.length, lostAllGateways: killed.length === GATEWAYS };
  const round: Round = { fault, ...killing, victim, strikeMs, forgets, servedMs, violations: [] };
  rounds.push(round);
  // The comparison takes seconds in late rounds. Meanwhile this process passes nothing on between the nodes.
  await driver.withoutFailover(async () => {
    const seen = { operators: scene.operators.events, rounds, failovers: 0 };
    const history = { ...(await readHistory(scene)), ...seen };
    round.violations = checkRound(history).criteria.flatMap(({ violations }) => violations);
    await pause(PASSED_ON_MS);
  });
  return round;
}

/** Customers and an operator; in a campaign of webhooks gateways are killed all the while, too. */
function startLoadOf(scene: Scene, { fault }: PlannedRound, at: number): Load {
  const { options, fleet, webhooks } = scene;
  const random = createRandom(seedFor(fleet.options.seed, `load of round ${at}`));
  if (!options.webhooks) return startLoad({ ...scene, random, at });
  const load = startLoad({
    ...{ ...scene, random, at },
    ...{ operatorRestMs: OPERATOR_REST_MS, callbackUrl: callbackUrlBy(webhooks) },
  });
  if (losesConfirmed(fault)) return load;
  const killing = startKilling(fleet, createRandom(seedFor(fleet.options.seed, `kills of round ${at}`)));
  return { ...load, stop: async () => void (await Promise.all([killing.stop(), load.stop()])) };
}

/** On a busy machine a node that is well may be taken for dead, while the store is read. */
async function readHistory({ driver, fleet }: Scene): Promise<History> {
  for (let tries = 1; ; tries++) {
    try {
      return await fleet.history();
    } catch (error) {
      if (tries === READS_MAX) throw error;
      await driver.healthy();
    }
  }
}

/** Until every partition is served again, and the fault has ended. @returns how long it took for each, ms */
async function outlast(
  { options, driver, fleet, crowd }: Scene,
  strike: Strike,
  awayMs: number,
): Promise<number[]> {
  const waitMaxMs = options.waitMaxMs ?? WAIT_MAX_MS;
  if (driver.failsOver) {
    const served = await serveAll(fleet, crowd.wide, { sinceMs: strike.atMs, waitMaxMs });
    await strike.end();
    return served;
  }
  await pause(awayMs);
  const sinceMs = Date.now();
  await strike.end();
  return serveAll(fleet, crowd.wide, { sinceMs, waitMaxMs });
}

/** All nodes are back and in step, all gateways ready, nothing waits, and each key that an operator made was used. */
async function settle({ options, driver, fleet, operators }: Scene): Promise<void> {
  await driver.healthy();
  const isSettled = async (): Promise<boolean> =>
    (await allReady(fleet)) && (await settlementsWaiting(fleet)) === 0;
  const waitMaxMs = options.waitMaxMs ?? WAIT_MAX_MS;
  if (!(await eventually(waitMaxMs, isSettled))) fleet.note("not reached", "gateways ready, nothing waits");
  for (const customer of operators.customers) {
    const status = await useKey(fleet, customer, waitMaxMs);
    const wanted = isRevoked(operators.events, customer.keyId) ? [200, 401] : [200];
    if (!wanted.includes(status)) fleet.note("not reached", `${customer.keyId}: ${status}`);
  }
}

/** Sends a request with a key. A gateway is ready before it has all primaries. @returns the status that is no 503 */
async function useKey(fleet: Fleet, customer: Customer, waitMaxMs: number): Promise<number> {
  let status = 503;
  await eventually(waitMaxMs, async () => {
    const event = await generate(await anyGateway(fleet, 0), customer, { lifeMs: 1 });
    fleet.client.push(event);
    status = event.status;
    return status !== 503;
  });
  return status;
}

async function allReady({ gateways }: Fleet): Promise<boolean> {
  const ready = await Promise.all(gateways.map((gateway) => gateway && isReady(gateway)));
  return ready.every(Boolean);
}

const medianOf = (sorted: readonly number[]): number => sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;

/** When the slowest partition was served again, over some rounds: median and worst, ms. */
export function slowestMs(rounds: readonly Round[]): { median: number; worst: number } {
  const slowest = rounds.map(({ servedMs }) => servedMs.at(-1) ?? Number.NaN).sort((a, b) => a - b);
  return { median: medianOf(slowest), worst: slowest.at(-1) ?? Number.NaN };
}

function formatRound(at: number, { fault, gatewaysKilled, victim, servedMs, violations }: Round): string {
  const what = `${fault} of ${victim}${gatewaysKilled > 0 ? ` and ${gatewaysKilled} gateways` : ""}`;
  const served = `served again after ${medianOf(servedMs)} ms (median), ${servedMs.at(-1)} ms (last)`;
  const found = violations.length === 0 ? "" : `; ${violations.length} violations, such as: ${violations[0]}`;
  return `round ${at + 1}: ${what}; ${served}${found}`;
}
