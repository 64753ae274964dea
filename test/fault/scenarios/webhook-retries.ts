import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { testEndpoint } from "../../../src/operations/webhooks/deliveries.ts";
import type { Endpoint } from "../../../src/operations/webhooks/endpoints.ts";
import { cliActor } from "../../../src/records/actor.ts";
import { endpointNames } from "../../../src/records/names.ts";
import type { RedisNodes } from "../../../src/redis/store-facts.ts";
import { holdPort } from "../../support/held-port.ts";
import { type Customer, generate } from "../client.ts";
import type { WebhookStage } from "../webhook-stage.ts";
import { eventually, type World, within } from "../world.ts";

const FRESH = 100;
const FRESH_EVERY_MS = 30;
const GENERATIONS = 100;
const WATCH_EVERY_MS = 50;
/** Time counted for a message that never came. */
const NEVER_MS = 20_000;

/** A customer's server that takes no message: it refuses connections, or takes them and never answers. */
export interface DeadServer {
  url: string;
  /** Connections that hang now. */
  hanging(): number;
  /** All that it has taken so far. */
  taken(): number;
  hang(): Promise<void>;
  refuse(): void;
  stop(): void;
}

/** It refuses connections first. */
export async function startDeadServer(): Promise<DeadServer> {
  const { port, release } = await holdPort();
  const sockets = new Set<Socket>();
  let server: Server | undefined;
  let taken = 0;
  const refuse = (): void => {
    server?.close();
    server = undefined;
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: `http://127.0.0.1:${port}/`,
    hanging: () => sockets.size,
    taken: () => taken,
    async hang() {
      server = createServer((socket) => {
        taken++;
        sockets.add(socket);
        socket.once("close", () => sockets.delete(socket));
        socket.on("error", () => undefined).resume();
      });
      server.listen(port, "127.0.0.1");
      await once(server, "listening");
    },
    refuse,
    stop() {
      refuse();
      release();
    },
  };
}

/** Deliveries of endpoints that wait after a failed try: all, and those that are due. */
export async function retriesOf(
  nodes: RedisNodes,
  endpoints: readonly Endpoint[],
): Promise<{ all: number; due: number }> {
  const counts = await Promise.all(
    endpoints.map(async ({ partition, endpointId }) => {
      const { retries } = endpointNames(partition, endpointId);
      const redis = nodes.of(partition);
      return [await redis.zcard(retries), await redis.zcount(retries, "-inf", Date.now())] as const;
    }),
  );
  const sum = (of: (count: readonly [number, number]) => number): number =>
    counts.reduce((total, count) => total + of(count), 0);
  return { all: sum(([all]) => all), due: sum(([, due]) => due) };
}

/** Effect of dead endpoints on others, ms: on a fresh message until it arrives, and on a generation. */
export interface Slice {
  freshMs: number[];
  servedMs: number[];
}

export interface Compared {
  alone: Slice;
  beside: Slice;
  /** Retries that were due at the least. */
  due: number;
  /** Of dead endpoints at a time, at the most. */
  tries: number;
}

/** Slices without the dead endpoints, which are disabled meanwhile, and with them in turn: what drifts on the machine meets both. */
export async function compareInPairs(
  stage: { world: World; webhooks: WebhookStage; nodes: RedisNodes },
  {
    dead,
    server,
    answering,
    pairs,
  }: { dead: readonly Endpoint[]; server: DeadServer; answering: Endpoint; pairs: number },
  progress: (line: string) => void,
): Promise<Compared[]> {
  const { world, webhooks, nodes } = stage;
  const customer = await world.givenCustomer();
  const enable = (isEnabled: boolean): Promise<unknown> =>
    Promise.all(dead.map((endpoint) => webhooks.enable(endpoint, isEnabled)));
  const compared: Compared[] = [];
  for (let pair = 0; pair < pairs; pair++) {
    await enable(false);
    await within(NEVER_MS, () => server.hanging() === 0);
    const alone = await slice(stage, answering, customer);
    await enable(true);
    // Whoever is enabled is as one of whom nothing is known, until a try has failed.
    await eventually(NEVER_MS, async () => (await slowOf(nodes, dead)) === dead.length);
    const watching = watchTries(world, dead);
    const before = await retriesOf(nodes, dead);
    const beside = await slice(stage, answering, customer);
    const after = await retriesOf(nodes, dead);
    compared.push({ alone, beside, due: Math.min(before.due, after.due), tries: await watching.end() });
    progress(
      `slice ${pair + 1} of ${pairs}: p99 ${p99(alone.freshMs)} ms alone, ${p99(beside.freshMs)} ms beside ${after.due} retries`,
    );
  }
  return compared;
}

