import { once } from "node:events";
import type { ClientRequest } from "node:http";
import { connect } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { type Customer, generate, type Leaving, poll, TEXT_TO_VIDEO } from "../client.ts";
import type { ClientEvent, History } from "../history.ts";
import type { Passing, PassingItem } from "../redis-proxy.ts";
import { createWorld, type RunOptions, type World } from "../world.ts";
import type { Scenario } from "./scenario.ts";

interface DisconnectsSize {
  disconnects: number;
}

/** Where a client goes: before it has sent everything, at a step seen from outside, or while it is answered. */
const PHASES = [
  "connected",
  "half a head",
  "head without body",
  "half a body",
  "all sent",
  "admit_arrived",
  "admit_replied",
  "upstream_read",
  "upstream_answered",
  "bind_arrived",
  "bind_replied",
  "answer begun",
  "poll sent",
  "poll_read",
  "observe_arrived",
  "observe_replied",
] as const;
const LANES = 16;
const REPEATS_MAX = 40;
const TRIES_MAX = 20;

/** Clients go away at every phase; what was admitted is finished all the same. */
export const disconnects: Scenario<DisconnectsSize> = {
  name: "disconnects",
  title: ({ disconnects }) => `${disconnects} client disconnects at ${PHASES.length} phases over 2 gateways`,
  full: { disconnects: 2000 },
  short: { disconnects: 96 },
  run: runDisconnects,
};

/** A lane's client, which leaves when its phase is reached. */
interface Lane {
  customer: Customer;
  phase: string;
  request?: ClientRequest;
}

async function runDisconnects(options: RunOptions, { disconnects }: DisconnectsSize): Promise<History> {
  const world = await createWorld(options, 2);
  try {
    const plan = world.random.shuffle(
      Array.from({ length: disconnects }, (_, at) => ({
        phase: PHASES[at % PHASES.length]!,
        gateway: world.random.int(0, 1),
        fails: world.random.chance(0.3),
        repeats: world.random.chance(0.5),
      })),
    );
    const lanes = new Map<string, Lane>();
    watch(world, lanes);
    let next = 0;
    const work = async (): Promise<void> => {
      const customer = await world.givenCustomer();
      const lane: Lane = { customer, phase: "" };
      lanes.set(customer.accountId, lane);
      while (next < plan.length) {
        const at = next++;
        for (let tries = 0; tries < TRIES_MAX; tries++) {
          lane.phase = "";
          await leave(world, lane, { ...plan[at]!, idempotencyKey: `key-${at}-${tries}` });
          // A phase that stands was not reached: the store was away for a moment.
          if (lane.phase === "") break;
          if (tries === TRIES_MAX - 1) world.note("not reached", lane.phase);
          await pause(100 * (tries + 1));
        }
        if (at % 500 === 499) options.progress(`${at + 1} of ${plan.length} disconnects`);
      }
    };
    await Promise.all(Array.from({ length: LANES }, work));
    return await world.finish();
  } finally {
    await world.stop();
  }
}

/** Lets a lane's client go when its phase is reached. */
function watch(world: World, lanes: Map<string, Lane>): void {
  const reach = (accountId: string, phase: string): void => {
    const lane = lanes.get(accountId);
    if (lane?.phase !== phase) return;
    lane.phase = "";
    world.note("client left", phase);
    lane.request?.destroy();
  };
  /** ADMIT and BIND say the account themselves, behind the request's id. */
  const accountOf = ({ script, keys, args }: PassingItem): string =>
    script === "admit" || script === "bind"
      ? String(args[1])
      : (keys
          .find((name) => name.includes(":account:"))
          ?.split(":")
          .at(-1) ?? "");
  const reachAll = ({ script, items }: Passing, step: string): undefined => {
    for (const item of items) reach(accountOf(item), `${script}_${step}`);
  };
  world.proxy.steer({
    command: (passing) => reachAll(passing, "arrived"),
    reply: (passing) => reachAll(passing, "replied"),
  });
  world.upstream.steer({
    read: (_event, { tag }) => void reach(tag, "upstream_read") as undefined,
    answered: (_event, { tag }) => reach(tag, "upstream_answered"),
    poll: (_gateway, { wish }) => void reach(wish.tag, "poll_read") as undefined,
  });
}

interface Visit {
  phase: (typeof PHASES)[number];
  gateway: number;
  fails: boolean;
  repeats: boolean;
  idempotencyKey: string;
}

async function leave(world: World, lane: Lane, visit: Visit): Promise<void> {
  const { phase, fails, idempotencyKey } = visit;
  const { customer } = lane;
  const target = world.gateways[visit.gateway]!;
  const wish = { lifeMs: 1, fails, tag: customer.accountId, delayMs: phase === "upstream_read" ? 20 : 0 };
  const ask = async (leaving?: Leaving): Promise<ClientEvent> => {
    const event = await generate(
      target,
      customer,
      wish,
      leaving ? { idempotencyKey, leaving } : { idempotencyKey },
    );
    world.client.push(event);
    return event;
  };
  if (phase === "connected" || phase === "half a head") {
    await leaveEarly(
      target.url,
      phase === "connected" ? "" : `POST ${TEXT_TO_VIDEO} HTTP/1.1\r\nHost: x\r\nAuth`,
    );
    world.note("client left", phase);
    return;
  }
  const leaving = leavingAt(world, lane, phase);
  if (phase === "poll sent" || phase === "poll_read" || phase.startsWith("observe")) {
    const { taskId } = await ask();
    if (phase !== "poll sent") lane.phase = phase;
    world.client.push(await poll(target, customer, taskId, leaving));
    return;
  }
  if (leaving.begun !== undefined && phase.includes("_")) lane.phase = phase;
  await ask(leaving);
  // The client's next step: it repeats the request, and must find the one task that it may have paid for.
  for (let tries = 0; visit.repeats && tries < REPEATS_MAX; tries++) {
    if ((await ask()).status !== 409) return;
    await pause(25);
  }
}

function leavingAt(world: World, lane: Lane, phase: string): Leaving {
  const gone = (request: ClientRequest): void => {
    world.note("client left", phase);
    request.destroy();
  };
  switch (phase) {
    case "head without body":
      return { phase, bodyBytes: 0, begun: (request) => void setTimeout(gone, 5, request) };
    case "half a body":
      return { phase, bodyBytes: 20, begun: (request) => void setTimeout(gone, 5, request) };
    case "all sent":
    case "poll sent":
      return { phase, begun: (request) => void request.once("finish", () => gone(request)) };
    case "answer begun":
      return { phase, answered: () => world.note("client left", phase) };
    default:
      return {
        phase,
        begun: (request) => {
          lane.request = request;
        },
      };
  }
}

async function leaveEarly(url: string, bytes: string): Promise<void> {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port) });
  socket.on("error", () => undefined);
  await once(socket, "connect");
  if (bytes !== "") socket.write(bytes);
  await pause(2);
  socket.resetAndDestroy();
}
