import { setTimeout as pause } from "node:timers/promises";
import { GENERATION_ENDPOINTS, type GenerationEndpoint } from "../../../src/domain/endpoints.ts";
import { keyRef, partitionOf } from "../../../src/records/names.ts";
import { oneNode, partitionsOf } from "../../../src/redis/store-facts.ts";
import { callBack, callBackUntilTaken, callbackPathOf } from "../callbacks.ts";
import { type Customer, generate } from "../client.ts";
import type { History, PostedCallback, UpstreamEvent } from "../history.ts";
import { WEBHOOKS } from "../webhook-stage.ts";
import { createWorld, type RunOptions, type World } from "../world.ts";
import type { Scenario } from "./scenario.ts";

interface SlotsSize {
  /** Generations through one gateway; as many through two, and through three. */
  each: number;
}

const GATEWAYS = 3;
const CUSTOMERS = 6;
const PER_SECOND = 60;
/** The first ones come slowly: they compile the gateways. */
const FIRST = 60;
const FIRST_EVERY_MS = 100;
const LIFE_MS = [200, 1500] as const;
/** Of the gateways' own polls, and longer than any run. */
const POLL_INTERVAL_MS = 3_600_000;
const TIMER_EARLY_MS = 2;
const SLOT_MS_MAX = 1000;

/** One generation as it is planned. */
interface Planned {
  customer: Customer;
  endpoint: GenerationEndpoint;
  /** So many gateways share the work, and this one of them takes the generation; the next one takes the callback. */
  gateways: number;
  nth: number;
  lifeMs: number;
  fails: boolean;
}

/** With `relay: all` a callback alone gives the slot back, whatever the endpoint: nobody polls. */
export const callbackSlots: Scenario<SlotsSize> = {
  name: "callback-slots",
  title: ({ each }) =>
    `with \`relay: all\`, ${each} generations of all six endpoints through one gateway, ${each} through two and ${each} through three, ${PER_SECOND} a second; ` +
    "no customer polls, and the gateways would only do so after an hour; the upstream calls back as each task ends",
  full: { each: 1200 },
  short: { each: 100 },
  run: runSlots,
};

async function runSlots(options: RunOptions, { each }: SlotsSize): Promise<History> {
  const world = await createWorld(options, GATEWAYS, {
    pollIntervalMs: POLL_INTERVAL_MS,
    webhooks: WEBHOOKS,
  });
  try {
    const customers = await Promise.all(Array.from({ length: CUSTOMERS }, () => world.givenCustomer()));
    const plan = Array.from({ length: each * GATEWAYS }, (_, nth): Planned => {
      const [least, most] = LIFE_MS;
      return {
        nth,
        customer: customers[world.random.int(0, CUSTOMERS - 1)]!,
        endpoint: GENERATION_ENDPOINTS[nth % GENERATION_ENDPOINTS.length]!,
        gateways: 1 + Math.floor(nth / each),
        lifeMs: world.random.int(least, most),
        fails: world.random.chance(0.2),
      };
    });
    const posted: PostedCallback[] = [];
    const posting: Promise<void>[] = [];
    world.upstream.steer({
      read(event, { tag }) {
        posting.push(
          postAtEnd(world, plan[Number(tag)]!, event).then((one) => void (one && posted.push(one))),
        );
        return undefined;
      },
    });
    await sendPaced(world, plan);
    await Promise.all(posting);
    options.progress(`${posted.length} called back about`);
    return { ...(await world.finish()), posted };
  } finally {
    await world.stop();
  }
}

const dueAfterMs = (nth: number): number =>
  Math.min(nth, FIRST) * FIRST_EVERY_MS + (Math.max(0, nth - FIRST) * 1000) / PER_SECOND;

async function sendPaced(world: World, plan: readonly Planned[]): Promise<void> {
  const fromMs = performance.now();
  const sending = plan.map(async ({ nth, customer, endpoint, gateways, lifeMs, fails }) => {
    await pause(Math.max(0, fromMs + dueAfterMs(nth) - performance.now()));
    const gateway = world.gateways[nth % gateways]!;
    const wish = { lifeMs, fails, tag: String(nth) };
    world.client.push(await generate(gateway, customer, wish, { endpoint }));
  });
  await Promise.all(sending);
}

/** Calls back as the task ends, and looks at its slot a second later. @returns undefined if there is no address */
async function postAtEnd(
  world: World,
  { nth, customer, endpoint, gateways, lifeMs, fails }: Planned,
  event: UpstreamEvent,
): Promise<PostedCallback | undefined> {
  const { requestId } = event;
  const { gateways: all, redis } = world;
  if (callbackPathOf(event) === "") return undefined;
  await pause(lifeMs + TIMER_EARLY_MS);
  const postedMs = Date.now();
  const status = await callBack(all[(nth + 1) % gateways]!, event, {
    status: fails ? "failed" : "completed",
  });
  await pause(Math.max(0, postedMs + SLOT_MS_MAX - Date.now()));
  const partition = partitionOf(customer.accountId, await partitionsOf(oneNode(redis)));
  const { slots } = keyRef(customer.keyId, customer.accountId, partition).names;
  const isSlotTaken = (await redis.sismember(slots, requestId)) === 1;
  // A callback that was not taken is too late already, and only lets the run come to its end.
  if (status !== 200) await callBackUntilTaken(world, event);
  return { requestId, endpoint, gateways, postedMs, status, isSlotTaken };
}
