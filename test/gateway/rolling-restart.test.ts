import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { consumed, expectSound, readLedger } from "../support/audit.ts";
import { send, until } from "../support/gateway.ts";
import { startGenerator } from "../support/generator.ts";
import { startGatewayProcess } from "../support/processes.ts";
import { givenKey, givenRedis, readyz, TEXT_TO_VIDEO, type TestRedis } from "../support/store-stage.ts";

type GatewayProcess = Awaited<ReturnType<typeof startGatewayProcess>>;

const CLIENTS = 24;
const UNLIMITED = { rate_limit: 100_000, max_concurrent: 10_000, daily_limit: 100_000 };
const CONFIG = { server: { drain_delay: "2s" }, tasks: { sweep_interval: "1m" } };

let redis: TestRedis;
let generator: Awaited<ReturnType<typeof startGenerator>>;
beforeAll(async () => {
  redis = await givenRedis();
  // Longer than the drain delay: some requests are under way when the listener closes.
  generator = await startGenerator({ behaviour: { durationMs: 60_000, delayMs: 2500 } });
});
afterAll(async () => {
  await generator.stop();
  await redis.stop();
});

/** A load balancer: asks each gateway if it is ready, and sends to those that are. */
function balancer(gateways: () => GatewayProcess[]) {
  let ready: GatewayProcess[] = gateways();
  let next = 0;
  let over = false;
  // One round after the other, so that no late answer of an earlier one counts.
  const looking = (async () => {
    while (!over) {
      const all = gateways();
      const answers = await Promise.all(all.map((gateway) => readyz(gateway).catch(() => 0)));
      ready = all.filter((_, at) => answers[at] === 200);
      await delay(20);
    }
  })();
  return {
    pick: () => ready[next++ % ready.length]!,
    async stop(): Promise<void> {
      over = true;
      await looking;
    },
  };
}

test("a rolling restart of two gateways under load loses no request, no task and no credit", async () => {
  const journal = await mkdtemp(join(tmpdir(), "tollgate-rolling-"));
  const start = (): Promise<GatewayProcess> =>
    startGatewayProcess({ redisUrl: redis.url, upstreamUrl: generator.url, config: CONFIG, journal });
  const gateways = await Promise.all([start(), start()]);
  const key = await givenKey(redis.client, { credits: 1_000_000, limits: UNLIMITED });
  const lb = balancer(() => gateways);

  let over = false;
  const taskIds: string[] = [];
  const client = async (): Promise<void> => {
    while (!over) {
      const reply = await send(lb.pick().url, "POST", TEXT_TO_VIDEO, {
        key: key.key,
        body: { prompt: "roll" },
      });
      expect(reply.body).toMatchObject({ code: 200 });
      taskIds.push(reply.body.data.task_id);
    }
  };
  const clients = Promise.all(Array.from({ length: CLIENTS }, client));
  // Told at the end; until then a failure must not count as unhandled.
  clients.catch(() => undefined);

  for (const at of [0, 1]) {
    const before = taskIds.length;
    await until(() => taskIds.length >= before + 20, "traffic");
    const old = gateways[at]!;
    old.signal("SIGTERM");
    expect(await old.ended()).toMatchObject({ how: "exit code 0" });
    gateways[at] = await start();
    await old.stop();
  }
  const before = taskIds.length;
  await until(() => taskIds.length >= before + 20, "traffic after the restart");
  over = true;
  await clients;
  await lb.stop();

  const ledger = await readLedger(redis.client, key);
  expectSound(ledger);
  expect(
    consumed(ledger)
      .map(({ taskId }) => taskId)
      .sort(),
  ).toEqual(taskIds.toSorted());
  expect(ledger).toMatchObject({ held: 0, balance: 1_000_000 - 10 * taskIds.length });
  expect(ledger.slots).toHaveLength(taskIds.length);
  for (const gateway of gateways) await gateway.stop();
});
