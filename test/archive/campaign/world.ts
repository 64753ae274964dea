import { mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Redis } from "ioredis";
import pg from "pg";
import { type GuardedChild, startChild } from "../../../src/sandbox/child.ts";
import { startGenerator } from "../../../src/sandbox/generator/server.ts";
import { freePort, startRedis } from "../../../src/sandbox/redis.ts";
import { issueKey } from "../../../src/store/accounts.ts";
import { createClient } from "../../../src/store/client.ts";
import { META } from "../../../src/store/names.ts";
import { oneNode, type RedisNodes } from "../../../src/store/nodes.ts";
import { childEnv } from "../../support/child-env.ts";
import { startPostgres } from "../../support/postgres-server.ts";
import { until } from "../../support/until.ts";

const GATEWAYS = 3;
const ACCOUNTS = 8;
export const PARTITIONS = 4;
/** Enough for any run. */
const CREDITS = 10_000_000;

export interface Customer {
  accountId: string;
  key: string;
}

export interface Gateway {
  url: string;
  child: GuardedChild;
}

export type World = Awaited<ReturnType<typeof startWorld>>;

/**
 * Redis with an append-only file, PostgreSQL, an upstream and gateways as processes of their own, that copy at once what they
 * find and keep none of it in Redis.
 * @param options.root the source tree that the gateways run
 * @param options.folder for data and logs
 */
export async function startWorld({ root, folder }: { root: string; folder: string }) {
  mkdirSync(folder, { recursive: true });
  const upstream = await startGenerator();
  upstream.behave({ durationMs: 300, startDelayMs: 0, failRatio: 0.25 });
  const postgres = await startPostgres();
  const port = await freePort();
  const dir = join(folder, "redis");
  mkdirSync(dir, { recursive: true });
  const startServer = () => startRedis({ dir, persistent: true, port });
  let server = await startServer();
  const redis: Redis = createClient(server.url, 2000);
  // While it is killed, the client would print each attempt to connect.
  redis.on("error", () => undefined);
  await redis.connect();
  const nodes: RedisNodes = oneNode(redis);
  // As if gateways of earlier releases had had time to stop.
  await redis.hset(META, { partitions: PARTITIONS, layout: "3", trimmable_since: 1 });
  const customers = await givenCustomers(nodes);
  const configFile = join(folder, "tollgate.yaml");
  writeFileSync(configFile, configOf(join(folder, "journal"), upstream.url));
  const env = { REDIS_URL: server.url, ARCHIVE_URL: postgres.url(), UPSTREAM_API_KEY: "upstream-secret" };
  const fleet = createFleet({ root, folder, configFile, env });
  const { gateways, startGateway, endGateway } = fleet;
  await Promise.all(Array.from({ length: GATEWAYS }, startGateway));
  return {
    redis,
    nodes,
    customers,
    postgres,
    ...fleet,
    async killRedis(): Promise<void> {
      process.kill(server.pid!, "SIGKILL");
      await server.ended;
      await server.stop();
    },
    async startRedisAgain(): Promise<void> {
      server = await startServer();
      await until(async () => (await redis.ping().catch(() => "")) === "PONG", "Redis to answer");
    },
    /** Rows of a statement, over a connection of its own. */
    async query<Row extends object>(text: string): Promise<Row[]> {
      const client = new pg.Client(postgres.url());
      // PostgreSQL may be killed while nobody uses it.
      client.on("error", () => undefined);
      await client.connect();
      try {
        return (await client.query(text)).rows as Row[];
      } finally {
        await client.end().catch(() => undefined);
      }
    },
    async stop(): Promise<void> {
      for (const gateway of [...gateways]) await endGateway(gateway);
      redis.disconnect();
      await server.stop();
      await postgres.remove();
      await upstream.stop();
    },
  };
}

/** Gateway processes that are alive, with what starts and kills them. */
function createFleet({
  root,
  folder,
  configFile,
  env,
}: {
  root: string;
  folder: string;
  configFile: string;
  env: Record<string, string>;
}) {
  const gateways: Gateway[] = [];
  let started = 0;

  async function startGateway(): Promise<Gateway> {
    const logFile = join(folder, `gateway-${started++}.ndjson`);
    const log = openSync(logFile, "w");
    const child = await startChild(process.execPath, [join(root, "src/main.ts")], {
      cwd: folder,
      env: {
        ...childEnv(),
        TOLLGATE_CONFIG: configFile,
        ...env,
      },
      stdio: ["ignore", log, log],
    });
    const gateway = { url: "", child };
    await until(() => {
      const line = /^.*"tollgate is listening".*$/m.exec(readFileSync(logFile, "utf8"))?.[0];
      if (child.process.exitCode !== null) throw new Error(`a gateway ended: ${logFile}`);
      if (line !== undefined) gateway.url = String((JSON.parse(line) as { url: string }).url);
      return line !== undefined;
    }, "a gateway to listen");
    gateways.push(gateway);
    return gateway;
  }

  async function endGateway(gateway: Gateway): Promise<void> {
    gateways.splice(gateways.indexOf(gateway), 1);
    gateway.child.process.kill("SIGKILL");
    await gateway.child.ended;
  }

  return { gateways, startGateway, endGateway };
}

async function givenCustomers(nodes: RedisNodes): Promise<Customer[]> {
  const customers: Customer[] = [];
  for (let at = 0; at < ACCOUNTS; at++) {
    const limits = { rateLimit: 1_000_000, maxConcurrent: 1000, dailyLimit: 10_000_000 };
    customers.push(await issueKey(nodes, { accountId: `acc${at}`, credits: CREDITS, limits }));
  }
  return customers;
}

const configOf = (journal: string, upstreamUrl: string): string =>
  `server: { host: 127.0.0.1, port: 0, drain_timeout: 1s }
admin: { port: 0 }
store: { journal: ${JSON.stringify(journal)}, command_timeout: 500ms, partitions: ${PARTITIONS}, ledger_check_interval: 0s }
upstream: { url: ${JSON.stringify(upstreamUrl)}, connect_timeout: 200ms, headers_timeout: 1s, total_timeout: 1s }
tasks: { cache: 0s, sweep_interval: 250ms, poll_interval: 1s, sweep_polls_per_second: 1000 }
archive: { keep: 0s, interval: 100ms }
`;
