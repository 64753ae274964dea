import { setTimeout as pause } from "node:timers/promises";
import { type Customer, generate, type Leaving, poll } from "../client.ts";
import { createClusterWorld } from "../cluster-world.ts";
import type { ClientEvent, History } from "../history.ts";
import type { Action, Passing } from "../redis-proxy.ts";
import { createWorld, type RunOptions, type ProxiedWorld as World, within } from "../world.ts";
import { PHASES, type Phase, type PhaseName } from "./crash-phases.ts";
import type { Scenario } from "./scenario.ts";

export interface CrashSize {
  /** Kills at each phase, and requests at that phase when the kill comes. */
  kills: number;
  width: number;
  gateways: number;
  /** No more kills than that, whichever they are. */
  killsMax?: number;
  /** Only phases whose name begins so. */
  only?: string;
  /** On a Redis Cluster of three primaries. */
  clustered?: boolean;
}

/** Due time of an unanswered hold, and the sweeper's turn. */
const HOLD_MS = 11_000;
/** A gateway stands at a phase at the latest after its own command timeout and upstream deadline. */
const REACH_MS = 4000;
/** Kills that came before their phase and are made again. */
const MISSES_MAX = 60;
const STRAGGLERS_MS = 200;

/** SIGKILL at each step between ADMIT and the reply, seen from outside: no failpoint in the gateway. */
export const crash: Scenario<CrashSize> = {
  name: "crash",
  title: ({ kills, width }) =>
    `SIGKILL at ${PHASES.length} steps between ADMIT and the reply, ${kills} kills × ${width} requests each`,
  full: { kills: 50, width: 1, gateways: 3 },
  short: { kills: 1, width: 3, gateways: 3, killsMax: 8 },
  run: runCrash,
};

/** As above, on a Redis Cluster, where a request has its partition on one primary and its task id's claim on another. */
export const crashOnCluster: Scenario<CrashSize> = {
  name: "crash-cluster",
  title: (size) => `on a Redis Cluster of three primaries: ${crash.title(size)}`,
  full: { kills: 10, width: 1, gateways: 3, clustered: true },
  short: { kills: 1, width: 3, gateways: 3, clustered: true },
  run: runCrash,
};

async function runCrash(
  options: RunOptions,
  { kills, width, gateways, killsMax = Infinity, only = "", clustered = false }: CrashSize,
): Promise<History> {
  const create = clustered ? createClusterWorld : createWorld;
  const world = await create(options, gateways, { sweeperApart: true, commandTimeoutMs: 300 });
  try {
    const plan = world.random
      .shuffle(
        PHASES.filter(({ name }) => name.startsWith(only)).flatMap((phase) =>
          Array.from({ length: kills }, () => phase),
        ),
      )
      .slice(0, killsMax);
    const retries: (() => Promise<void>)[] = [];
    const lanes = createLanes(world);
    let next = 0;
    let misses = 0;
    const lane = async (slot: number): Promise<void> => {
      const customer = await world.givenCustomer();
      while (next < plan.length) {
        const at = next++;
        const phase = plan[at]!;
        const reached = await strike(world, lanes, { slot, customer, phase, width, at, retries });
        if (!reached && misses++ < MISSES_MAX) plan.push(phase);
        else if (!reached) world.note("not reached", phase.name);
        await world.startIn(slot);
        if (at % 50 === 49) options.progress(`${at + 1} of ${plan.length} kills`);
      }
    };
    await Promise.all(Array.from({ length: gateways }, (_, slot) => lane(slot)));
    // Their first tries are decided once their holds' due time has passed.
    if (retries.length > 0) await pause(HOLD_MS);
    for (const retry of retries) await retry();
    return await world.finish();
  } finally {
    await world.stop();
  }
}

/** The step that a lane waits for: hooks find it by the gateway that a command or a request came from. */
interface Watch {
  phase: Phase;
  /** Ids of requests that stand at the phase. */
  reached: Set<string>;
  kill(): void;
}

type Lanes = Map<string, Watch>;

