import { setTimeout as pause } from "node:timers/promises";
import { type Customer, generate } from "../client.ts";
import type { GatewayProcess } from "../gateways.ts";
import type { ClientEvent, History } from "../history.ts";
import { createWorld, type RunOptions, type World } from "../world.ts";
import type { Scenario } from "./scenario.ts";

interface OverloadSize {
  secondsEach: number;
}

const CONNECTIONS = 8;
const GENERATION_MS = 100;
/** Generations a second that the connections carry. */
const CAPACITY = (CONNECTIONS * 1000) / GENERATION_MS;
/** Offered load, as a multiple of that. */
const TIMES = [1.3, 3];
/** Of what the connections carry, how much must be answered also in the last third of the load, on a busy machine. */
const SHARE_MIN = 0.5;

/** More is offered than the connections to the upstream carry: the excess is refused, and nothing that was sent is lost. */
export const overload: Scenario<OverloadSize> = {
  name: "overload",
  title: ({ secondsEach }) =>
    `${TIMES.join(" and ")} times what ${CONNECTIONS} connections carry, for ${secondsEach} s each, then one request`,
  full: { secondsEach: 120 },
  short: { secondsEach: 5 },
  run: runOverload,
};

async function runOverload(options: RunOptions, { secondsEach }: OverloadSize): Promise<History> {
  const world = await createWorld(options, 1, { connections: CONNECTIONS });
  try {
    const gateway = world.gateways[0]!;
    const customer = await world.givenCustomer();
    for (const times of TIMES) {
      const events = await offerLoad(gateway, customer, CAPACITY * times, secondsEach);
      world.client.push(...events);
      judge(world, events, times);
      const after = await generate(gateway, customer, { lifeMs: 1 });
      world.client.push(after);
      if (after.status !== 200)
        world.note("not reached", `${times} times: ${after.status} after the load had ended`);
      options.progress(`${times} times the capacity: ${events.length} requests`);
    }
    return await world.finish();
  } finally {
    await world.stop();
  }
}

/** Sends at an even pace, however many requests are under way. */
async function offerLoad(
  gateway: GatewayProcess,
  customer: Customer,
  perSecond: number,
  seconds: number,
): Promise<ClientEvent[]> {
  const count = Math.round(perSecond * seconds);
  const startedMs = performance.now();
  const events: Promise<ClientEvent>[] = [];
  while (events.length < count) {
    const dueNow = Math.min(count, Math.ceil(((performance.now() - startedMs) / 1000) * perSecond));
    while (events.length < dueNow) {
      events.push(generate(gateway, customer, { lifeMs: 1, delayMs: GENERATION_MS }));
    }
    await pause(5);
  }
  return Promise.all(events);
}

/** Every request that is sent is answered and the rest is 503: no outcome is unknown, and the throughput does not break down. */
function judge(world: World, events: readonly ClientEvent[], times: number): void {
  const odd = events.find(({ status }) => status !== 200 && status !== 503);
  if (odd)
    world.note("not reached", `${times} times: ${odd.requestId} was answered ${odd.status} ${odd.error}`);
  const last = events.slice(-Math.floor(events.length / 3));
  const share = (last.filter(({ status }) => status === 200).length * times) / last.length;
  if (share < SHARE_MIN)
    world.note("not reached", `${times} times: ${Math.round(share * 100)} % of the capacity was answered`);
  if (events.every(({ status }) => status === 200))
    world.note("not reached", `${times} times: nothing was refused`);
}
