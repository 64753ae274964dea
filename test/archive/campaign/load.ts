import { setTimeout as pause } from "node:timers/promises";
import { grantCredits } from "../../../src/store/accounts.ts";
import type { Random } from "../../fault/random.ts";
import type { Customer, World } from "./world.ts";

const WIDTH = 10;
const PAUSE_MS = 20;
const AWAY_PAUSE_MS = 100;
const POLLS_MAX = 15;
const GRANT_EVERY_MS = 150;
const ANSWER_MS = 5000;

/** What clients and an operator were told. */
export interface Told {
  /** Task id to its account: generations that were answered with 200. */
  charged: Map<string, string>;
  /** Task ids that a poll called failed. */
  failed: Set<string>;
  /** Reference to account and credits: grants that were acknowledged. */
  granted: Map<string, { accountId: string; credits: number }>;
}

interface Reply {
  status: number;
  data: { task_id?: string; status?: string };
}

/** Sends one request; status 0 if there was no answer. */
async function send(
  world: World,
  random: Random,
  customer: Customer,
  path: string,
  body?: object,
): Promise<Reply> {
  const none = { status: 0, data: {} };
  const gateway = world.gateways[random.int(0, world.gateways.length - 1)];
  if (!gateway) return none;
  try {
    const response = await fetch(gateway.url + path, {
      method: body ? "POST" : "GET",
      headers: { authorization: `Bearer ${customer.key}`, "content-type": "application/json" },
      signal: AbortSignal.timeout(ANSWER_MS),
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    const answer = (await response.json()) as { data?: Reply["data"] };
    return { status: response.status, data: answer.data ?? {} };
  } catch {
    return none;
  }
}

/** Customers who generate and poll, and an operator who grants, until it is stopped. */
export function startLoad(world: World, random: Random): { told: Told; stop(): Promise<void> } {
  const told: Told = { charged: new Map(), failed: new Set(), granted: new Map() };
  let stopped = false;

  async function generate(): Promise<void> {
    const customer = random.pick(world.customers);
    const body = { prompt: "A boat" };
    const { status, data } = await send(world, random, customer, "/api/v1/gen2/text-to-video", body);
    if (status !== 200 || data.task_id === undefined) return pause(status === 200 ? PAUSE_MS : AWAY_PAUSE_MS);
    told.charged.set(data.task_id, customer.accountId);
    if (random.chance(0.5)) return;
    for (let polls = 0; polls < POLLS_MAX && !stopped; polls++) {
      await pause(AWAY_PAUSE_MS);
      const poll = await send(world, random, customer, `/api/v1/tasks/${data.task_id}`);
      if (poll.status === 200 && poll.data.status === "failed") told.failed.add(data.task_id);
      if (poll.status === 200 && (poll.data.status === "failed" || poll.data.status === "completed")) return;
    }
  }

  async function lane(): Promise<void> {
    while (!stopped) {
      await generate();
      await pause(PAUSE_MS);
    }
  }

  async function operate(): Promise<void> {
    for (let at = 0; !stopped; at++) {
      const { accountId } = random.pick(world.customers);
      const [credits, reference] = [random.int(1, 100), `order ${at}`];
      // The same reference until it is acknowledged.
      while (!stopped) {
        const grant = await grantCredits(world.nodes, accountId, credits, reference).catch(() => undefined);
        if (grant) told.granted.set(reference, { accountId, credits });
        if (grant) break;
        await pause(AWAY_PAUSE_MS);
      }
      await pause(GRANT_EVERY_MS);
    }
  }

  const lanes = [operate(), ...Array.from({ length: WIDTH }, lane)];
  return {
    told,
    async stop() {
      stopped = true;
      await Promise.all(lanes);
    },
  };
}