/** How many are known to fail. */
async function slowOf(nodes: RedisNodes, endpoints: readonly Endpoint[]): Promise<number> {
  const marks = await Promise.all(
    endpoints.map(({ partition, endpointId }) =>
      nodes.of(partition).hget(endpointNames(partition, endpointId).endpoint, "is_slow"),
    ),
  );
  return marks.filter((mark) => mark === "1").length;
}

/** Counts what is sent to endpoints at a time, as the store has it. */
function watchTries({ redis }: World, endpoints: readonly Endpoint[]) {
  const ending = new AbortController();
  const watch = async (): Promise<number> => {
    let most = 0;
    while (!ending.signal.aborted) {
      const all = redis.multi();
      for (const { partition, endpointId } of endpoints)
        all.zcard(endpointNames(partition, endpointId).sending);
      const counts = (await all.exec()) ?? [];
      most = Math.max(
        most,
        counts.reduce((sum, [, count]) => sum + Number(count), 0),
      );
      await pause(WATCH_EVERY_MS);
    }
    return most;
  };
  const watching = watch();
  return {
    end(): Promise<number> {
      ending.abort();
      return watching;
    },
  };
}

async function slice(
  stage: { world: World; webhooks: WebhookStage; nodes: RedisNodes },
  endpoint: Endpoint,
  customer: Customer,
): Promise<Slice> {
  const freshMs = await freshAfterMs(stage, endpoint);
  const servedMs: number[] = [];
  for (let at = 0; at < GENERATIONS; at++) {
    const beganMs = performance.now();
    await generate(stage.world.gateways[0]!, customer, { lifeMs: 1 });
    servedMs.push(performance.now() - beganMs);
  }
  return { freshMs, servedMs };
}

/** How long each message takes from its event to its receiver, ms. */
export async function freshAfterMs(
  { world, webhooks, nodes }: { world: World; webhooks: WebhookStage; nodes: RedisNodes },
  endpoint: Endpoint,
): Promise<number[]> {
  const queuedMs = new Map<string, number>();
  const first = webhooks.receiver.messages.length;
  for (let at = 0; at < FRESH; at++) {
    const { eventId, eventAtMs } = await testEndpoint(nodes, endpoint, cliActor());
    queuedMs.set(eventId, eventAtMs);
    // Looks for what is due have a period of their own.
    await pause(FRESH_EVERY_MS * (0.5 + world.random.real()));
  }
  const arrivals = (): number[] =>
    webhooks.receiver.messages
      .slice(first)
      .flatMap(({ webhookId, arrivedMs }) =>
        queuedMs.has(webhookId) ? [arrivedMs - queuedMs.get(webhookId)!] : [],
      );
  await eventually(NEVER_MS, async () => arrivals().length >= FRESH);
  return [...arrivals(), ...Array.from({ length: FRESH }, () => NEVER_MS)].slice(0, FRESH);
}

export const p99 = (values: readonly number[]): number => at(values, 0.99);
export const median = (values: readonly number[]): number => at(values, 0.5);

function at(values: readonly number[], share: number): number {
  return values.toSorted((a, b) => a - b)[Math.ceil(share * values.length) - 1] ?? Number.NaN;
}
