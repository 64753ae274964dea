import { setTimeout as pause } from "node:timers/promises";
import { redeliver, testEndpoint } from "../../../src/operations/webhooks/deliveries.ts";
import { deleteEndpoint, type Endpoint, readEndpoint } from "../../../src/operations/webhooks/endpoints.ts";
import { cliActor } from "../../../src/records/actor.ts";
import { partitionOf, randomId } from "../../../src/records/names.ts";
import { OperatorError } from "../../../src/records/operator-error.ts";
import { oneNode, type RedisNodes } from "../../../src/redis/store-facts.ts";
import type { Criterion, Verdict } from "../checker.ts";
import { type Customer, generate, poll } from "../client.ts";
import { metricOf } from "../gateways.ts";
import type { ReceivedMessage } from "../history.ts";
import { inParallel } from "../random.ts";
import { WEBHOOKS, WebhookStage } from "../webhook-stage.ts";
import { createWorld, eventually, type RunOptions, type World, within } from "../world.ts";
import {
  type Compared,
  compareInPairs,
  type DeadServer,
  median,
  p99,
  retriesOf,
  type Slice,
  startDeadServer,
} from "./webhook-retries.ts";

/** Deliveries that wait, at the bound of each endpoint. */
const ENDPOINTS = 10;
const FULL_WAITING_EACH = 10_000;
/** More than there are accounts: the events of a partition have a bound, too, which two full endpoints nearly reach. */
const PARTITIONS = 64;
const BYTES_EACH_MAX = 2500;
/** Few places, so that those that dead endpoints have would be missed. Retries have a quarter as many. */
const PLACES = { in_flight: 16, in_flight_per_endpoint: WEBHOOKS.in_flight_per_endpoint };
const RETRY_PLACES = 4;
/** Until all have failed once. */
const PLACES_TO_FAIL = { in_flight: 1600, in_flight_per_endpoint: 40 };
const PAIRS = 6;
/** Time that dead endpoints may add, or else the difference of slices without them on a busy machine. */
const FRESH_SLOWER_MS = 60;
const SERVED_SLOWER_MS = 2;

/** After a first try, deliveries become due for as long as it took until all had failed. */
const retryAfterS = (short: boolean): number => (short ? 20 : 60);
const section = (short: boolean, places: typeof PLACES): object => ({
  ...WEBHOOKS,
  ...places,
  retries: Array.from({ length: 10 }, () => `${retryAfterS(short)}s`),
});

