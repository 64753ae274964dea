import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { type Customer, generate, poll } from "../client.ts";
import type { ClientEvent, History } from "../history.ts";
import { inParallel } from "../random.ts";
import { copySources, type Patch } from "../tree.ts";
import type { FaultDialect, Wish } from "../upstream.ts";
import { OTHER_STATES, WITHOUT_ANSWERS, WITHOUT_TASK } from "../upstream-kinds.ts";
import { createWorld, type RunOptions, type World } from "../world.ts";
import type { Scenario } from "./scenario.ts";

export interface TaskEndsSize {
  /** `tasks.max_age` of two gateways; the third allows four times as much. */
  maxAgeMs: number;
  /** Tasks of each way not to answer, of each gateway's age, of each way to give an id twice, and of an old address. */
  tasksEach: number;
  /** Only these parts. */
  only?: readonly Part[];
}

type Part =
  | "last questions"
  | "first questions"
  | "other states"
  | "another maximum age"
  | "ids given twice"
  | "another address"
  | "another adapter";

/** Three 404s of the API end a task when they lie so far apart: a minute in the product. */
const GONE_MS = 3000;
export const COMPRESSED: readonly Patch[] = [
  {
    file: "src/scripts/tasks.ts",
    from: "const GONE_MS = 60_000;",
    to: `const GONE_MS = ${GONE_MS};`,
  },
];
const OTHER_GATEWAY = 2;
const GATEWAYS = 3;
const OTHER_AGE_FACTOR = 4;
/** A customer's polls of one task. */
const POLL_EVERY_MS = 1000;
const RELOAD_MAX_MS = 10_000;

/**
 * Ways in which a task ends: the last poll of a task that is too old gets no answer about it, gateways of one fleet
 * allow different ages, task ids are given twice, and the upstream's address changes while tasks run at the old one, and its adapter while tasks run
 * that another one made.
 */
export const taskEnds: Scenario<TaskEndsSize> = {
  name: "task-ends",
  title: ({ maxAgeMs, tasksEach }) =>
    `tasks with a maximum age of ${maxAgeMs / 1000} s on 2 gateways and ${(OTHER_AGE_FACTOR * maxAgeMs) / 1000} s on a third; ` +
    `${tasksEach} each that are ${WITHOUT_ANSWERS.join(", ").replaceAll("_", " ")} around their maximum age; ` +
    `${tasksEach} each whose upstream ${OTHER_STATES.join(", ").replaceAll("_", " ")}; ` +
    `${tasksEach} ids of ended and of running tasks given twice; ${tasksEach} tasks of an address, and of an adapter, that was changed live ` +
    `(404s of the API end a task after ${GONE_MS / 1000} s)`,
  full: {
    maxAgeMs: 24_000,
    tasksEach: 60,
  },
  short: { maxAgeMs: 6000, tasksEach: 3 },
  run: runTaskEnds,
};

async function runTaskEnds(options: RunOptions, size: TaskEndsSize): Promise<History> {
  const { maxAgeMs } = size;
  const root = copySources(options.root, join(options.folder, "compressed-tree"), COMPRESSED);
  const world = await createWorld({ ...options, root }, GATEWAYS, { maxAgeMs });
  try {
    // As in a rollout.
    world.kill(OTHER_GATEWAY, "restarted with another maximum age");
    await world.startIn(OTHER_GATEWAY, { maxAgeMs: OTHER_AGE_FACTOR * maxAgeMs });
    const customers = await Promise.all(Array.from({ length: 6 }, () => world.givenCustomer()));
    const parts: Record<Part, Play> = {
      "last questions": askLast,
      "first questions": askFirst,
      "other states": nameOtherStates,
      "another maximum age": ageElsewhere,
      "ids given twice": giveIdsTwice,
      "another address": changeAddress,
      "another adapter": changeAdapter,
    };
    const { only = Object.keys(parts) as Part[] } = size;
    // Where states have other words the upstream answers every poll, and the last parts change what all others use.
    const apart: Part[] = ["other states", "another address", "another adapter"];
    const together = only.filter((part) => !apart.includes(part));
    const groups = [together, ...apart.filter((part) => only.includes(part)).map((part) => [part])];
    for (const some of groups) {
      await Promise.all(
        some.map(async (part) => {
          await parts[part](world, customers, size);
          world.note(part);
          options.progress(part);
        }),
      );
    }
    return await world.finish();
  } finally {
    await world.stop();
  }
}

type Play = (world: World, customers: readonly Customer[], size: TaskEndsSize) => Promise<void>;

async function begin(
  world: World,
  slot: number,
  customer: Customer,
  wish: Partial<Wish>,
): Promise<ClientEvent> {
  const event = await generate(world.gateways[slot]!, customer, wish);
  world.client.push(event);
  return event;
}

