import { randomInt } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { consumed, expectSound, type Ledger, makeDue, readLedger, refunded } from "../support/audit.ts";
import { givenGateway, type Reply, send, type TestGateway, until } from "../support/gateway.ts";
import {
  away,
  COMMAND_TIMEOUT_MS,
  givenKey,
  givenRedis,
  ready,
  sent,
  settled,
  TEXT_TO_VIDEO,
  type TestRedis,
} from "../support/store-stage.ts";

const REQUESTS = 300;
/** Where this machine is so busy that most requests meet a timeout, there are more of them. */
const REQUESTS_MAX = 6000;
const CHARGED_MIN = 20;
/** Answers with 200; repeats of an Idempotency-Key are among them. */
const SERVED_MIN = 2 * CHARGED_MIN;
const CLIENTS = 24;
const SEED = Number(process.env.SEED ?? randomInt(2 ** 31));

/** The upstream's reaction to a request; the plain success is the most frequent. */
const DIRECTIVES = [
  ...Array<string>(12).fill("duration=0"),
  "duration=0 fail",
  "duration=0 fail delay=30ms",
  "duration=0 delay=80ms",
  "duration=200ms",
  "drip drip-ms=1",
  "status=400",
  "status=429 retry-after=1",
  "status=503",
  "status=500",
  "code=402",
  "reset",
  "truncate",
  "garbage",
  "hang",
  "no-task-id",
  "duplicate-task-id duration=0",
];

let redis: TestRedis;
let gateways: TestGateway[];
beforeAll(async () => {
  redis = await givenRedis();
  const config = {
    store: { commandTimeoutMs: COMMAND_TIMEOUT_MS },
    upstream: { connectTimeoutMs: 1000, headersTimeoutMs: 300, totalTimeoutMs: 600 },
    // A running task whose id was given twice ends at its maximum age (decision 0004).
    tasks: {
      sweepIntervalMs: 50,
      pollIntervalMs: 50,
      sweepPollsPerSecond: 10_000,
      cacheMs: 0,
      maxAgeMs: 15_000,
    },
  };
  const one = await givenGateway({ redisUrl: redis.url, config });
  const two = await givenGateway({ redisUrl: redis.url, config, generator: one.generator });
  gateways = [one, two];
  await Promise.all(gateways.map(ready));
});
afterAll(async () => {
  redis.resume();
  for (const gateway of [...gateways].reverse()) await gateway.stop();
  await redis.stop();
});

/** Mulberry32: small, fast, and the same everywhere. */
function createRandom(seed: number) {
  let state = seed;
  const unit = (): number => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const below = (most: number): number => Math.floor(unit() * most);
  return { unit, below, pick: <T>(items: readonly T[]): T => items[below(items.length)]! };
}

interface Answered {
  key: IssuedKey;
  /** Undefined when the client left first. */
  reply: Reply | undefined;
}

/** One client's request, which now and then is given up on the way. */
async function ask(random: ReturnType<typeof createRandom>, keys: IssuedKey[]): Promise<Answered> {
  const key = random.pick(keys);
  const body = { prompt: `[sandbox: ${random.pick(DIRECTIVES)}]` };
  const headers: Record<string, string> = {};
  if (random.unit() < 0.2)
    headers["idempotency-key"] = `${random.below(5)}-${body.prompt.replaceAll(" ", "-")}`;
  const { url } = random.pick(gateways);
  if (random.unit() >= 0.2) {
    return { key, reply: await send(url, "POST", TEXT_TO_VIDEO, { key: key.key, body, headers }) };
  }
  const leaving = AbortSignal.timeout(random.below(60));
  headers.authorization = `Bearer ${key.key}`;
  headers["content-type"] = "application/json";
  const init = { method: "POST", headers, body: JSON.stringify(body), signal: leaving };
  await fetch(url + TEXT_TO_VIDEO, init).then(
    (response) => response.text().catch(() => undefined),
    () => undefined,
  );
  return { key, reply: undefined };
}

