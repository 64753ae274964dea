import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as pause } from "node:timers/promises";
import { Redis } from "ioredis";
import { testEndpoint } from "../../../src/operations/webhooks/deliveries.ts";
import {
  type Endpoint,
  registerEndpoint,
  type WebhookRules,
} from "../../../src/operations/webhooks/endpoints.ts";
import { cliActor } from "../../../src/records/actor.ts";
import { digestOf, indexName } from "../../../src/records/names.ts";
import { oneNode, type RedisNodes } from "../../../src/redis/store-facts.ts";
import { webhookRules } from "../../../src/webhooks/operator-rules.ts";
import type { Attack, Target } from "../attack.ts";
import { quantile } from "../criteria.ts";
import { deadlineOf, scaled, Tally } from "../wire.ts";

const SECRET = "a-secret-of-an-attacked-gateway-for-endpoints";
const LOOPBACK = "127.0.0.0/8";
const RULES = webhookRules({
  ...{ secretKey: SECRET, previousSecretKey: undefined, endpointsPerAccount: 10 },
  ...{ allowNetworks: [LOOPBACK], allowPorts: [], proxyUrl: undefined },
}) as WebhookRules;
const MESSAGES_EACH = 500;
/** They are queued before the time of the attack begins: ten times as long as it takes alone. */
const QUEUEING_MS_MAX = 60_000;
const EVERY_MS = 50;
const HONEST_MS_MAX = 2000;
const HUGE_CHUNK = Buffer.alloc(65_536, 120);
/** Bytes that the kernels of both sides take in before a writer waits, with a wide margin. */
const READ_BYTES_MAX = 10_000_000;

const drip = async (response: ServerResponse): Promise<void> => {
  response.writeHead(200);
  while (!response.destroyed) {
    response.write("x");
    await pause(100);
  }
};
function* endless(): Generator<Buffer> {
  for (;;) yield HUGE_CHUNK;
}
// It ends as its connection does.
const flood = (response: ServerResponse): Promise<void> =>
  pipeline(Readable.from(endless()), response.writeHead(200)).catch(() => undefined);
const BAD: Readonly<Record<string, (response: ServerResponse) => unknown>> = {
  hangs: () => undefined,
  redirects: (response) => response.writeHead(302, { location: "/hangs" }).end(),
  drips: drip,
  floods: flood,
  resets: (response) => response.socket?.resetAndDestroy(),
  fails: (response) => response.writeHead(500).end(),
};

/** A customer's endpoints are as bad as can be, while another one's answers. */
export const badEndpoints: Attack = {
  name: "bad-endpoints",
  title: `${MESSAGES_EACH} messages each for endpoints of one account that ${Object.keys(BAD).join(", ")}, beside another account's that answers`,
  durationMs: 12_000,
  preparesMsMax: QUEUEING_MS_MAX,
  config: { webhooks: { allow_networks: [LOOPBACK], retries: ["1s", "1s", "1s"] } },
  env: { WEBHOOK_SECRET_KEY: SECRET },
  async send(target) {
    const tally = new Tally();
    const redis = new Redis(target.redisUrl);
    const receivers = await startReceivers();
    try {
      const nodes = oneNode(redis);
      const bad: Endpoint[] = [];
      for (const kind of Object.keys(BAD))
        bad.push(await endpointOf(nodes, target.paidKey, `${receivers.url}/${kind}`));
      const honest = await endpointOf(nodes, target.unseenKey, `${receivers.url}/honest`);
      for (let at = 0; at < scaled(target, MESSAGES_EACH); at++)
        await Promise.all(bad.map((one) => testEndpoint(nodes, one, cliActor())));
      tally.requests = bad.length * scaled(target, MESSAGES_EACH);
      const tookMs = await honestMs(target, nodes, honest, receivers.arrivedMs);
      const p99 = Math.round(quantile(tookMs, 0.99));
      tally.check(
        `another account's messages take at most ${HONEST_MS_MAX} ms`,
        tookMs.length > 0 && p99 <= HONEST_MS_MAX,
        `p99 ${p99} ms of ${tookMs.length}`,
      );
      const most = Math.max(0, ...receivers.floodedBytes);
      tally.check(
        "endless answers are not read",
        receivers.floodedBytes.length > 0 && most <= READ_BYTES_MAX,
        `at most ${most} bytes of one`,
      );
      return tally;
    } finally {
      receivers.stop();
      redis.disconnect();
    }
  },
};

async function endpointOf(nodes: RedisNodes, key: string, url: string): Promise<Endpoint> {
  const name = indexName(digestOf(key));
  const [, accountId = ""] = ((await nodes.ofName(name).get(name)) ?? "").split(" ");
  return (await registerEndpoint(nodes, accountId, { url }, cliActor(), RULES)).endpoint;
}

async function startReceivers() {
  const arrivedMs = new Map<string, number>();
  const floodedBytes: number[] = [];
  const server = createServer((request, response) => {
    response.on("error", () => undefined);
    request.resume();
    const kind = (request.url ?? "").slice(1);
    if (kind === "floods") response.once("close", () => floodedBytes.push(request.socket.bytesWritten));
    const answer = BAD[kind];
    if (answer) return void answer(response);
    arrivedMs.set(String(request.headers["webhook-id"]), Date.now());
    response.writeHead(204).end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    arrivedMs,
    floodedBytes,
    stop(): void {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** How long each message of the honest account takes, ms; what has not come by the end has taken until then. */
async function honestMs(
  target: Target,
  nodes: RedisNodes,
  endpoint: Endpoint,
  arrivedMs: ReadonlyMap<string, number>,
): Promise<number[]> {
  const untilMs = deadlineOf(target);
  const queuedMs = new Map<string, number>();
  while (performance.now() < untilMs - HONEST_MS_MAX) {
    const { eventId, eventAtMs } = await testEndpoint(nodes, endpoint, cliActor());
    queuedMs.set(eventId, eventAtMs);
    await pause(EVERY_MS);
  }
  while (arrivedMs.size < queuedMs.size && performance.now() < untilMs) await pause(EVERY_MS);
  return [...queuedMs].map(([id, atMs]) => (arrivedMs.get(id) ?? Date.now()) - atMs);
}
