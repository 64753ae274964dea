import { setTimeout as pause } from "node:timers/promises";
import { generate, poll } from "../client.ts";
import type { History } from "../history.ts";
import { inParallel } from "../random.ts";
import { KINDS, MISBEHAVIOURS } from "../upstream-kinds.ts";
import { createWorld, type RunOptions } from "../world.ts";
import type { Scenario } from "./scenario.ts";

interface UpstreamSize {
  requestsEach: number;
  /** Requests at a time: a machine that does more than this test at a time is late with all of them. */
  width: number;
  /** Only these. */
  kinds?: readonly string[];
}

/** Polls until a task has ended; the strangest kinds need three. */
const POLLS_MAX = 6;
/** A busy machine may keep the store waiting for too long. */
const TRIES_MAX = 20;
/** A running task whose id is given twice ends by its age alone. Decision 0004. */
const MAX_AGE_MS = 20_000;

/** The upstream misbehaves in every way it knows; its own log says what is right. */
export const upstream: Scenario<UpstreamSize> = {
  name: "upstream",
  title: ({ requestsEach }) =>
    `${MISBEHAVIOURS.length} kinds of misbehaviour, ${requestsEach} requests each: ${MISBEHAVIOURS.join(", ").replaceAll("_", " ")}`,
  full: { requestsEach: 500, width: 64 },
  short: { requestsEach: 8, width: 16 },
  run: runUpstream,
};

async function runUpstream(options: RunOptions, size: UpstreamSize): Promise<History> {
  const { requestsEach, width, kinds: misbehaviours = MISBEHAVIOURS } = size;
  const world = await createWorld(options, 2, { maxAgeMs: MAX_AGE_MS });
  try {
    const { random } = world;
    const customers = await Promise.all(Array.from({ length: 8 }, () => world.givenCustomer()));
    // One in ten behaves, so that the misbehaving ones do not have the connections to themselves.
    const kinds = [...misbehaviours.flatMap((kind) => Array.from({ length: requestsEach }, () => kind))];
    const behaving = Array.from({ length: Math.ceil(kinds.length / 10) }, () => "ok");
    const plan = random.shuffle([...kinds, ...behaving]).map((kind) => ({
      wish: { kind, lifeMs: random.int(1, 60), fails: random.chance(0.3) },
      customer: customers[random.int(0, customers.length - 1)]!,
      gateway: random.int(0, 1),
      idempotencyKey: random.chance(0.3) ? `key-${random.int(0, 2 ** 40)}` : "",
    }));

    await inParallel(plan.length, width, async (at) => {
      const { wish, customer, gateway, idempotencyKey } = plan[at]!;
      const target = world.gateways[gateway]!;
      let event = await generate(target, customer, wish, { idempotencyKey });
      world.client.push(event);
      for (let tries = 0; event.status === 503 && event.code === 503 && tries < TRIES_MAX; tries++) {
        await pause(200);
        event = await generate(target, customer, wish, { idempotencyKey });
        world.client.push(event);
      }
      if (at % 2000 === 1999) options.progress(`${at + 1} of ${plan.length} requests`);
      if (event.status !== 200 || KINDS[wish.kind]!.truth !== "yes") return;
      await pause(wish.lifeMs);
      for (let polls = 0; polls < POLLS_MAX; polls++) {
        const seen = await poll(target, customer, event.taskId);
        world.client.push(seen);
        if (seen.taskStatus === "completed" || seen.taskStatus === "failed") break;
      }
    });
    const seen = Map.groupBy(world.upstream.events, ({ kind }) => kind);
    for (const kind of misbehaviours) {
      const count = seen.get(kind)?.length ?? 0;
      // On a busy machine some are refused for good before they are sent.
      if (count < requestsEach / 2)
        world.note("not reached", `${kind}: ${count} of ${requestsEach} requests`);
    }
    return await world.finish();
  } finally {
    await world.stop();
  }
}
