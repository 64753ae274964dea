import { setTimeout as pause } from "node:timers/promises";
import { type Customer, generate, poll } from "../client.ts";
import { anyGateway, type Fleet } from "../fleet.ts";
import type { ClientEvent } from "../history.ts";
import type { Random } from "../random.ts";
import type { Wish } from "../upstream.ts";

/** One request as it is planned, before anything runs. */
export interface Errand {
  customer: number;
  gateway: number;
  wish: Partial<Wish>;
  idempotencyKey: string;
  /** Polls after the task has ended; the sweeper does it where there are none. */
  polls: number;
  /** Sent a second time, with the same Idempotency-Key, through another gateway. */
  repeats: boolean;
  /** Where the customer wants to be told of its end. */
  callBackUrl?: string | undefined;
}

/** Requests as customers make them: some fail, some are polled, some have a key and come twice. */
export function planErrands(random: Random, count: number, customers: number, gateways: number): Errand[] {
  return Array.from({ length: count }, (_, at) => {
    const keyed = random.chance(0.25);
    return {
      customer: random.int(0, customers - 1),
      gateway: random.int(0, gateways - 1),
      wish: {
        kind: random.chance(0.05) ? "refuses_400" : "ok",
        lifeMs: random.int(1, 60),
        fails: random.chance(0.3),
        delayMs: random.chance(0.5) ? random.int(0, 40) : 0,
      },
      idempotencyKey: keyed ? `key-${at}` : "",
      polls: random.chance(0.7) ? random.int(1, 3) : 0,
      repeats: keyed && random.chance(0.5),
    };
  });
}

/**
 * Makes one errand: the request, perhaps its repeat, and polls until the task's end was seen.
 * @returns what the request was answered
 */
export async function runErrand(
  world: Fleet,
  customers: readonly Customer[],
  errand: Errand,
): Promise<ClientEvent> {
  const customer = customers[errand.customer]!;
  const { wish, idempotencyKey, callBackUrl } = errand;
  const how = { idempotencyKey, ...(callBackUrl !== undefined && { storyboard: { callBackUrl } }) };
  const ask = async (wanted: number): Promise<ClientEvent> => {
    const event = await generate(await anyGateway(world, wanted), customer, wish, how);
    world.client.push(event);
    return event;
  };
  let event = await ask(errand.gateway);
  if (errand.repeats) {
    const repeat = await ask(errand.gateway + 1);
    if (event.status !== 200) event = repeat;
  }
  if (event.status !== 200 || errand.polls === 0) return event;
  await pause(wish.lifeMs);
  // Through two gateways at once: an end must count once, whoever sees it.
  const polls = Array.from({ length: errand.polls }, async (_, each) => {
    const gateway = await anyGateway(world, errand.gateway + each);
    world.client.push(await poll(gateway, customer, event.taskId));
  });
  await Promise.all(polls);
  return event;
}

/** Customers with room for anything, and some with narrow limits of each kind. */
export async function givenCrowd(world: Fleet): Promise<Customer[]> {
  const wide = await Promise.all(Array.from({ length: 12 }, () => world.givenCustomer()));
  const narrow = await Promise.all([
    world.givenCustomer({ rate_limit: 40 }),
    world.givenCustomer({ max_concurrent: 3 }),
    world.givenCustomer({ daily_limit: 150 }),
    world.givenCustomer({ granted: 500 }),
    world.givenCustomer({ monthly_credits: 100 }),
    world.givenCustomer({ rate_limit: 40, areOfAccount: true }),
    world.givenCustomer({ max_concurrent: 3, areOfAccount: true }),
    world.givenCustomer({ daily_limit: 150, areOfAccount: true }),
  ]);
  return [...wide, ...narrow];
}
