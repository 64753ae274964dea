import { setTimeout as pause } from "node:timers/promises";
import { generate } from "../client.ts";
import type { ClientEvent, History } from "../history.ts";
import { createWorld, type RunOptions, type World } from "../world.ts";
import type { Scenario } from "./scenario.ts";

interface UnknownSize {
  /** Accounts that reach the bound, and storyboards of each way not to be clear. */
  each: number;
}

/** Ways in which the upstream leaves the outcome unknown at once. */
const UNCLEAR = ["resets", "answers_html", "fails_500"];
/** Longer than any other hold of an unknown outcome: by the gateways' timeouts these end after 10.2 s. */
const MAX_AGE_MS = 12_500;
const UNKNOWN_OUTCOMES_MAX = 3;
const CALLBACK = "https://customer.example/done";
/** A hold ends with the sweeper's next look. */
const AGAIN_MAX_MS = 30_000;

/** Nobody knows what became of requests: storyboards whose videos a callback brings, and accounts that have many of them. */
export const unknownOutcomes: Scenario<UnknownSize> = {
  name: "unknown-outcomes",
  title: ({ each }) =>
    `${each} storyboards with and without callBackUrl for each of ${UNCLEAR.join(", ").replaceAll("_", " ")}, ` +
    `one of a key with one slot, a maximum age of ${MAX_AGE_MS / 1000} s; ${each} accounts that may have ${UNKNOWN_OUTCOMES_MAX} unknown outcomes have as many`,
  full: { each: 20 },
  short: { each: 3 },
  run: runUnknown,
};

async function runUnknown(options: RunOptions, { each }: UnknownSize): Promise<History> {
  const world = await createWorld(options, 2, {
    maxAgeMs: MAX_AGE_MS,
    unknownOutcomesMax: UNKNOWN_OUTCOMES_MAX,
  });
  try {
    await Promise.all(
      Array.from({ length: each }, (_, at) => [
        askStoryboards(world, at),
        takeOnlySlot(world, at),
        fill(world, at),
      ]).flat(),
    );
    return await world.finish();
  } finally {
    await world.stop();
  }
}

async function askStoryboards(world: World, at: number): Promise<void> {
  for (const storyboard of [{ callBackUrl: CALLBACK }, {}]) {
    const customer = await world.givenCustomer();
    for (const [index, kind] of UNCLEAR.entries()) {
      const gateway = world.gateways[(at + index) % 2]!;
      const event = await generate(gateway, customer, { kind }, { storyboard });
      world.client.push(event);
      if (event.status !== 502)
        world.note("not reached", `a storyboard that ${kind} was answered ${event.status}`);
    }
  }
}

/** A key's only slot waits for an unknown outcome, for as long as its callback may come. */
async function takeOnlySlot({ gateways, client, givenCustomer, note }: World, at: number): Promise<void> {
  const customer = await givenCustomer({ max_concurrent: 1 });
  const gateway = gateways[at % 2]!;
  client.push(
    await generate(gateway, customer, { kind: UNCLEAR[0]! }, { storyboard: { callBackUrl: CALLBACK } }),
  );
  const event = await generate(gateway, customer, {});
  client.push(event);
  if (event.code !== 2002 || event.retryAfterSeconds < MAX_AGE_MS / 1000 - 2)
    note(
      "not reached",
      `a key that waits (${event.code}) was told to come back after ${event.retryAfterSeconds} s`,
    );
}

/** An account gets as many unknown outcomes as it may have, through both gateways, then tries each until it may again. */
async function fill({ gateways, client, givenCustomer, note }: World, at: number): Promise<void> {
  const customer = await givenCustomer();
  const ask = async (slot: number, kind: string): Promise<ClientEvent> => {
    const event = await generate(gateways[slot % 2]!, customer, { kind });
    client.push(event);
    return event;
  };
  for (let made = 0; made < UNKNOWN_OUTCOMES_MAX; made++)
    await ask(at + made, UNCLEAR[made % UNCLEAR.length]!);
  const untilMs = Date.now() + AGAIN_MAX_MS;
  for (const slot of [0, 1]) {
    const { status } = await ask(slot, "ok");
    if (status !== 503)
      note("not reached", `an account with ${UNKNOWN_OUTCOMES_MAX} unknown outcomes was answered ${status}`);
  }
  let status = 0;
  while (status !== 200 && Date.now() < untilMs) {
    await pause(1000);
    ({ status } = await ask(at, "ok"));
  }
  if (status !== 200) note("not reached", `a request after the holds had ended was answered ${status}`);
}
