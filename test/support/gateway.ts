import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { expect, inject } from "vitest";
import { type Config, type Loaded, readConfig, requireLoaded } from "../../src/config/config.ts";
import { toConfig } from "../../src/config/runtime-config.ts";
import { parseRedisAddress } from "../../src/domain/redis-address.ts";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { startGateway } from "../../src/process/start-gateway.ts";
import { ALONE } from "../../src/process/supervisor.ts";
import { cliActor } from "../../src/records/actor.ts";
import type { ConnectionOptions } from "../../src/redis/connection.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import type { Behaviour } from "../../src/sandbox/generator/behaviour.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { type Generator, startGenerator } from "./generator.ts";
import { until } from "./until.ts";

export { until } from "./until.ts";

type Deep<T> = T extends readonly unknown[] ? T : T extends object ? { [K in keyof T]?: Deep<T[K]> } : T;

/** An answer as a client sees it. */
export interface Reply {
  status: number;
  headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape.
  body: any;
}

export interface RequestOptions {
  key?: string;
  body?: unknown;
  headers?: Record<string, string>;
}

export type TestGateway = Awaited<ReturnType<typeof givenGateway>>;

/**
 * A whole gateway on free ports in front of a sandbox generator, over the run's Redis. Its sweeper sleeps unless the
 * config says otherwise: other tests' tasks, in the same Redis, are none of its business.
 */
export async function givenGateway(
  options: {
    config?: Deep<Config>;
    behaviour?: Partial<Behaviour>;
    redisUrl?: string;
    /** Where partitions are, if not all on that server. */
    place?: ConnectionOptions["place"];
    /** Shares another gateway's generator. */
    generator?: Generator;
    upstreamUrl?: string;
    logLevel?: "debug" | "info";
  } = {},
) {
  const redisUrl = options.redisUrl ?? inject("redisUrl");
  const generator = options.generator ?? (await startGenerator());
  if (options.behaviour) generator.behave(options.behaviour);
  const loaded = defaultsWith(redisUrl, options.upstreamUrl ?? generator.url);
  const quiet = {
    server: { port: 0, drainDelayMs: 0 },
    admin: { port: 0 },
    tasks: { sweepIntervalMs: 3_600_000 },
    store: {
      commandTimeoutMs: 5000,
      allowNoPersistence: true,
      journal: await mkdtemp(join(tmpdir(), "tollgate-journal-")),
    },
  };
  const config = merged(merged(loaded.config, quiet), options.config ?? {}) as Config;
  const logs: string[] = [];
  const log = createLogger(options.logLevel ?? "debug", { write: (line) => void logs.push(line) });
  const gateway = await startGateway({ ...loaded, config }, log, ALONE, options.place);
  const isServer = parseRedisAddress(redisUrl).kind === "server";
  // Where the address is that of Sentinels, tests reach the nodes by themselves.
  const redis = isServer ? new Redis(redisUrl) : new Redis({ lazyConnect: true });
  // Where a test takes Redis away, this one says nothing of it: ioredis would print a stack.
  redis.on("error", () => undefined);
  await until(
    async () => (await fetch(`${gateway.adminUrl}/readyz`)).status === 200 || options.redisUrl !== undefined,
  );

  return {
    ...gateway,
    config,
    generator,
    redis,
    /** Log lines as they were written. */
    logs,
    /** A key of a fresh account, unless one is named. */
    givenKey: (key: Parameters<typeof issueKey>[1] = {}) =>
      issueKey(
        oneNode(redis),
        { credits: 1000, limits: { rate_limit: 1000, max_concurrent: 1000 }, ...key },
        cliActor(),
      ),
    request: (method: string, path: string, request: RequestOptions = {}) =>
      send(gateway.url, method, path, request),
    /** One metric's samples as Prometheus would scrape them: the lines that begin with `name`. */
    async metric(name: string): Promise<string[]> {
      const page = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
      return page.split("\n").filter((line) => line.startsWith(name));
    },
    async stop() {
      await gateway.drain();
      redis.disconnect();
      if (!options.generator) await generator.stop();
    },
  };
}

/** Read once per process: that is a third of what it takes to start a gateway. */
let defaults: Loaded | undefined;

/** The defaults as a gateway reads them with these addresses in its environment. */
function defaultsWith(redisUrl: string, upstreamUrl: string): Loaded {
  const env = {
    ...{ HOST: "127.0.0.1", REDIS_URL: redisUrl },
    ...{ UPSTREAM_URL: upstreamUrl, UPSTREAM_API_KEY: "upstream-secret" },
  };
  defaults ??= requireLoaded(readConfig({ env }));
  const { store, upstream } = defaults.settings;
  const settings = {
    ...defaults.settings,
    store: { ...store, redis_url: redisUrl },
    upstream: { ...upstream, url: upstreamUrl },
  };
  const config = toConfig(settings, defaults.extras);
  return { ...defaults, settings, config, source: { ...defaults.source, env } };
}

/** Sends one request; a plain object as body goes as JSON, a string as it is. */
export async function send(
  url: string,
  method: string,
  path: string,
  request: RequestOptions,
): Promise<Reply> {
  const headers: Record<string, string> = { ...request.headers };
  if (request.key !== undefined) headers.authorization ??= `Bearer ${request.key}`;
  const init: RequestInit = { method, headers };
  if (request.body !== undefined) {
    headers["content-type"] ??= "application/json";
    init.body = typeof request.body === "string" ? request.body : JSON.stringify(request.body);
  }
  const response = await fetch(url + path, init);
  const text = await response.text();
  return {
    status: response.status,
    headers: response.headers,
    body: text === "" ? undefined : JSON.parse(text),
  };
}

/** Holds an answer to a status. A failure shows what the answer said. */
export function expectStatus(reply: Pick<Reply, "status" | "body">, status: number, what = ""): void {
  expect(reply.status, `${what} ${JSON.stringify(reply.body)}`.trim()).toBe(status);
}

function merged(base: unknown, over: unknown): unknown {
  if (typeof over !== "object" || over === null || Array.isArray(over)) return over;
  const result: Record<string, unknown> = { ...(base as object) };
  for (const [name, value] of Object.entries(over)) result[name] = merged(result[name], value);
  return result;
}

/** The five rate-limit headers as numbers. */
export function limitsOf(reply: Reply): Record<string, number> {
  const names = ["limit", "remaining", "reset"].map((name) => [name, `x-ratelimit-${name}`] as const);
  const concurrent = [
    ["maxConcurrent", "x-concurrent-limit"] as const,
    ["active", "x-concurrent-active"] as const,
  ];
  return Object.fromEntries(
    [...names, ...concurrent].map(([name, header]) => [
      name,
      Number(reply.headers.get(header) ?? Number.NaN),
    ]),
  );
}
