import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { expect } from "vitest";
import { isRunning } from "../../src/durability/process-files.ts";
import { type IssuedKey, issueKey, type KeyOptions } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { scriptSource } from "../../src/redis/script-source.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { startRedis } from "../../src/sandbox/redis.ts";
import { SCRIPTS } from "../../src/scripts/all.ts";
import { startFaultProxy } from "./fault-proxy.ts";
import { givenGateway, type Reply, type TestGateway, until } from "./gateway.ts";
import { holdPort } from "./held-port.ts";

export const TEXT_TO_VIDEO = "/api/v1/gen2/text-to-video";
/** Price of TEXT_TO_VIDEO by the reference prices. */
export const PRICE = 10;
/** Long beside a healthy call on a busy machine, short beside a test. */
export const COMMAND_TIMEOUT_MS = 400;

export type TestRedis = Awaited<ReturnType<typeof givenRedis>>;
export type Stage = Awaited<ReturnType<typeof givenStage>>;

/** A Redis of the test's own that it may hurt; survives a restart with its data, without its scripts. */
export async function givenRedis(args: readonly string[] = []) {
  const dir = await mkdtemp(join(tmpdir(), "tollgate-store-stage-"));
  // Held, so that it is this server's again after it was gone, and nobody else's meanwhile.
  const { port, release } = await holdPort();
  const start = () => startRedis({ dir, persistent: true, args, port });
  let running = await start();
  const client = new Redis(running.url);
  client.on("error", () => undefined);
  await loadScripts(client);
  const signal = (name: NodeJS.Signals): void => {
    if (running.pid === undefined) throw new Error("this test stops Redis by its pid: install redis-server");
    process.kill(running.pid, name);
  };
  return {
    url: running.url,
    port,
    /** Where its append-only file is. */
    dir,
    client,
    /** SIGSTOP: connections stay open and nobody answers. */
    pause: () => signal("SIGSTOP"),
    resume: () => signal("SIGCONT"),
    /** SIGKILL: what Redis has not handed to the operating system is gone. */
    async kill(): Promise<void> {
      signal("SIGKILL");
      await running.ended;
      await running.stop();
    },
    /** Ends the server; `startAgain` brings it back on the same port. */
    end: () => running.stop(),
    async startAgain(): Promise<void> {
      running = await start();
    },
    async stop(): Promise<void> {
      if (running.pid !== undefined && isRunning(running.pid)) signal("SIGCONT");
      client.disconnect();
      await running.stop();
      release();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

export type Pair = Awaited<ReturnType<typeof givenPair>>;

/** A primary with one replica that has caught up. */
export async function givenPair() {
  const [primary, replica] = [await givenRedis(["--repl-diskless-sync-delay", "0"]), await givenRedis()];
  await replica.client.replicaof("127.0.0.1", primary.port);
  const hasCaughtUp = async (): Promise<boolean> =>
    /^master_link_status:up/m.test(await replica.client.info("replication"));
  await until(hasCaughtUp, "the replica to have caught up");
  return {
    primary,
    replica,
    async stop(): Promise<void> {
      await replica.stop();
      await primary.stop();
    },
  };
}

/** Put together once per process. */
let texts: string[] | undefined;

/** So that a fault meant for a script's run does not meet the NOSCRIPT before it. A Redis may not offer SCRIPT. */
export async function loadScripts(client: Redis): Promise<void> {
  texts ??= SCRIPTS.map((script) => scriptSource(script));
  await Promise.all(texts.map((text) => client.script("LOAD", text).catch(() => undefined)));
}

/** A gateway behind a fault proxy in front of its own Redis. The proxy sees the gateway's commands alone. */
export async function givenStage(
  options: Parameters<typeof givenGateway>[0] & { redis?: TestRedis; awaitReady?: false } = {},
) {
  const redis = options.redis ?? (await givenRedis());
  const proxy = await startFaultProxy(redis.port);
  const config = {
    ...options.config,
    store: { commandTimeoutMs: COMMAND_TIMEOUT_MS, ...options.config?.store },
  };
  const gateway = await givenGateway({ ...options, config, redisUrl: proxy.url });
  gateway.redis.disconnect();
  if (options.awaitReady !== false) await ready(gateway);
  return {
    redis,
    proxy,
    gateway,
    givenKey: (key: KeyOptions = {}) => givenKey(redis.client, key),
    async stop(): Promise<void> {
      await proxy.heal();
      await gateway.stop();
      await proxy.stop();
      if (!options.redis) await redis.stop();
    },
  };
}

/** A key of a fresh account with room for anything. */
export const givenKey = (client: Redis, key: KeyOptions = {}): Promise<IssuedKey> =>
  issueKey(
    oneNode(client),
    {
      credits: 1000,
      ...key,
      limits: { rate_limit: 1000, max_concurrent: 1000, ...key.limits },
    },
    cliActor(),
  );

export const generate = (
  gateway: Pick<TestGateway, "request">,
  { key }: { key: string },
  prompt = "A paper boat",
  headers: Record<string, string> = {},
): Promise<Reply> => gateway.request("POST", TEXT_TO_VIDEO, { key, body: { prompt }, headers });

export const readyz = async ({ adminUrl }: { adminUrl: string }): Promise<number> =>
  (await fetch(`${adminUrl}/readyz`)).status;

export const ready = (gateway: TestGateway): Promise<void> =>
  until(async () => (await readyz(gateway)) === 200, "the gateway to be ready");

export const away = (gateway: TestGateway): Promise<void> =>
  until(async () => (await readyz(gateway)) === 503, "the breaker to open");

/** Does something while the gateway cannot reach its store, and until it is ready again. */
export async function whileAway({ proxy, gateway }: Stage, work: () => Promise<void>): Promise<void> {
  await proxy.steer({ connections: "reset" });
  try {
    await away(gateway);
    await work();
  } finally {
    await proxy.heal();
    await ready(gateway);
  }
}

/** Once nothing waits for the store any more. */
export async function settled(gateway: TestGateway): Promise<void> {
  await until(async () => {
    const [entries] = await gateway.metric("tollgate_store_outbox_entries ");
    return entries?.endsWith(" 0") === true && (await readyz(gateway)) === 200;
  }, "the outbox to be empty");
}

/** The POSTs that reached the upstream. */
export const sent = ({ generator }: Pick<TestGateway, "generator">) =>
  generator.requests.filter(({ method }) => method === "POST");

/** The polls that reached the upstream, of one task or of all. */
export const polled = ({ generator }: Pick<TestGateway, "generator">, taskId?: string) =>
  generator.requests.filter(
    ({ method, path }) => method === "GET" && (taskId === undefined || path.endsWith(`/${taskId}`)),
  );

/** 503 in the envelope, with a wait, and with every header that every answer has. */
export function expectStoreAway(reply: Reply): void {
  expect(reply.body).toMatchObject({ code: 503, retryAfter: expect.any(Number), error: reply.body?.msg });
  expect(reply.status).toBe(503);
  expect(reply.headers.get("retry-after")).toBe(String(reply.body.retryAfter));
  expect(reply.headers.get("x-request-id")).toBe(reply.body.request_id);
  expectZeros(reply);
}

/** The five numbers of the rate-limit headers as they are when nobody can know them. */
export function expectZeros(reply: Reply): void {
  for (const name of [
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-concurrent-limit",
    "x-concurrent-active",
  ])
    expect(reply.headers.get(name), name).toBe("0");
  const resetMs = Number(reply.headers.get("x-ratelimit-reset")) * 1000;
  expect(Math.abs(resetMs - Date.now())).toBeLessThan(60_000);
}
