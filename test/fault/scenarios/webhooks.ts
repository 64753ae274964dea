import { setTimeout as pause } from "node:timers/promises";
import { callBackAtTheEnd } from "../callbacks.ts";
import { type Customer, generate, poll } from "../client.ts";
import { anyGateway } from "../fleet.ts";
import type { History } from "../history.ts";
import type { Manner } from "../webhook-receiver.ts";
import { WEBHOOKS, WebhookStage } from "../webhook-stage.ts";
import { createWorld, type RunOptions, type World } from "../world.ts";
import type { Scenario } from "./scenario.ts";
import { STRIKES, type Strike, Striker } from "./webhook-strikes.ts";

interface WebhooksSize {
  /** Requests at least; they go on until all strikes were made. */
  requests: number;
  /** Of each kind. */
  strikesEach: number;
  /** Only these. */
  only?: readonly Strike[];
  /** How the upstream answers; as `UPSTREAM_KINDS` when left out. */
  kinds?: readonly string[];
}

const GATEWAYS = 3;
const WIDTH = 8;
/** Ends of the endpoints' accounts; the last one has none, and is told by its requests' own addresses alone. */
const CROWD: readonly Manner[][] = [
  ["answers"],
  ["answers", "fickle"],
  ["fickle"],
  ["fickle", "dead"],
  ["slow"],
  ["gone", "answers"],
  [],
];
/** Mostly well; some refuse, and of some nobody knows. */
const UPSTREAM_KINDS = [..."okokokokok".matchAll(/ok/g)]
  .map(() => "ok")
  .concat("refuses_400", "resets", "fails_500");
/** Long enough for tasks, short enough that holds of unknown outcomes end. */
const MAX_AGE_MS = 15_000;
const BETWEEN_STRIKES_MS = 300;

/** Ends of tasks are told while gateways are killed at each step of it, the store goes away, and receivers answer badly. */
export const webhooks: Scenario<WebhooksSize> = {
  name: "webhooks",
  title: ({ requests, strikesEach }) =>
    `at least ${requests} requests over ${GATEWAYS} gateways, whose ends are told to endpoints and relayed callBackUrls that answer, answer slowly, ` +
    `badly, 410 or never; ${strikesEach} times each: ${STRIKES.join("; ")}`,
  full: { requests: 3000, strikesEach: 8 },
  short: { requests: 200, strikesEach: 1 },
  run: runWebhooks,
};

async function runWebhooks(options: RunOptions, size: WebhooksSize): Promise<History> {
  const { requests, strikesEach, only = STRIKES, kinds = UPSTREAM_KINDS } = size;
  const world = await createWorld(options, GATEWAYS, {
    persistent: true,
    maxAgeMs: MAX_AGE_MS,
    webhooks: WEBHOOKS,
  });
  const webhooks = await WebhookStage.start(world);
  try {
    const customers = await givenEndpoints(world, webhooks);
    const striker = new Striker(world, webhooks);
    const callbacks = callBackAtTheEnd(world);
    const enabling = webhooks.startEnabling();
    const plan = world.random.shuffle(
      only.flatMap((strike) => Array.from({ length: strikesEach }, () => strike)),
    );
    let struck = false;
    let made = 0;
    const lane = async (): Promise<void> => {
      while (made < requests || !struck) await ask(world, webhooks, customers, made++, kinds);
    };
    const lanes = Array.from({ length: WIDTH }, lane);
    for (const [at, strike] of plan.entries()) {
      await pause(BETWEEN_STRIKES_MS);
      await striker.strike(strike);
      if (at % 10 === 9) options.progress(`${at + 1} of ${plan.length} strikes, ${made} requests`);
    }
    struck = true;
    await Promise.all(lanes);
    await callbacks.idle();
    const history = await world.finish();
    await enabling.stop();
    return { ...history, webhooks: await webhooks.facts() };
  } finally {
    await world.stop();
    webhooks.stop();
  }
}

async function givenEndpoints(world: World, webhooks: WebhookStage): Promise<Customer[]> {
  const customers: Customer[] = [];
  for (const manners of CROWD) {
    const customer = await world.givenCustomer();
    webhooks.watch(customer);
    for (const manner of manners) await webhooks.giveEndpoint(customer, manner);
    customers.push(customer);
  }
  return customers;
}

async function ask(
  world: World,
  { receiver }: WebhookStage,
  customers: readonly Customer[],
  at: number,
  kinds: readonly string[],
): Promise<void> {
  const { random, client } = world;
  const customer = random.pick(customers);
  const wish = {
    kind: random.pick(kinds),
    lifeMs: random.int(1, 400),
    fails: random.chance(0.3),
    delayMs: random.chance(0.3) ? random.int(0, 60) : 0,
  };
  const url = receiver.urlFor(customer.accountId, random.pick(["answers", "fickle"]));
  const storyboard = random.chance(0.5) ? { callBackUrl: url } : undefined;
  const event = await generate(await anyGateway(world, at), customer, wish, storyboard && { storyboard });
  client.push(event);
  if (event.status !== 200) return pause(event.status === 503 ? 100 : 0);
  if (random.chance(0.5)) return;
  await pause(wish.lifeMs);
  client.push(await poll(await anyGateway(world, at + 1), customer, event.taskId));
}
