import { setTimeout as pause } from "node:timers/promises";
import type { History } from "../history.ts";
import { inParallel, type Random } from "../random.ts";
import type { Action, Passing } from "../redis-proxy.ts";
import { createWorld, type RunOptions, type World } from "../world.ts";
import type { Scenario } from "./scenario.ts";
import { givenCrowd, planErrands, runErrand } from "./traffic.ts";

interface LinkSize {
  /** Requests under each fault of the link, and under each stop of Redis. */
  requestsEach: number;
  stopsMs: number[];
  /** Only faults whose name begins so, and how often those that hit single items do. */
  only?: string;
  oneIn?: number;
}

/** The link between gateways and Redis fails in every way a network can, and Redis itself stands still. */
export const redisLink: Scenario<LinkSize> = {
  name: "redis-link",
  title: ({ requestsEach, stopsMs }) =>
    `${requestsEach * (FAULTS.length + stopsMs.length)} requests over 2 gateways: ${FAULTS.map(({ name }) => name).join(", ")}; ` +
    `Redis stopped for ${stopsMs.map((ms) => ms / 1000).join(", ")} s`,
  full: { requestsEach: 2000, stopsMs: [200, 2000, 30_000] },
  short: { requestsEach: 60, stopsMs: [200, 2000] },
  run: runLink,
};

/** So long that a busy machine answers a probe in time: while none is, every request is 503 and nothing is proved. */
const COMMAND_TIMEOUT_MS = 800;
/** On a busy machine the store may be away for a whole load, and then there is nothing that the fault could strike. */
const LOADS_MAX = 8;
/** Later than that. */
const LATE_MS = 1100;
const HOLE_MS = 1500;
const VERBS = new Set(["admit", "bind", "void", "observe"]);

interface LinkFault {
  name: string;
  /** Which item of a gateway's commands is hit, and with it all of its command: about one in so many. 0: not single ones. */
  oneIn: number;
  command?: Action;
  reply?: Action;
  split?: boolean;
  /** All connections at once, now and then. */
  hole?: boolean;
}

const FAULTS: readonly LinkFault[] = [
  { name: "replies dropped", oneIn: 60, reply: "freeze" },
  { name: "reset after forward", oneIn: 60, reply: "reset" },
  { name: "reset before forward", oneIn: 60, command: "reset" },
  { name: "late delivery", oneIn: 60, command: { delayMs: LATE_MS } },
  { name: "late replies", oneIn: 60, reply: { delayMs: LATE_MS } },
  { name: "black holes", oneIn: 0, hole: true },
  { name: "one-byte splits", oneIn: 0, split: true },
];

async function runLink(
  options: RunOptions,
  { requestsEach, stopsMs, only = "", oneIn }: LinkSize,
): Promise<History> {
  const world = await createWorld(options, 2, { commandTimeoutMs: COMMAND_TIMEOUT_MS });
  try {
    const customers = await givenCrowd(world);
    for (const fault of FAULTS.filter(({ name }) => name.startsWith(only))) {
      const hasStruck = (): boolean => world.faults.some(({ kind }) => kind === fault.name);
      const ending = inflict(world, { ...fault, ...(oneIn !== undefined && { oneIn }) });
      for (let load = 0; load < LOADS_MAX && (load === 0 || !hasStruck()); load++) {
        const errands = planErrands(world.random, requestsEach, customers.length, 2);
        await inParallel(requestsEach, fault.split ? 8 : 16, async (at) => {
          await runErrand(world, customers, errands[at]!);
          await breathe(world);
        });
      }
      await ending();
      if (!hasStruck()) world.note("not reached", fault.name);
      options.progress(`${fault.name}: ${requestsEach} requests`);
    }
    for (const ms of stopsMs) {
      const errands = planErrands(world.random, requestsEach, customers.length, 2);
      const work = async (at: number): Promise<void> =>
        void (await runErrand(world, customers, errands[at]!));
      await stopRedis(world, ms, work, requestsEach);
      options.progress(`Redis stopped for ${ms} ms: ${requestsEach} requests`);
    }
    return await world.finish();
  } finally {
    await world.stop();
  }
}

/** While the breakers are open a request costs nothing: without a pause the load would be over before they close. */
async function breathe({ client }: World): Promise<void> {
  if (client.at(-1)?.status === 503) await pause(100);
}

/** Lays a fault on all links. @returns what takes it away */
function inflict(world: World, fault: LinkFault): () => Promise<void> {
  world.proxy.steer({});
  if (fault.split) {
    world.note(fault.name);
    world.proxy.steer({ split: true });
  }
  if (fault.hole) return digHoles(world, fault.name);
  if (fault.oneIn > 0) {
    const hits = drawHits(world.random, fault.oneIn);
    const when = fault.command ? "command" : "reply";
    const action = fault.command ?? fault.reply;
    world.proxy.steer({
      [when](passing: Passing): Action {
        if (!VERBS.has(passing.script) || passing.items.filter(hits).length === 0) return undefined;
        world.note(fault.name, passing.script);
        return action;
      },
    });
  }
  return async () => {
    world.proxy.steer({});
    // Frozen commands stay so until the gateways give the connection up.
    await pause(2 * COMMAND_TIMEOUT_MS);
  };
}

/** Among so many items the first hit is sure to come, however short the load. */
const FIRST_WITHIN = 8;

/** Drawn beforehand: the n-th item is hit or not, whatever else happens. */
function drawHits(random: Random, oneIn: number): () => boolean {
  const drawn = Array.from({ length: 50_000 }, () => random.chance(1 / oneIn));
  drawn[random.int(0, FIRST_WITHIN - 1)] = true;
  let at = 0;
  return () => drawn[at++ % drawn.length]!;
}

/** Now and then nothing passes for a while, and connections that lost something stay dead. */
function digHoles(world: World, name: string): () => Promise<void> {
  // The first one at once, or a short load would be over before it.
  const pauses = Array.from({ length: 1000 }, (_, at) => (at === 0 ? 0 : world.random.int(300, 900)));
  let ended = false;
  const digging = (async () => {
    for (const ms of pauses) {
      await pause(ms);
      if (ended) return;
      world.note(name);
      world.proxy.steer({ command: () => "freeze", reply: () => "freeze" });
      await pause(HOLE_MS);
      world.proxy.steer({});
    }
  })();
  return async () => {
    ended = true;
    await digging;
    await pause(2 * COMMAND_TIMEOUT_MS);
  };
}

/** SIGSTOP in the middle of a load that goes on until Redis is back. */
async function stopRedis(
  world: World,
  ms: number,
  errand: (at: number) => Promise<void>,
  count: number,
): Promise<void> {
  const stopAt = Math.floor(count / 4);
  const goesOnAt = Math.floor((3 * count) / 4);
  const back = Promise.withResolvers<void>();
  await inParallel(count, 16, async (at) => {
    if (at === stopAt) {
      world.note(`Redis stopped for ${ms} ms`);
      process.kill(world.server.pid(), "SIGSTOP");
      setTimeout(() => {
        process.kill(world.server.pid(), "SIGCONT");
        back.resolve();
      }, ms);
    }
    // Half of the load falls into the stop, evenly; the last quarter comes after it.
    if (at > stopAt && at < goesOnAt) await pause((ms * 16) / (goesOnAt - stopAt));
    if (at >= goesOnAt) await back.promise;
    await errand(at);
  });
}
