import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { type Endpoint, registerEndpoint } from "../../src/operations/webhooks/endpoints.ts";
import { cliActor } from "../../src/records/actor.ts";
import { webhookNames } from "../../src/records/names.ts";
import { many } from "../../src/redis/pipelines.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, partitionsOf } from "../../src/redis/store-facts.ts";
import { queueDelivery } from "../../src/scripts/webhooks.ts";
import { webhookRules } from "../../src/webhooks/operator-rules.ts";
import { cpuUs, processTree } from "../cpu.ts";
import { watchCore } from "../foreign.ts";
import { emptyStore, issueKeys } from "../keys.ts";
import { readMetrics } from "../metrics.ts";
import type { Context, Outcome, Scenario } from "../scenario.ts";
import { startGateway } from "../subjects/gateway.ts";
import { judge, short } from "../targets.ts";
import type { Tree } from "../tree.ts";
import type { World } from "../world.ts";
import { each } from "./drive.ts";

const ENDPOINTS = 100;
const PER_SECOND = 1000;
const TICK_MS = 50;
const SECRET = "a-secret-of-a-benchmark-for-webhooks";
const SECTION = { allow_networks: ["127.0.0.0/8"] };
/** As long as that of a completed task. */
const DATA = JSON.stringify({ task_id: randomBytes(16).toString("hex"), video_url: "x".repeat(250) });

/** A stretch of deliveries at a fixed rate. */
interface Slice {
  cpuUs: number;
  redisCpuUs: number;
  perSecond: number;
  /** From the last message that was queued to the last that was delivered, ms: half a second and what it fell behind. */
  behindMs: number;
  disturbed: string | undefined;
}

export const webhooks: Scenario = {
  title: "Webhook deliveries",
  quick: false,
  needs: ["taskset", "nginx"],
  targets: ["delivery"],
  async run(context): Promise<Outcome> {
    const { world, trees, rounds, seconds, warmUpSeconds, progress } = context;
    const [tree] = trees as [Tree];
    await emptyStore(world);
    const running = await startGateway(world, tree, {
      sections: `webhooks: ${JSON.stringify(SECTION)}`,
      env: { WEBHOOK_SECRET_KEY: SECRET },
    });
    try {
      const endpoints = await givenEndpoints(context);
      const target = { world, endpoints, pid: running.pid, adminUrl: running.adminUrl! };
      await deliver(target, warmUpSeconds);
      const slices: Slice[] = [];
      for (let round = 1; round <= rounds; round++) {
        const slice = await deliver(target, seconds);
        slices.push(slice);
        progress(
          `  round ${round}: ${short(slice.cpuUs)} us, ${short(slice.perSecond)} a second, ${short(slice.behindMs)} ms behind`,
        );
      }
      const ofSlices = (figure: (slice: Slice) => number): number => lowerQuartile(slices.map(figure));
      const [cpu, redis, rate, behind] = [
        ofSlices(({ cpuUs }) => cpuUs),
        ofSlices(({ redisCpuUs }) => redisCpuUs),
        // Others only take from the rate.
        -ofSlices(({ perSecond }) => -perSecond),
        ofSlices(({ behindMs }) => behindMs),
      ];
      return {
        method: `${PER_SECOND} messages a second of some 500 bytes for ${ENDPOINTS} endpoints, which nginx answers. Processor time of the gateway, and that of Redis with the queueing, for each message that was delivered; the lower quartile of ${rounds} slices of ${seconds} s.`,
        tables: [
          {
            columns: [
              "",
              "queued a second",
              "ms until the last was delivered",
              "us of gateway",
              "us of Redis",
            ],
            rows: [[tree.name, short(rate), short(behind), short(cpu), short(redis)]],
          },
        ],
        verdicts: [judge("delivery", cpu)],
        disturbed: slices.flatMap(({ disturbed }) => disturbed ?? []),
        figures: { slices },
      };
    } finally {
      await running.stop();
    }
  },
};

/** Each of an account of its own. */
async function givenEndpoints({ world, trees }: Context): Promise<Endpoint[]> {
  const rules = webhookRules({
    ...{ secretKey: SECRET, previousSecretKey: undefined, endpointsPerAccount: 10 },
    ...{ allowNetworks: SECTION.allow_networks, allowPorts: [], proxyUrl: undefined },
  });
  if (!rules) throw new Error("webhooks are off");
  const nodes = oneNode(world.redis);
  const endpoints: Endpoint[] = [];
  for (const { accountId } of await issueKeys(trees[0] as Tree, world.redis, ENDPOINTS)) {
    const url = `${world.upstreamUrl}/hook`;
    endpoints.push((await registerEndpoint(nodes, accountId, { url }, cliActor(), rules)).endpoint);
  }
  return endpoints;
}

interface Target {
  world: World;
  endpoints: readonly Endpoint[];
  pid: number;
  adminUrl: string;
}

/** Queues messages at the rate for so long, and waits until all are delivered. */
async function deliver({ world, endpoints, pid, adminUrl }: Target, seconds: number): Promise<Slice> {
  const pids = processTree(pid);
  const delivered = async (): Promise<number> =>
    (await readMetrics(adminUrl))("tollgate_webhook_deliveries_total", 'outcome="delivered"');
  const before = await delivered();
  const watched = watchCore(pids);
  const [ownUs, redisUs, startedMs] = [cpuUs(pids), cpuUs([world.redisPid]), performance.now()];
  let queued = 0;
  const most = Math.ceil(seconds * PER_SECOND);
  while (queued < most) {
    // A tick queues what is due until the next one.
    const elapsedMs = performance.now() - startedMs + TICK_MS;
    const due = Math.min(most, Math.floor((elapsedMs / 1000) * PER_SECOND));
    await each(
      Array.from({ length: due - queued }, (_, nth) => endpoints[(queued + nth) % ENDPOINTS]!),
      (endpoint) => queue(world, endpoint),
    );
    queued = due;
    if (queued < most) await delay(TICK_MS);
  }
  const queuedMs = performance.now() - startedMs;
  while ((await waiting(world)) > 0) await delay(TICK_MS);
  const [usedUs, redisUsedUs] = [cpuUs(pids) - ownUs, cpuUs([world.redisPid]) - redisUs];
  const behindMs = performance.now() - startedMs - queuedMs;
  const disturbed = watched.end();
  const count = (await delivered()) - before;
  if (count < queued) throw new Error(`${count} of ${queued} messages were delivered`);
  const shares = { cpuUs: usedUs / count, redisCpuUs: redisUsedUs / count };
  return { ...shares, perSecond: (queued / queuedMs) * 1000, behindMs, disturbed };
}

/** As the store has it: the gateway is not asked while it is measured. */
async function waiting({ redis }: World): Promise<number> {
  const names = Array.from(
    { length: await partitionsOf(oneNode(redis)) },
    (_, at) => webhookNames(at).totals,
  );
  const counts = await many<string | null, string>(redis, names, (pipe, name) => pipe.hget(name, " waiting"));
  return counts.reduce((sum, count) => sum + Number(count ?? 0), 0);
}

async function queue({ redis }: World, endpoint: Endpoint): Promise<void> {
  const eventId = `test_${randomBytes(9).toString("hex")}`;
  const test = { type: "webhook.test", data: DATA };
  await scriptsOf(redis).run(queueDelivery, { ...endpoint, eventId, test, actor: cliActor() });
}

/** Other work on the machine only ever adds to a slice. */
function lowerQuartile(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 4)] ?? Number.NaN;
}
