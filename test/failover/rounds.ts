import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { partitionOf } from "../../src/store/names.ts";
import type { Verdict } from "../fault/checker.ts";
import { type Customer, generate } from "../fault/client.ts";
import { anyGateway, createFleet, type Fleet, type RunOptions, settlementsWaiting } from "../fault/fleet.ts";
import { isReady } from "../fault/gateways.ts";
import { createRandom, type Random, seedFor } from "../fault/random.ts";
import { planErrands, runErrand } from "../fault/scenarios/traffic.ts";
import { eventually } from "../fault/world.ts";
import { checkEnd, checkRound, type FailoverHistory } from "./checker.ts";
import { type Driver, type Fault, type Strike, startDriver, type Topology } from "./driver.ts";
import { createOperators, isRevoked, type Operators } from "./operators.ts";
import { PARTITIONS } from "./slots.ts";

export interface RoundsOptions extends RunOptions {
  topology: Topology;
  rounds: number;
}

/** One round as it went. */
export interface Round {
  fault: Fault;
  /** A gateway was killed along with the node. */
  withGateway: boolean;
  victim: string;
  /** Until the customers of each partition were served again, in ascending order, ms. */
  servedMs: number[];
  /** What the checker found after it. */
  violations: string[];
}

export interface Outcome {
  rounds: Round[];
  history: FailoverHistory;
  verdict: Verdict;
}

const GATEWAYS = 2;
/** How many times as often as another customer one with narrow limits comes. */
const NARROW_SHARE = 8;
/** Shorter than the failures, longer than any healthy call on a busy machine. */
const COMMAND_TIMEOUT_MS = 500;
const LOAD_WIDTH = 16;
/** Of the upstream, so that many a charge is due while the store is away. */
const DELAY_MAX_MS = 400;
/** Between two errands of a lane; refusals come at once while the store is away. */
const LOAD_PAUSE_MS = 20;
const PROBE_WIDTH = 8;
const PROBE_PAUSE_MS = 50;
/** Load before the fault, and between its end and the comparison, at least and at most. */
const BEFORE_MS = [400, 1200] as const;
const AFTER_MS = 500;
/** How long a fault lasts where nobody takes over. */
const AWAY_MS = [300, 2500] as const;
const WAIT_MAX_MS = 60_000;
const GATEWAY_CHANCE = 0.25;

const running = new Set<() => Promise<void>>();

/** Ends everything that any campaign has started. */
export async function stopRounds(): Promise<void> {
  await Promise.all([...running].map((stop) => stop()));
}

/**
 * Rounds of load with a fault in the middle, over one store. After each round everything is healed, the load rests, what
 * waits is sent, and what customers and operators were told is compared with the store.
 *
 * A negative control is a run with a seeded bug: `options.root` is then a copy of the sources with patches
 * (test/fault/tree.ts), and the verdict must not be met.
 */
export async function runRounds(options: RoundsOptions): Promise<Outcome> {
  const driver = await startDriver(options.topology, join(options.folder, "redis"));
  const fleet = createFleet(
    options,
    GATEWAYS,
    // Also on one server, where a replica is nothing that gateways wait for by themselves.
    { commandTimeoutMs: COMMAND_TIMEOUT_MS, partitions: PARTITIONS, confirmReplicas: 1 },
    { listen: async () => driver.redisUrl, nodes: driver.nodes, linkEvents: () => [] },
  );
  const stop = async (): Promise<void> => {
    if (!running.delete(stop)) return;
    await fleet.stopGateways();
    await driver.stop();
  };
  running.add(stop);
  try {
    await fleet.startAll();
    const crowd = await givenCrowd(fleet);
    const operators = createOperators(fleet, driver.redisUrl, crowd.wide);
    const rounds: Round[] = [];
    for (let at = 0; at < options.rounds; at++) {
      const round = await runRound({ driver, fleet, crowd, operators, at });
      rounds.push(round);
      options.progress(formatRound(at, round));
    }
    const history = { ...(await fleet.finish()), operators: operators.events };
    return { rounds, history, verdict: checkEnd(history) };
  } finally {
    await stop();
  }
}

interface Crowd {
  /** One customer of each partition, with room for anything. */
  wide: Customer[];
  /** All, some with narrow limits. */
  all: Customer[];
}

async function givenCrowd(fleet: Fleet): Promise<Crowd> {
  const wide: Customer[] = [];
  for (let partition = 0; partition < PARTITIONS; partition++) {
    wide.push(await fleet.givenCustomer({}, accountIn(partition)));
  }
  const narrow = [
    await fleet.givenCustomer({ rateLimit: 40 }),
    await fleet.givenCustomer({ maxConcurrent: 3 }),
    await fleet.givenCustomer({ dailyLimit: 150 }),
    await fleet.givenCustomer({ granted: 500 }),
  ];
  // Often enough to meet their limits.
  const often = Array.from({ length: NARROW_SHARE }, () => narrow).flat();
  return { wide, all: [...wide, ...often] };
}

function accountIn(partition: number): string {
  for (let at = 0; ; at++) {
    const accountId = `acc_${partition}_${at}`;
    if (partitionOf(accountId, PARTITIONS) === partition) return accountId;
  }
}

interface Scene {
  driver: Driver;
  fleet: Fleet;
  crowd: Crowd;
  operators: Operators;
  at: number;
}

