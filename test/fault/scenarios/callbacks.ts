import { setTimeout as pause } from "node:timers/promises";
import { callBack, callBackUntilTaken, callbackPathOf } from "../callbacks.ts";
import { type Customer, generate } from "../client.ts";
import { anyGateway } from "../fleet.ts";
import type { ClientEvent, History, UpstreamEvent } from "../history.ts";
import { inParallel } from "../random.ts";
import type { Wish } from "../upstream.ts";
import { WEBHOOKS, WebhookStage } from "../webhook-stage.ts";
import { createWorld, type RunOptions, type World, within } from "../world.ts";
import type { Scenario } from "./scenario.ts";

interface CallbacksSize {
  /** Storyboards of each way. */
  each: number;
  /** Only these ways. */
  only?: readonly string[];
}

const GATEWAYS = 3;
const WIDTH = 24;
const MAX_AGE_MS = 4000;
/** A task that ends after its maximum age, and before its record is forgotten. */
const LATE_MS = 7000;
const LOST = ["resets", "hangs", "fails_500", "truncates", "answers_html"] as const;
/** Polls of a task that get no answer. */
const DEAF = "deaf";
const DEAF_POLLS = 2;
const MADE_MAX_MS = 20_000;

/** One storyboard with a `callBackUrl`, and what its callback does. */
interface Play {
  world: World;
  customer: Customer;
  /** Of another account. */
  other: Customer;
  at: number;
  /** Sends the storyboard. @returns what the upstream saw, and what the customer will be answered */
  begin(
    wish: Partial<Wish>,
    idempotencyKey?: string,
  ): Promise<{ event: UpstreamEvent; answer: Promise<ClientEvent> }>;
  lost(): (typeof LOST)[number];
}

const taken = async (world: World, event: UpstreamEvent): Promise<void> => {
  if (!(await callBackUntilTaken(world, event))) world.note("not reached", `callback of ${event.requestId}`);
};

/** Ways in which a callback comes, or does not. */
const WAYS: Readonly<Record<string, (play: Play) => Promise<void>>> = {
  async "before BIND"({ world, begin }) {
    const { event, answer } = await begin({ delayMs: 500, lifeMs: 100 });
    await pause(150);
    await taken(world, event);
    await answer;
  },
  async "before BIND, and once more"({ world, begin, at }) {
    const { event, answer } = await begin({ delayMs: 500, lifeMs: 700, fails: at % 2 === 0 });
    await taken(world, event);
    await answer;
    await pause(300);
    await taken(world, event);
  },
  async "several times, at all gateways"({ world, begin, at }) {
    const { event, answer } = await begin({ lifeMs: 100, fails: at % 2 === 0 });
    await Promise.all([answer, pause(150)]);
    const tries = Array.from({ length: 6 }, async (_, nth) => callBack(await anyGateway(world, nth), event));
    await Promise.all(tries);
    await taken(world, event);
  },
  async never({ begin, at }) {
    await (await begin({ lifeMs: 500, fails: at % 2 === 0 })).answer;
  },
  async "after the task ended as too old"({ world, begin }) {
    const { event, answer } = await begin({ lifeMs: LATE_MS });
    await answer;
    await pause(LATE_MS);
    await taken(world, event);
  },
  async "for an unknown outcome"({ world, begin, lost, at }) {
    const { event, answer } = await begin({ kind: lost(), lifeMs: 300, fails: at % 3 === 0 });
    await Promise.all([answer, pause(400)]);
    await taken(world, event);
  },
  async "for an unknown outcome, while the task runs, and at its end"({ world, begin, lost }) {
    const { event, answer } = await begin({ kind: lost(), lifeMs: 1500 });
    await taken(world, event);
    await Promise.all([answer, pause(1600)]);
    await taken(world, event);
  },
  async "for an unknown outcome, after its hold has ended"({ world, begin, lost }) {
    const { event, answer } = await begin({ kind: lost(), lifeMs: 300 });
    await answer;
    await pause(LATE_MS);
    await taken(world, event);
  },
  async "for an unknown outcome, while the upstream does not answer about it"({ world, begin, lost }) {
    const { event, answer } = await begin({ kind: lost(), lifeMs: 100, tag: DEAF });
    await Promise.all([answer, pause(200)]);
    await taken(world, event);
  },
  async "for an unknown outcome, with the task of another account"({ world, begin, lost, other, at }) {
    const theirs = await generate(await anyGateway(world, at), other, { lifeMs: 2000 });
    world.client.push(theirs);
    const { event, answer } = await begin({ kind: lost(), lifeMs: 100 });
    await answer;
    await callBack(await anyGateway(world, at), event, { taskId: theirs.taskId });
  },
  async "for an unknown outcome, with a task that does not exist"({ world, begin, lost, at }) {
    const { event, answer } = await begin({ kind: lost(), lifeMs: 100 });
    await answer;
    await callBack(await anyGateway(world, at), event, { taskId: `task_invented_${at}` });
  },
  async "for an unknown outcome whose Idempotency-Key was charged since"({ world, begin, lost, at }) {
    const key = `callback-${at}`;
    const { event, answer } = await begin({ kind: lost(), lifeMs: 100 }, key);
    await answer;
    await pause(LATE_MS);
    await (await begin({ lifeMs: 100 }, key)).answer;
    await taken(world, event);
  },
  async "that says failed, and names another account's task, of one that completes"({
    world,
    begin,
    other,
    at,
  }) {
    const theirs = await generate(await anyGateway(world, at), other, { lifeMs: 2000 });
    world.client.push(theirs);
    const { event, answer } = await begin({ lifeMs: 600 });
    await answer;
    await callBack(await anyGateway(world, at), event, { taskId: theirs.taskId, status: "failed" });
    await pause(700);
    await callBack(await anyGateway(world, at + 1), event, { status: "failed" });
    await taken(world, event);
  },
  async "for a refused request"({ world, begin }) {
    const { event, answer } = await begin({ kind: "refuses_400" });
    await answer;
    await callBack(await anyGateway(world, 0), event, { taskId: "task_of_nobody" });
  },
  async "at an address that nobody was given"({ world, begin, at }) {
    const { event, answer } = await begin({ lifeMs: 100 });
    await answer;
    const path = callbackPathOf(event);
    const place = path.length - 1 - (at % 30);
    const other = path[place] === "A" ? "B" : "A";
    const callBackUrl = `http://gateways.example${path.slice(0, place)}${other}${path.slice(place + 1)}`;
    const status = await callBack(await anyGateway(world, at), { ...event, callBackUrl });
    if (status !== 404) world.note("not reached", `a forged address was answered ${status}`);
    await taken(world, event);
  },
};