/** A customer polls through two gateways by turns until the task has ended, or for so long. */
async function follow(world: World, customer: Customer, taskId: string, forMs: number): Promise<void> {
  const untilMs = Date.now() + forMs;
  for (let at = 0; Date.now() < untilMs; at++) {
    const event = await poll(world.gateways[at % 2]!, customer, taskId);
    world.client.push(event);
    if (event.taskStatus === "completed" || event.taskStatus === "failed") return;
    await pause(POLL_EVERY_MS);
  }
}

/** From its maximum age on the upstream answers nothing about a task, then that it has completed. */
const askLast: Play = async (world, customers, { maxAgeMs, tasksEach }) => {
  const plan = WITHOUT_ANSWERS.flatMap((kind) => Array.from({ length: tasksEach }, () => kind));
  const shuffled = world.random.shuffle(plan);
  let lastQuestions = 0;
  world.upstream.steer({
    poll(_gateway, { wish, madeMs }) {
      const ageMs = Date.now() - madeMs;
      if (wish.badFromMs === maxAgeMs && ageMs >= maxAgeMs && ageMs < wish.badToMs) lastQuestions++;
      return undefined;
    },
  });
  await inParallel(shuffled.length, shuffled.length, async (at) => {
    const kind = shuffled[at]!;
    const customer = customers[at % customers.length]!;
    // Every fourth is only young when it gets no answer.
    const [from, to, life] = at % 4 === 0 ? [0, 0.4, 0.6] : [1, 1.6, 1.2];
    const times = { lifeMs: life! * maxAgeMs, badFromMs: from! * maxAgeMs, badToMs: to! * maxAgeMs };
    const { status, taskId } = await begin(world, at % 2, customer, { kind, ...times });
    // Half of them are the sweepers' alone.
    if (status === 200 && at % 2 === 0) await follow(world, customer, taskId, 2.5 * maxAgeMs);
  });
  world.upstream.steer({});
  if (lastQuestions < plan.length / 8)
    world.note("not reached", `only ${lastQuestions} last questions without an answer`);
  else world.note("last questions without an answer", `${lastQuestions}`);
};

/** From its first poll on the upstream answers nothing about a task, for longer than 404s need to end it; then that it completed. */
const askFirst: Play = async (world, customers, { maxAgeMs, tasksEach }) => {
  const plan = WITHOUT_TASK.flatMap((kind) => Array.from({ length: tasksEach }, () => kind));
  await inParallel(plan.length, plan.length, async (at) => {
    const customer = customers[at % customers.length]!;
    const wish = { kind: plan[at]!, lifeMs: 0.8 * maxAgeMs, badFromMs: 0, badToMs: 0.8 * maxAgeMs };
    const { status, taskId } = await begin(world, at % 2, customer, wish);
    if (status === 200) await follow(world, customer, taskId, 2.5 * maxAgeMs);
  });
};

/** All tasks of this scenario begin at once: there may be no connection to the upstream for a poll of the first second. */
async function pollInTime(world: World, customer: Customer, taskId: string): Promise<ClientEvent> {
  for (let tries = 1; ; tries++) {
    const seen = await poll(world.gateways[0]!, customer, taskId);
    world.client.push(seen);
    if (seen.status !== 503 || tries === 5) return seen;
    await pause(POLL_EVERY_MS);
  }
}

/** States that are not the API's. The upstream has answered, so each poll is answered, and no task waits for twice its age. */
const nameOtherStates: Play = async (world, _customers, { maxAgeMs, tasksEach }) => {
  // Polls of an account that has ten tasks without an answer in a row are answered from memory.
  const customers = await Promise.all(Array.from({ length: 6 }, () => world.givenCustomer()));
  const plan = OTHER_STATES.flatMap((kind) => Array.from({ length: tasksEach }, () => kind));
  await inParallel(plan.length, plan.length, async (at) => {
    const kind = plan[at]!;
    const customer = customers[at % customers.length]!;
    const wish = { kind, lifeMs: 0.4 * maxAgeMs, fails: at % 3 === 0 };
    const { status, taskId } = await begin(world, at % 2, customer, wish);
    if (status !== 200 || at % 2 === 1) return;
    const seen = await pollInTime(world, customer, taskId);
    if (seen.status !== 200)
      world.note("not reached", `a poll of a task that ${kind} was answered ${seen.status}`);
    await follow(world, customer, taskId, 2.5 * maxAgeMs);
  });
};

