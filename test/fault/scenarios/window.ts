import { setTimeout as pause } from "node:timers/promises";
import { generate } from "../client.ts";
import type { History } from "../history.ts";
import { createRandom } from "../random.ts";
import { createWorld, type RunOptions } from "../world.ts";
import type { Scenario } from "./scenario.ts";

interface WindowSize {
  clients: number;
  /** More than two windows in the full form. */
  lastsMs: number;
}

const LIMITS = [20, 20, 20, 60, 60, 60, 60, 100, 100, 100];
const GATEWAYS = 3;

/** Clients that never wait long enough, over several gateways at once: the window is one for all of them. */
export const window: Scenario<WindowSize> = {
  name: "window",
  title: ({ clients, lastsMs }) =>
    `${clients} clients of ${LIMITS.length} keys over ${GATEWAYS} gateways for ${lastsMs / 1000} s, limits 20 to 100 a minute`,
  full: { clients: 100, lastsMs: 190_000 },
  short: { clients: 100, lastsMs: 6000 },
  run: runWindow,
};

async function runWindow(options: RunOptions, { clients, lastsMs }: WindowSize): Promise<History> {
  const world = await createWorld(options, GATEWAYS);
  try {
    const customers = await Promise.all(LIMITS.map((rate_limit) => world.givenCustomer({ rate_limit })));
    const until = Date.now() + lastsMs;
    const seeds = Array.from({ length: clients }, () => world.random.int(0, 2 ** 31));
    await Promise.all(
      seeds.map(async (seed, at) => {
        const random = createRandom(seed);
        const customer = customers[at % customers.length]!;
        while (Date.now() < until) {
          const target = world.gateways[random.int(0, GATEWAYS - 1)]!;
          world.client.push(await generate(target, customer, { lifeMs: 1 }));
          await pause(random.int(50, 900));
        }
      }),
    );
    return await world.finish();
  } finally {
    await world.stop();
  }
}