/** The upstream's callbacks come early, late, twice, never, for others, and while gateways and store are away. */
export const callbacks: Scenario<CallbacksSize> = {
  name: "callbacks",
  title: ({ each }) =>
    `${each} storyboards each whose callback comes ${Object.keys(WAYS).join("; ")}; half of them while gateways are killed and the store is frozen; ` +
    `a maximum age of ${MAX_AGE_MS / 1000} s`,
  full: { each: 10 },
  short: { each: 3 },
  run: runCallbacks,
};

async function runCallbacks(
  options: RunOptions,
  { each, only = Object.keys(WAYS) }: CallbacksSize,
): Promise<History> {
  const settings = { persistent: true, maxAgeMs: MAX_AGE_MS, webhooks: WEBHOOKS };
  const world = await createWorld(options, GATEWAYS, settings);
  const webhooks = await WebhookStage.start(world);
  try {
    const customers = await Promise.all(Array.from({ length: 4 }, () => world.givenCustomer()));
    for (const customer of customers) webhooks.watch(customer);
    await webhooks.giveEndpoint(customers[0]!, "answers");
    const seen = watchUpstream(world);
    const plan = world.random.shuffle(only.flatMap((way) => Array.from({ length: each }, () => way)));
    const half = Math.ceil(plan.length / 2);
    const run = (ways: readonly string[], from: number): Promise<void> =>
      inParallel(ways.length, WIDTH, (nth) =>
        playOne(world, webhooks, customers, { seen, way: ways[nth]!, at: from + nth }),
      );
    await run(plan.slice(0, half), 0);
    options.progress(`${half} without faults`);
    const disturbing = disturb(world);
    await run(plan.slice(half), half);
    await disturbing.stop();
    const history = await world.finish();
    return { ...history, webhooks: await webhooks.facts() };
  } finally {
    await world.stop();
    webhooks.stop();
  }
}

/** Requests that the upstream saw, by their tag. */
function watchUpstream({ upstream }: World): Map<string, UpstreamEvent> {
  const seen = new Map<string, UpstreamEvent>();
  upstream.steer({
    read: (event, { tag }) => void seen.set(tag, event),
    poll: (_gateway, { polls, wish: { tag } }) =>
      tag.startsWith(DEAF) && polls <= DEAF_POLLS ? "drop" : undefined,
  });
  return seen;
}

async function playOne(
  world: World,
  { receiver }: WebhookStage,
  customers: readonly Customer[],
  { seen, way, at }: { seen: Map<string, UpstreamEvent>; way: string; at: number },
): Promise<void> {
  const customer = customers[at % customers.length]!;
  let begun = 0;
  const begin: Play["begin"] = async (wish, idempotencyKey = "") => {
    const tag = `${wish.tag ?? ""}-${at}-${begun++}`;
    const storyboard = { callBackUrl: receiver.urlFor(customer.accountId, "answers") };
    for (let tries = 0; ; tries++) {
      const answer = anyGateway(world, at + tries).then((gateway) =>
        generate(gateway, customer, { ...wish, tag }, { storyboard, idempotencyKey }),
      );
      void answer.then((event) => world.client.push(event));
      await Promise.race([answer, within(MADE_MAX_MS, () => seen.has(tag))]);
      const event = seen.get(tag);
      if (event) return { event, answer };
      // The store or its gateway was away before it went upstream.
      if (tries === 20) throw new Error(`a storyboard with a callback (${way}) never came upstream`);
      await pause(250);
    }
  };
  const other = customers[(at + 1) % customers.length]!;
  await WAYS[way]!({ world, customer, other, at, begin, lost: () => LOST[at % LOST.length]! });
}

/** Kills gateways and freezes the store by turns, until it is stopped. */
function disturb(world: World): { stop(): Promise<void> } {
  let stopped = false;
  const { random, server } = world;
  const work = (async () => {
    for (let turn = 0; !stopped; turn++) {
      await pause(random.int(300, 1000));
      if (turn % 2 === 0) {
        const slot = random.int(0, GATEWAYS - 1);
        world.kill(slot, "random");
        await world.startIn(slot);
      } else {
        world.note("store frozen");
        process.kill(server.pid(), "SIGSTOP");
        await pause(random.int(200, 1500));
        process.kill(server.pid(), "SIGCONT");
        world.note("end of store frozen");
      }
    }
  })();
  return {
    async stop() {
      stopped = true;
      await work;
    },
  };
}
