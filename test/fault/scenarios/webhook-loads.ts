import { setTimeout as pause } from "node:timers/promises";
import { redeliver, testEndpoint } from "../../../src/operations/webhooks/deliveries.ts";
import { deleteEndpoint, type Endpoint, readEndpoint } from "../../../src/operations/webhooks/endpoints.ts";
import { cliActor } from "../../../src/records/actor.ts";
import { partitionOf } from "../../../src/records/names.ts";
import { OperatorError } from "../../../src/records/operator-error.ts";
import { randomId } from "../../../src/records/random-ids.ts";
import { oneNode, type RedisNodes } from "../../../src/redis/nodes.ts";
import type { Criterion, Verdict } from "../checker.ts";
import { type Customer, generate, poll } from "../client.ts";
import { metricOf } from "../gateways.ts";
import type { ToldMessage } from "../history.ts";
import { inParallel } from "../random.ts";
import { Telling, WEBHOOKS } from "../told-stage.ts";
import { createWorld, eventually, type RunOptions, type World, within } from "../world.ts";

/** Deliveries that wait, at the bound of each endpoint. */
const ENDPOINTS = 10;
const FULL_WAITING_EACH = 10_000;
const FRESH = 200;
const FRESH_EVERY_MS = 40;
const GENERATIONS = 200;
/** More than there are accounts: the events of a partition have a bound, too, which two full endpoints nearly reach. */
const PARTITIONS = 64;
/** What a busy machine adds. */
const SLOWER_MS = 400;
const BYTES_EACH_MAX = 2500;
/** Few places, so that those that dead endpoints have would be missed. */
const SECTION = { ...WEBHOOKS, in_flight: 16, retries: ["5s", "5m", "30m"] };

interface Stage {
  world: World;
  telling: Telling;
  nodes: RedisNodes;
  criteria: Criterion[];
  /** Partitions that have an account. */
  taken: Set<number>;
}

/** Loads of webhooks that wait, and what others notice of them. */
export const loadsTitle = (short: boolean): string =>
  `${ENDPOINTS} dead endpoints with ${waitingEach(short)} waiting deliveries each beside one that answers; at the bound; deleted; sent again during a send`;

const waitingEach = (short: boolean): number => (short ? FULL_WAITING_EACH / 10 : FULL_WAITING_EACH);

export async function runWebhookLoads(options: RunOptions, short: boolean): Promise<Verdict> {
  const world = await createWorld(options, 1, { partitions: PARTITIONS, webhooks: SECTION });
  const telling = await Telling.start(world);
  const stage: Stage = { world, telling, nodes: oneNode(world.redis), criteria: [], taken: new Set() };
  try {
    await besideDeadOnes(stage, waitingEach(short), options.progress);
    await again(stage);
  } finally {
    await world.stop();
    telling.stop();
  }
  const { criteria } = stage;
  return { met: criteria.every(({ met }) => met), criteria, uncharged: [] };
}

function judge({ criteria }: Stage, name: string, met: boolean, figure: string): void {
  criteria.push({ name, met, figure, violations: met ? [] : [figure] });
}

/** A customer in a partition of its own. */
async function givenCustomer({ world, taken }: Stage): Promise<Customer> {
  let accountId = randomId("acc");
  while (taken.has(partitionOf(accountId, PARTITIONS))) accountId = randomId("acc");
  taken.add(partitionOf(accountId, PARTITIONS));
  return world.givenCustomer(undefined, accountId);
}

async function besideDeadOnes(stage: Stage, each: number, progress: (line: string) => void): Promise<void> {
  const { world, telling, nodes } = stage;
  const answering = await telling.giveEndpoint(await givenCustomer(stage), "answers");
  const dead: Endpoint[] = [];
  for (let at = 0; at < ENDPOINTS; at++)
    dead.push(await telling.giveEndpoint(await givenCustomer(stage), "hangs"));
  await freshAfterMs(stage, answering);
  const alone = { freshMs: await freshAfterMs(stage, answering), servedMs: await servedAfterMs(world) };
  const before = await usedBytes(world);
  await inParallel(ENDPOINTS * each, 200, async (at) => {
    await testEndpoint(nodes, dead[at % ENDPOINTS]!, cliActor()).catch(ignoreFull);
  });
  const waiting = await telling.waiting();
  const bytesEach = Math.round(((await usedBytes(world)) - before) / waiting);
  progress(`${waiting} deliveries wait`);
  judge(
    stage,
    "as many wait as were asked for, but for a tenth",
    waiting >= 0.9 * ENDPOINTS * each,
    `${waiting} of ${ENDPOINTS * each}`,
  );
  judge(
    stage,
    `at most ${BYTES_EACH_MAX} bytes of Redis for each that waits, with its audit entry`,
    bytesEach <= BYTES_EACH_MAX,
    `${bytesEach} bytes, ${waiting} wait`,
  );
  const beside = { freshMs: await freshAfterMs(stage, answering), servedMs: await servedAfterMs(world) };
  judge(
    stage,
    "fresh deliveries are as fast as without",
    p99(beside.freshMs) <= p99(alone.freshMs) + SLOWER_MS,
    `p99 ${p99(beside.freshMs)} ms beside ${waiting} that wait, ${p99(alone.freshMs)} ms alone`,
  );
  judge(
    stage,
    "generations are as fast as without",
    median(beside.servedMs) <= 1.5 * median(alone.servedMs) + 5,
    `median ${median(beside.servedMs)} ms beside, ${median(alone.servedMs)} ms alone`,
  );
  await atTheBound(stage, answering);
  await deleted(stage, dead[0]!);
}