/** Hooks for all lanes together; each gateway has at most one watch. */
function createLanes(world: World): Lanes {
  const lanes: Lanes = new Map();
  const at = (gateway: string, step: PhaseName, id: string): boolean => {
    const watch = lanes.get(gateway);
    if (watch?.phase.step !== step) return false;
    watch.reached.add(id);
    if (watch.phase.immediate) watch.kill();
    return true;
  };
  /** A command stands at the phase with all its items. */
  const atAll = ({ gateway, script, items }: Passing, step: string): Action => {
    const standing = items.filter(({ requestId }) =>
      at(gateway, `${script}_${step}` as PhaseName, requestId),
    );
    return standing.length > 0 ? "freeze" : undefined;
  };
  world.proxy.steer({
    command: (passing) => atAll(passing, "arrived"),
    reply(passing) {
      const watch = lanes.get(passing.gateway);
      if (watch?.phase.withholds !== passing.script) return atAll(passing, "replied");
      for (const { requestId } of passing.items) watch.reached.add(requestId);
      return "freeze";
    },
  });
  world.upstream.steer({
    connection(gateway, socket) {
      if (at(gateway, "upstream_connected", "connection")) socket.destroy();
    },
    read: ({ gateway, requestId }) => (at(gateway, "upstream_read", requestId) ? "drop" : undefined),
    answered: ({ gateway, requestId }) => void at(gateway, "upstream_answered", requestId),
    poll: (gateway, { id }) => (at(gateway, "poll_read", id) ? "drop" : undefined),
  });
  return lanes;
}

interface Strike {
  slot: number;
  customer: Customer;
  phase: Phase;
  width: number;
  at: number;
  retries: (() => Promise<void>)[];
}

/**
 * Brings requests to a phase, kills their gateway there, and notes the second try of those with a key.
 * @returns false when none came so far: on a busy machine a command may time out before its turn
 */
async function strike(
  world: World,
  lanes: Lanes,
  { slot, customer, phase, width, at, retries }: Strike,
): Promise<boolean> {
  const gateway = world.gateways[slot]!;
  const answered = new Set<string>();
  const wish = { kind: phase.kind, lifeMs: 1, fails: at % 2 === 0, tag: phase.step };
  const tasks: string[] = [];
  for (let each = 0; phase.polls && each < width; each++) {
    const made = await generate(gateway, customer, wish);
    world.client.push(made);
    tasks.push(made.taskId);
  }
  const kill = (): void => {
    lanes.delete(gateway.name);
    if (world.gateways[slot] === gateway) world.kill(slot, phase.name);
  };
  const reached = new Set<string>();
  lanes.set(gateway.name, { phase, reached, kill });

  const pending = Array.from({ length: width }, async (_, each) => {
    const leaving: Leaving | undefined =
      phase.step === "response"
        ? { phase: phase.name, answered: () => void reached.add(`response ${each}`) }
        : undefined;
    // Every second one has a key, so that its client may ask again.
    const idempotencyKey = (at + each) % 2 === 0 && !phase.polls ? `${world.options.seed}-${at}-${each}` : "";
    const more = leaving ? { idempotencyKey, leaving } : { idempotencyKey };
    const event = phase.polls
      ? await poll(gateway, customer, tasks[each]!, leaving)
      : await generate(gateway, customer, wish, more);
    world.client.push(event);
    if (event.status !== 0) answered.add(`answer ${each}`);
    if (phase.step === "answer" && answered.size === width) kill();
    if (idempotencyKey !== "" && event.status === 0)
      retries.push(() => again(world, customer, idempotencyKey, wish));
    return event;
  });
  const standing = phase.step === "answer" ? answered : reached;
  await within(REACH_MS, () => standing.size > 0);
  // Commands behind a frozen one cannot come this far.
  await within(STRAGGLERS_MS, () => standing.size >= width || phase.immediate);
  kill();
  await Promise.all(pending);
  return reached.size > 0;
}

/** Sends the request with its Idempotency-Key again until it is decided: one task, one charge. */
async function again(
  world: World,
  customer: Customer,
  idempotencyKey: string,
  wish: Parameters<typeof generate>[2],
): Promise<void> {
  for (let tries = 0; tries < 3; tries++) {
    const gateway = world.gateways[tries % world.gateways.length]!;
    const event: ClientEvent = await generate(gateway, customer, wish, { idempotencyKey });
    world.client.push(event);
    if (event.status !== 409 && event.status !== 503) return;
    await pause(500);
  }
}