async function runRound(scene: Scene): Promise<Round> {
  const { driver, fleet, at } = scene;
  // Of its own: how far others have drawn from theirs depends on how fast the machine is.
  const random = createRandom(seedFor(fleet.options.seed, `round ${at}`));
  const fault = random.pick(driver.faults);
  const partition = random.int(0, PARTITIONS - 1);
  const withGateway = random.chance(GATEWAY_CHANCE);
  const slot = random.int(0, GATEWAYS - 1);
  const beforeMs = random.int(...BEFORE_MS);
  const awayMs = random.int(...AWAY_MS);

  const load = startLoad(scene, random);
  await pause(beforeMs);
  const strike = await driver.strike(fault, partition);
  fleet.note(fault, `${strike.victim} in round ${at}`);
  if (withGateway) fleet.kill(slot, `with ${strike.victim}`);
  const servedMs = await outlast(scene, strike, awayMs);
  // A gateway is ready once it has the store.
  if (withGateway) await fleet.startIn(slot);
  await pause(AFTER_MS);
  await load.stop();
  await settle(scene);
  const history = { ...(await fleet.history()), operators: scene.operators.events };
  const { criteria } = checkRound(history);
  const violations = criteria.flatMap((criterion) => criterion.violations);
  return { fault, withGateway, victim: strike.victim, servedMs, violations };
}

/** Until every partition is served again, and the fault has ended. @returns how long it took for each, ms */
async function outlast({ driver, fleet, crowd }: Scene, strike: Strike, awayMs: number): Promise<number[]> {
  if (driver.failsOver) {
    const served = await serveAll(fleet, crowd.wide, strike.atMs);
    await strike.end();
    return served;
  }
  await pause(awayMs);
  const endedMs = Date.now();
  await strike.end();
  return serveAll(fleet, crowd.wide, endedMs);
}

/** Sends a request of each customer until it is served. @returns how long each took from a moment on, ascending, ms */
async function serveAll(fleet: Fleet, customers: readonly Customer[], sinceMs: number): Promise<number[]> {
  const waiting = [...customers];
  const served: number[] = [];
  const lane = async (wanted: number): Promise<void> => {
    for (let customer = waiting.shift(); customer; customer = waiting.shift()) {
      const event = await generate(await anyGateway(fleet, wanted), customer, { lifeMs: 1 });
      fleet.client.push(event);
      if (event.status === 200) served.push(event.endedMs - sinceMs);
      else if (Date.now() - sinceMs > WAIT_MAX_MS)
        fleet.note("not reached", `${customer.accountId} is served`);
      else {
        waiting.push(customer);
        await pause(PROBE_PAUSE_MS);
      }
    }
  };
  await Promise.all(Array.from({ length: PROBE_WIDTH }, (_, at) => lane(at)));
  return served.sort((a, b) => a - b);
}

/** Customers' errands over all partitions, and an operator at the command line, until it is stopped. */
function startLoad({ fleet, crowd, operators, at }: Scene, random: Random): { stop(): Promise<void> } {
  let stopped = false;
  // More than any round needs; what is left over is not sent.
  const errands = planErrands(random, 20_000, crowd.all.length, GATEWAYS)
    .map((errand) => ({ ...errand, wish: { ...errand.wish, delayMs: random.int(0, DELAY_MAX_MS) } }))
    .values();
  const lane = async (): Promise<void> => {
    for (const errand of errands) {
      if (stopped) return;
      const idempotencyKey = errand.idempotencyKey && `${at}-${errand.idempotencyKey}`;
      await runErrand(fleet, crowd.all, { ...errand, idempotencyKey });
      await pause(LOAD_PAUSE_MS);
    }
  };
  const operate = async (): Promise<void> => {
    while (!stopped) await operators.work();
  };
  const lanes = [operate(), ...Array.from({ length: LOAD_WIDTH }, lane)];
  return {
    async stop() {
      stopped = true;
      await Promise.all(lanes);
    },
  };
}

/** All nodes are back and in step, all gateways ready, nothing waits, and each key that an operator made was used. */
async function settle({ driver, fleet, operators }: Scene): Promise<void> {
  await driver.healthy();
  const isSettled = async (): Promise<boolean> => {
    const ready = await Promise.all(fleet.gateways.map((gateway) => isReady(gateway!)));
    return ready.every(Boolean) && (await settlementsWaiting(fleet)) === 0;
  };
  if (!(await eventually(WAIT_MAX_MS, isSettled))) fleet.note("not reached", "gateways ready, nothing waits");
  for (const customer of operators.customers) {
    const event = await generate(await anyGateway(fleet, 0), customer, { lifeMs: 1 });
    fleet.client.push(event);
    const wanted = isRevoked(operators.events, customer.keyId) ? [200, 401] : [200];
    if (!wanted.includes(event.status)) fleet.note("not reached", `${customer.keyId}: ${event.status}`);
  }
}

const median = (sorted: readonly number[]): number => sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;

/** When the slowest partition was served again, over all rounds: median and worst, ms. */
export function slowestMs(rounds: readonly Round[]): { median: number; worst: number } {
  const slowest = rounds.map(({ servedMs }) => servedMs.at(-1) ?? Number.NaN).sort((a, b) => a - b);
  return { median: median(slowest), worst: slowest.at(-1) ?? Number.NaN };
}

function formatRound(at: number, { fault, withGateway, victim, servedMs, violations }: Round): string {
  const what = `${fault} of ${victim}${withGateway ? " and a gateway" : ""}`;
  const served = `served again after ${median(servedMs)} ms (median), ${servedMs.at(-1)} ms (last)`;
  const found = violations.length === 0 ? "" : `; ${violations.length} violations, such as: ${violations[0]}`;
  return `round ${at + 1}: ${what}; ${served}${found}`;
}