/** Tasks of the gateway that allows more run longer than the others would let them, which sweep them once it is gone. */
const ageElsewhere: Play = async (world, customers, { maxAgeMs, tasksEach }) => {
  const begun = await Promise.all(
    Array.from({ length: tasksEach }, (_, at) =>
      begin(world, OTHER_GATEWAY, customers[at % customers.length]!, {
        lifeMs: 1.5 * maxAgeMs,
        fails: at % 3 === 0,
      }),
    ),
  );
  world.kill(OTHER_GATEWAY, "the others sweep its tasks");
  await inParallel(begun.length, begun.length, async (at) => {
    const { status, taskId } = begun[at]!;
    // Half of them are the sweepers' alone.
    if (status === 200 && at % 2 === 0)
      await follow(world, customers[at % customers.length]!, taskId, 2 * maxAgeMs);
  });
  await world.startIn(OTHER_GATEWAY, { maxAgeMs: OTHER_AGE_FACTOR * maxAgeMs });
};

/** The upstream gives another account the id of a task that has ended, and of one that runs. */
const giveIdsTwice: Play = async (world, customers, { maxAgeMs, tasksEach }) => {
  await inParallel(2 * tasksEach, 8, async (at) => {
    const runs = at % 2 === 1;
    const first = customers[at % customers.length]!;
    const second = customers[(at + 1) % customers.length]!;
    const { status, taskId } = await begin(world, 0, first, { lifeMs: runs ? 0.5 * maxAgeMs : 1 });
    if (status !== 200) return;
    if (!runs) await follow(world, first, taskId, 5000);
    const { status: given } = await begin(world, 1, second, { kind: "reuses_a_task_id", tag: taskId });
    if (given !== 502) world.note("not reached", `the task id ${taskId}, given twice, was answered ${given}`);
    for (const slot of [0, 1]) world.client.push(await poll(world.gateways[slot]!, first, taskId));
    if (runs) await follow(world, first, taskId, 2.5 * maxAgeMs);
  });
};

/** The gateways learn of another address while tasks run at the old one, which alone knows them. */
const changeAddress: Play = async (world, customers, { maxAgeMs, tasksEach }) => {
  const old = await Promise.all(
    Array.from({ length: tasksEach }, (_, at) =>
      begin(world, at % 2, customers[at % customers.length]!, { lifeMs: 0.8 * maxAgeMs }),
    ),
  );
  for (const [slot, gateway] of world.gateways.entries()) {
    world.reconfigure(slot, { upstreamUrl: await world.upstream.listen(slot, gateway!.name, 1) });
  }
  const untilMs = Date.now() + RELOAD_MAX_MS;
  for (const slot of world.gateways.keys()) {
    do {
      await pause(250);
      await begin(world, slot, customers[0]!, { lifeMs: 1 });
    } while (world.upstream.events.at(-1)?.site !== 1 && Date.now() < untilMs);
  }
  if (world.upstream.events.at(-1)?.site !== 1) world.note("not reached", "the new address is used");
  await inParallel(old.length, old.length, async (at) => {
    const { status, taskId } = old[at]!;
    if (status === 200 && at % 2 === 0)
      await follow(world, customers[at % customers.length]!, taskId, 1.5 * maxAgeMs);
  });
};

/** The adapter changes to kie and back, at one address: the upstream knows a task only in the form in which it was made. */
const changeAdapter: Play = async (world, customers, { maxAgeMs, tasksEach }) => {
  const customerOf = (at: number): Customer => customers[at % customers.length]!;
  const start = (count: number) =>
    Promise.all(
      Array.from({ length: count }, (_, at) =>
        begin(world, at % 2, customerOf(at), { lifeMs: 0.8 * maxAgeMs, fails: at % 3 === 0 }),
      ),
    );
  const byEnvelope = await start(tasksEach);
  await changeTo(world, customerOf(0), "kie");
  const byKie = await start(tasksEach);
  await changeTo(world, customerOf(0), "envelope");
  const begun = [...byEnvelope, ...byKie];
  await inParallel(begun.length, begun.length, async (at) => {
    const { status, taskId } = begun[at]!;
    // Half of them are the sweepers' alone.
    if (status === 200 && at % 2 === 0)
      await follow(world, customerOf(at % tasksEach), taskId, 1.5 * maxAgeMs);
  });
};

/** Returns once each gateway uses it. */
async function changeTo(world: World, customer: Customer, adapter: FaultDialect): Promise<void> {
  for (const slot of world.gateways.keys()) world.reconfigure(slot, { adapter });
  const untilMs = Date.now() + RELOAD_MAX_MS;
  for (const slot of world.gateways.keys()) {
    do {
      await pause(250);
      await begin(world, slot, customer, { lifeMs: 1 });
    } while (world.upstream.latestDialect !== adapter && Date.now() < untilMs);
  }
  if (world.upstream.latestDialect !== adapter) world.note("not reached", `the adapter ${adapter} is used`);
}
