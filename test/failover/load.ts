import { setTimeout as pause } from "node:timers/promises";
import { partitionOf } from "../../src/records/names.ts";
import { type Customer, generate } from "../fault/client.ts";
import { anyGateway, type Fleet } from "../fault/fleet.ts";
import type { Random } from "../fault/random.ts";
import { planErrands, runErrand } from "../fault/scenarios/traffic.ts";
import type { Operators } from "./operators.ts";
import { PARTITIONS } from "./slots.ts";

/** How many times as often as another customer one with narrow limits comes. */
const NARROW_SHARE = 8;
const WIDTH = 16;
/** Of the upstream, so that many a charge is due while the store is away. */
const DELAY_MAX_MS = 400;
/** Between two errands of a lane, and after an answer that the store is away. */
const PAUSE_MS = 20;
const AWAY_PAUSE_MS = 250;
const PROBE_WIDTH = 8;
const PROBE_PAUSE_MS = 50;

export interface Crowd {
  /** One customer of each partition, with room for anything. */
  wide: Customer[];
  /** All, some with narrow limits. */
  all: Customer[];
}

export async function givenCrowd(fleet: Fleet): Promise<Crowd> {
  const wide: Customer[] = [];
  for (let partition = 0; partition < PARTITIONS; partition++) {
    wide.push(await fleet.givenCustomer({}, accountIn(partition)));
  }
  const narrow = [
    await fleet.givenCustomer({ rate_limit: 40 }),
    await fleet.givenCustomer({ max_concurrent: 3 }),
    await fleet.givenCustomer({ daily_limit: 150 }),
    await fleet.givenCustomer({ granted: 500 }),
  ];
  // Often enough to meet their limits.
  const often = Array.from({ length: NARROW_SHARE }, () => narrow).flat();
  return { wide, all: [...wide, ...often] };
}

function accountIn(partition: number): string {
  for (let at = 0; ; at++) {
    const accountId = `acc_${partition}_${at}`;
    if (partitionOf(accountId, PARTITIONS) === partition) return accountId;
  }
}

interface LoadOptions {
  fleet: Fleet;
  crowd: Crowd;
  operators: Operators;
  /** How long an operator rests between two commands, ms; each starts a process. */
  operatorRestMs?: number;
  /** The address that a request of a customer names. */
  callbackUrl?: ((customer: Customer, random: Random) => string | undefined) | undefined;
  random: Random;
  /** Of the round, in the Idempotency-Keys. */
  at: number;
}

export interface Load {
  /** The operator makes no more commands; resolves when the last one has ended. */
  restOperators(): Promise<void>;
  stop(): Promise<void>;
}

/** Customers' errands over all partitions, and an operator at the command line, until it is stopped. */
export function startLoad(options: LoadOptions): Load {
  const { fleet, crowd, operators, random, at } = options;
  const { operatorRestMs = 0, callbackUrl = () => undefined } = options;
  let stopped = false;
  let resting = false;
  // More than any round needs; what is left over is not sent.
  const errands = planErrands(random, 20_000, crowd.all.length, fleet.gateways.length)
    .map((errand) => ({
      ...errand,
      wish: { ...errand.wish, delayMs: random.int(0, DELAY_MAX_MS) },
      callBackUrl: callbackUrl(crowd.all[errand.customer]!, random),
    }))
    .values();
  const lane = async (): Promise<void> => {
    for (const errand of errands) {
      if (stopped) return;
      const idempotencyKey = errand.idempotencyKey && `${at}-${errand.idempotencyKey}`;
      const { status } = await runErrand(fleet, crowd.all, { ...errand, idempotencyKey });
      await pause(status === 503 ? AWAY_PAUSE_MS : PAUSE_MS);
    }
  };
  const operate = async (): Promise<void> => {
    while (!stopped && !resting) {
      await operators.work();
      await pause(operatorRestMs);
    }
  };
  const operating = operate();
  const lanes = [operating, ...Array.from({ length: WIDTH }, lane)];
  return {
    async restOperators() {
      resting = true;
      await operating;
    },
    async stop() {
      stopped = true;
      await Promise.all(lanes);
    },
  };
}

/**
 * Sends a request of each customer until it is served.
 * @returns how long each took from a moment on, ascending, ms
 */
export async function serveAll(
  fleet: Fleet,
  customers: readonly Customer[],
  { sinceMs, waitMaxMs }: { sinceMs: number; waitMaxMs: number },
): Promise<number[]> {
  const waiting = [...customers];
  const served: number[] = [];
  const lane = async (wanted: number): Promise<void> => {
    for (let customer = waiting.shift(); customer; customer = waiting.shift()) {
      const event = await generate(await anyGateway(fleet, wanted), customer, { lifeMs: 1 });
      fleet.client.push(event);
      if (event.status === 200) served.push(event.endedMs - sinceMs);
      else if (Date.now() - sinceMs > waitMaxMs) fleet.note("not reached", `${customer.accountId} is served`);
      else {
        waiting.push(customer);
        await pause(PROBE_PAUSE_MS);
      }
    }
  };
  await Promise.all(Array.from({ length: PROBE_WIDTH }, (_, at) => lane(at)));
  return served.sort((a, b) => a - b);
}