interface Stage {
  world: World;
  webhooks: WebhookStage;
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
  const settings = section(short, PLACES_TO_FAIL);
  const world = await createWorld(options, 1, { partitions: PARTITIONS, webhooks: settings });
  const webhooks = await WebhookStage.start(world);
  const stage: Stage = { world, webhooks, nodes: oneNode(world.redis), criteria: [], taken: new Set() };
  try {
    await besideDeadOnes(stage, short, options.progress);
    await again(stage);
  } finally {
    await world.stop();
    webhooks.stop();
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

async function besideDeadOnes(stage: Stage, short: boolean, progress: (line: string) => void): Promise<void> {
  const { world, webhooks, nodes } = stage;
  const answering = await webhooks.giveEndpoint(await givenCustomer(stage), "answers");
  const server = await startDeadServer();
  try {
    const dead: Endpoint[] = [];
    for (let at = 0; at < ENDPOINTS; at++)
      dead.push(await webhooks.giveEndpoint(await givenCustomer(stage), "hangs", server.url));
    await fail(stage, dead, short, progress);
    await server.hang();
    world.reconfigure(0, { webhooks: section(short, PLACES) });
    const dueMin = (ENDPOINTS * waitingEach(short)) / 10;
    await eventually(2000 * retryAfterS(short), async () => (await retriesOf(nodes, dead)).due >= dueMin);
    const pairs = short ? PAIRS / 2 : PAIRS;
    judgeCompared(stage, await compareInPairs(stage, { dead, server, answering, pairs }, progress), dueMin);
    await atTheBound(stage, answering);
    await deleted(stage, dead, server);
  } finally {
    server.stop();
  }
}

/** Queues as many as may wait, each of which is refused once. */
async function fail(
  stage: Stage,
  dead: readonly Endpoint[],
  short: boolean,
  progress: (line: string) => void,
): Promise<void> {
  const { world, webhooks, nodes } = stage;
  const wanted = ENDPOINTS * waitingEach(short);
  const before = await usedBytes(world);
  // The first retries come then.
  const untilMs = Date.now() + 1000 * retryAfterS(short);
  await inParallel(wanted, 200, async (at) => {
    await testEndpoint(nodes, dead[at % ENDPOINTS]!, cliActor()).catch(ignoreFull);
  });
  const waiting = await webhooks.waiting();
  progress(`${waiting} deliveries wait`);
  await eventually(untilMs - Date.now(), async () => (await retriesOf(nodes, dead)).all >= waiting);
  const bytesEach = Math.round(((await usedBytes(world)) - before) / waiting);
  const failed = (await retriesOf(nodes, dead)).all;
  progress(`${failed} have failed`);
  judge(
    stage,
    "as many wait as were asked for, but for a tenth",
    waiting >= 0.9 * wanted,
    `${waiting} of ${wanted}, of which ${failed} have failed before`,
  );
  judge(
    stage,
    `at most ${BYTES_EACH_MAX} bytes of Redis for each that waits, with its audit entry`,
    bytesEach <= BYTES_EACH_MAX,
    `${bytesEach} bytes, ${waiting} wait`,
  );
}

function judgeCompared(stage: Stage, compared: readonly Compared[], dueMin: number): void {
  const due = Math.min(...compared.map((one) => one.due));
  judge(
    stage,
    `at least ${dueMin} retries are due all the time`,
    due >= dueMin,
    `${compared.map((one) => one.due).join(", ")} due`,
  );
  const tries = compared.map((one) => one.tries);
  judge(
    stage,
    "retries have all of their places, and no more",
    tries.every((count) => count === RETRY_PLACES),
    `${tries.join(", ")} at a time, of ${RETRY_PLACES}`,
  );
  judgeSlower(stage, "fresh deliveries are as fast as without", FRESH_SLOWER_MS, compared, (one) => ({
    name: "p99",
    ms: p99(one.freshMs),
  }));
  judgeSlower(stage, "generations are as fast as without", SERVED_SLOWER_MS, compared, (one) => ({
    name: "median",
    ms: median(one.servedMs),
  }));
}

/** The median of the pairs counts. */
function judgeSlower(
  stage: Stage,
  criterion: string,
  slowerMs: number,
  compared: readonly Compared[],
  figureOf: (slice: Slice) => { name: string; ms: number },
): void {
  const [alone, beside] = (["alone", "beside"] as const).map((side) =>
    compared.map((one) => figureOf(one[side]).ms),
  ) as [number[], number[]];
  const more = beside.map((ms, at) => ms - alone[at]!);
  const allowed = Math.max(slowerMs, Math.max(...alone) - Math.min(...alone));
  const inMs = (values: readonly number[]): string => values.map((ms) => ms.toFixed(1)).join(", ");
  const { name } = figureOf(compared[0]!.alone);
  judge(
    stage,
    criterion,
    median(more) <= allowed,
    `${name} ${inMs(beside)} ms beside, in turn ${inMs(alone)} ms alone: ${inMs([median(more)])} ms more, at most ${inMs([allowed])}`,
  );
}

const ignoreFull = (error: unknown): void => {
  if (!(error instanceof OperatorError) || error.problem !== "too_many_deliveries") throw error;
};

/** An account whose endpoint has as many as may wait: its tasks end, what is not queued is counted, and a metric says so. */
async function atTheBound(stage: Stage, answering: Endpoint): Promise<void> {
  const { world, webhooks, nodes } = stage;
  const customer = await givenCustomer(stage);
  const full = await webhooks.giveEndpoint(customer, "hangs");
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

/** Nothing that waited for endpoints is sent once they are deleted. */
async function deleted(
  { nodes, ...stage }: Stage,
  endpoints: readonly Endpoint[],
  server: DeadServer,
): Promise<void> {
  for (const endpoint of endpoints) await deleteEndpoint(nodes, endpoint, cliActor());
  await within(20_000, () => server.hanging() === 0);
  const before = server.taken();
  await pause(5000);
  const late = server.taken() - before;
  judge(
    { nodes, ...stage },
    "what waited for deleted endpoints is not sent",
    late === 0,
    `${late} were sent`,
  );
}

/** An operator sends a message again while it is sent: it comes once more afterwards, and the tries do not overlap. */
async function again(stage: Stage): Promise<void> {
  const { webhooks, nodes } = stage;
  const endpoint = await webhooks.giveEndpoint(await givenCustomer(stage), "slow");
  const { eventId } = await testEndpoint(nodes, endpoint, cliActor());
  const own = (): ReceivedMessage[] =>
    webhooks.receiver.messages.filter(({ webhookId }) => webhookId === eventId);
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