const ignoreFull = (error: unknown): void => {
  if (!(error instanceof OperatorError) || error.problem !== "too_many_deliveries") throw error;
};

/** How long each message takes from its event to its receiver, ms. */
async function freshAfterMs({ telling, nodes }: Stage, endpoint: Endpoint): Promise<number[]> {
  const { messages } = telling.receiver;
  const queuedMs = new Map<string, number>();
  for (let at = 0; at < FRESH; at++) {
    const { eventId, eventAtMs } = await testEndpoint(nodes, endpoint, cliActor());
    queuedMs.set(eventId, eventAtMs);
    await pause(FRESH_EVERY_MS);
  }
  const own = (): ToldMessage[] => messages.filter(({ webhookId }) => queuedMs.has(webhookId));
  await within(20_000, () => own().length >= FRESH);
  const took = own().map(({ webhookId, arrivedMs }) => arrivedMs - queuedMs.get(webhookId)!);
  // What never came took for ever.
  return [...took, ...Array.from({ length: FRESH - took.length }, () => 20_000)];
}

async function servedAfterMs(world: World): Promise<number[]> {
  const customer = await world.givenCustomer();
  const took: number[] = [];
  for (let at = 0; at < GENERATIONS; at++) {
    const beganMs = performance.now();
    await generate(world.gateways[0]!, customer, { lifeMs: 1 });
    took.push(performance.now() - beganMs);
  }
  return took;
}

/** An account whose endpoint has as many as may wait: its tasks end, what is not queued is counted, and a metric says so. */
async function atTheBound(stage: Stage, answering: Endpoint): Promise<void> {
  const { world, telling, nodes } = stage;
  const customer = await givenCustomer(stage);
  const full = await telling.giveEndpoint(customer, "hangs");
  const bound = FULL_WAITING_EACH;
  let refused = 0;
  await inParallel(bound + 50, 200, async () => {
    await testEndpoint(nodes, full, cliActor()).catch((error: unknown) => {
      ignoreFull(error);
      refused++;
    });
  });
  const gateway = world.gateways[0]!;
  const { taskId } = await generate(gateway, customer, { lifeMs: 1 });
  let shown = "";
  await eventually(5000, async () => {
    shown = (await poll(gateway, customer, taskId)).taskStatus;
    return shown === "completed";
  });
  const { dropped, waiting } = await readEndpoint(nodes, full.accountId, full.endpointId);
  const isCounted = await eventually(
    30_000,
    async () => (await metricOf(gateway, "tollgate_webhook_deliveries_dropped")) > 0,
  );
  const isUnharmed = (await readEndpoint(nodes, answering.accountId, answering.endpointId)).dropped === 0;
  judge(
    stage,
    "at its bound an endpoint drops, counts and says so, and tasks end",
    shown === "completed" && dropped > 0 && waiting <= bound && isCounted && isUnharmed,
    `${waiting} wait, ${refused} tests refused, ${dropped} dropped, the task ${shown}, the metric ${isCounted ? "says so" : "is silent"}`,
  );
}

/** Nothing that waited for an endpoint is sent once it is deleted. */
async function deleted(stage: Stage, endpoint: Endpoint): Promise<void> {
  const { telling, nodes } = stage;
  await deleteEndpoint(nodes, endpoint, cliActor());
  const lastMs = Date.now() + 3500;
  await pause(8000);
  const late = telling.receiver.messages.filter(
    (one) => one.endpointId === endpoint.endpointId && one.arrivedMs > lastMs,
  );
  judge(
    stage,
    "what waited for a deleted endpoint is not sent",
    late.length === 0,
    `${late.length} were sent`,
  );
}

/** An operator sends a message again while it is sent: it comes once more afterwards, and the tries do not overlap. */
async function again(stage: Stage): Promise<void> {
  const { telling, nodes } = stage;
  const endpoint = await telling.giveEndpoint(await givenCustomer(stage), "slow");
  const { eventId } = await testEndpoint(nodes, endpoint, cliActor());
  const own = (): ToldMessage[] => telling.receiver.messages.filter(({ webhookId }) => webhookId === eventId);
  await within(10_000, () => own().length === 1);
  await redeliver(nodes, endpoint, eventId, cliActor());
  await within(10_000, () => own().length > 1 && own()[1]!.endedMs > 0);
  await pause(1500);
  const [first, second] = own();
  judge(
    stage,
    "sent again by hand during a send, it comes once more afterwards",
    own().length === 2 && second!.arrivedMs >= first!.endedMs,
    `came ${own().length} times`,
  );
}

async function usedBytes({ redis }: World): Promise<number> {
  return Number(/used_memory:(\d+)/.exec(await redis.info("memory"))?.[1]);
}

const sorted = (values: readonly number[]): number[] => values.toSorted((a, b) => a - b);
const at = (values: readonly number[], share: number): number =>
  Math.round(sorted(values)[Math.ceil(share * values.length) - 1] ?? Number.NaN);
const p99 = (values: readonly number[]): number => at(values, 0.99);
const median = (values: readonly number[]): number => at(values, 0.5);