/** Two outages: one that both gateways notice, one that is over with the first answer it has cost. */
async function stopTwice(begun: () => number, denied: () => number): Promise<void> {
  await until(() => begun() >= REQUESTS / 3, "the first third");
  redis.pause();
  await Promise.all(gateways.map(away)).finally(() => redis.resume());
  await until(() => begun() >= (REQUESTS * 2) / 3, "the second third");
  await Promise.all(gateways.map(ready));
  const before = denied();
  redis.pause();
  await until(() => denied() > before || begun() >= REQUESTS, "a request to be denied").finally(() =>
    redis.resume(),
  );
}

async function quiesce(keys: IssuedKey[]): Promise<void> {
  for (const gateway of gateways) {
    await until(
      async () => (await gateway.metric("tollgate_requests_in_flight ")).every((line) => line.endsWith(" 0")),
      "no request to be in flight",
    );
    await settled(gateway);
  }
  await until(async () => {
    const open = await Promise.all(keys.map((key) => makeDue(redis.client, key.accountId)));
    return open.every((count) => count === 0);
  }, "everything open to end");
}

function expectExact(ledger: Map<string, Ledger>, answers: Answered[]): void {
  for (const own of ledger.values()) {
    expectSound(own);
    expect(own.held, "no hold is left").toBe(0);
    expect(own.slots, "no slot is left").toEqual([]);
  }
  const charges = new Map<string, number>();
  for (const { taskId } of [...ledger.values()].flatMap(consumed)) {
    charges.set(taskId, (charges.get(taskId) ?? 0) + 1);
  }
  const given = Map.groupBy(sent(gateways[0]!), ({ taskId }) => taskId);
  for (const [taskId, count] of charges) {
    expect(count, `${taskId} is charged once`).toBe(1);
    expect(given.has(taskId), `${taskId} is the upstream's`).toBe(true);
  }
  for (const { key, reply } of answers) {
    if (reply?.status !== 200) continue;
    const taskId: string = reply.body.data.task_id;
    expect(charges.get(taskId), `${taskId} was answered with 200 and charged`).toBe(1);
    // An upstream that gives an id twice while the store is away: both hear of it, the first BIND owns it.
    if (given.get(taskId)?.length !== 1) continue;
    const own = consumed(ledger.get(key.keyId)!).filter((entry) => entry.taskId === taskId);
    expect(own, `${taskId} is charged to whom it was answered`).toHaveLength(1);
  }
}

test(`every credit is accounted for after ${REQUESTS} requests through two gateways, faults and outages`, async () => {
  console.log(`campaign: SEED=${SEED}`);
  const random = createRandom(SEED);
  const keys = [
    await givenKey(redis.client, { credits: 100_000 }),
    await givenKey(redis.client, { credits: 100_000 }),
    await givenKey(redis.client, { credits: 100_000, limits: { max_concurrent: 3 } }),
    await givenKey(redis.client, { credits: 150 }),
    await givenKey(redis.client, { credits: 100_000, limits: { rate_limit: 20 } }),
  ];
  const answers: Answered[] = [];
  let begun = 0;
  const served = () => answers.filter(({ reply }) => reply?.status === 200).length;
  const client = async (): Promise<void> => {
    while (begun < REQUESTS || (served() <= SERVED_MIN && begun < REQUESTS_MAX)) {
      begun++;
      answers.push(await ask(random, keys));
    }
  };
  const denied = () => answers.filter(({ reply }) => reply?.status === 503).length;
  await Promise.all([stopTwice(() => begun, denied), ...Array.from({ length: CLIENTS }, client)]);
  await quiesce(keys);
  const ledger = new Map<string, Ledger>();
  for (const key of keys) ledger.set(key.keyId, await readLedger(redis.client, key));
  expectExact(ledger, answers);
  const all = [...ledger.values()];
  const statuses = Object.groupBy(answers, ({ reply }) => String(reply?.status ?? "left"));
  console.log(
    `campaign: ${Object.entries(statuses).map(([status, group]) => `${status} x ${group?.length}`)};`,
    `${all.flatMap(consumed).length} charged, ${all.flatMap(refunded).length} refunded`,
  );
  expect(answers).toHaveLength(begun);
  expect(all.flatMap(consumed).length).toBeGreaterThan(CHARGED_MIN);
});
