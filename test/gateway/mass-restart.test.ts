import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { appendFile, mkdtemp, readdir, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { lineOf } from "../../src/durability/outbox/journal-lines.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { accountNames, type KeyRef, keyRef, partitionOf } from "../../src/records/names.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { accountIn } from "../support/account-money.ts";
import { send } from "../support/gateway.ts";
import { type Sections, startGatewayProcess, startProgram } from "../support/processes.ts";
import { openConnection, openStore, TIERS } from "../support/store.ts";
import { givenRedis, PRICE, TEXT_TO_VIDEO, type TestRedis } from "../support/store-stage.ts";
import { until } from "../support/until.ts";

/** `MASS_TASKS=100000 MASS_LINES=50000` takes two minutes, and prints how long each part of it took. */
const TASKS = Number(process.env.MASS_TASKS ?? 2000);
const LINES = Number(process.env.MASS_LINES ?? 1000);
const ACCOUNTS = 100;
const CREDITS = 1_000_000;
const HOUR_MS = 3_600_000;
const AT_A_TIME = 128;

const newId = (): string => randomBytes(16).toString("hex");

/** An upstream with a new task for each generation, and whose tasks all run for ever. */
async function startUpstream() {
  let made = 0;
  const server = createServer(async (request, response) => {
    for await (const _ of request);
    const taskId = request.method === "POST" ? newId() : request.url!.split("/").at(-1)!;
    if (request.method === "POST") made++;
    const data = { task_id: taskId, status: "processing", created_at: "2026-01-01T00:00:00Z" };
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ code: 200, msg: "success", data }));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { url, made: () => made, stop: () => void server.close().closeAllConnections() };
}

async function each(count: number, step: (n: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const lane = async (): Promise<void> => {
    for (let n = next++; n < count; n = next++) await step(n);
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, lane));
}

/** Open tasks that are all due, and held requests whose charges no gateway could make; by the real scripts. */
async function seed(redis: TestRedis, upstream: string): Promise<{ keys: KeyRef[]; lines: string[] }> {
  const connection = await openConnection(redis.url);
  const { settlements, ...store } = openStore(connection);
  const keys: KeyRef[] = [];
  for (let n = 0; n < ACCOUNTS; n++) {
    const limits = { rate_limit: 1_000_000, max_concurrent: 1_000_000, daily_limit: 1_000_000 };
    const { keyId, accountId } = await issueKey(
      oneNode(redis.client),
      { credits: CREDITS, limits },
      cliActor(),
    );
    keys.push(keyRef(keyId, accountId, partitionOf(accountId, connection.known.facts!.partitions)));
  }
  const newTask = () => ({ taskId: newId(), data: "", pollMs: 1000, maxAgeMs: 2 * HOUR_MS, upstream });
  const lines: string[] = [];
  await each(TASKS + LINES, async (n) => {
    const key = keys[n % ACCOUNTS]!;
    const generation: Generation = {
      requestId: `req_${newId()}`,
      key,
      price: PRICE,
      endpoint: TEXT_TO_VIDEO,
      holdMs: HOUR_MS,
      retentionMs: 24 * HOUR_MS,
    };
    const { outcome } = await store.admit(generation, TIERS);
    if (outcome !== "admitted") throw new Error(outcome);
    if (n < TASKS) return store.bind(generation, newTask());
    const { storeId, requestId, price, endpoint, retentionMs, admittedAtMs } = generation;
    const call = { requestId, key, price, endpoint, retentionMs, admittedAtMs, task: newTask() };
    const atMs = Date.now();
    return lines.push(lineOf({ script: "bind", storeId, atMs, untilMs: atMs + HOUR_MS, call }));
  });
  await connection.close();
  await settlements.close();
  return { keys, lines };
}

/** A customer of one key, who asks both gateways in turn; counts answers and what was charged. */
function startCustomer(key: string, urls: () => readonly string[]) {
  const taken: number[] = [];
  const statuses = new Map<number, number>();
  let isStopped = false;
  const asking = (async () => {
    for (let n = 0; !isStopped; n++) {
      const [url] = urls().slice(n % Math.max(1, urls().length));
      if (url !== undefined) {
        const startMs = performance.now();
        const { status } = await send(url, "POST", TEXT_TO_VIDEO, {
          key,
          body: { prompt: "a quiet street" },
        });
        if (status === 200) taken.push(performance.now() - startMs);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
      }
      await delay(20);
    }
  })();
  return {
    statuses,
    async stop(): Promise<number[]> {
      isStopped = true;
      await asking;
      return taken.sort((a, b) => a - b);
    },
  };
}

async function gauge(adminUrl: string, name: string): Promise<number> {
  const page = await (await fetch(`${adminUrl}/metrics`)).text();
  return Number(
    page
      .split("\n")
      .find((line) => line.startsWith(`${name} `))
      ?.split(" ")[1] ?? Number.NaN,
  );
}

const residentMiB = (pid: number): number =>
  Number(/^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;

// Guarantee: whatever waits as all gateways die is charged once by those that come after them, and they serve meanwhile.
test("all gateways are killed and started at once with open tasks and full journals", async () => {
  const startedMs = performance.now();
  const figures: Record<string, unknown> = { TASKS, LINES };
  const note = (what: string): void => {
    figures[what] = Math.round(performance.now() - startedMs);
  };
  const [redis, upstream] = [await givenRedis(), await startUpstream()];
  const folder = await mkdtemp(join(tmpdir(), "tollgate-mass-"));
  const programs: { stop(): Promise<void> }[] = [];
  onTestFinished(async () => {
    await Promise.all(programs.map(({ stop }) => stop()));
    upstream.stop();
    await redis.stop();
    await rm(folder, { recursive: true, force: true });
  });
  const { keys, lines } = await seed(redis, upstream.url);
  note("seeded");
  const honest = await issueKey(
    oneNode(redis.client),
    {
      credits: CREDITS,
      limits: { rate_limit: 1_000_000, max_concurrent: 1_000_000, daily_limit: 1_000_000 },
    },
    cliActor(),
  );
  const options = { redisUrl: redis.url, upstreamUrl: upstream.url, journal: folder, config: {} as Sections };

  const dead = await Promise.all([startGatewayProcess(options), startGatewayProcess(options)]);
  programs.push(...dead);
  const files = (await readdir(folder)).filter((name) => name.endsWith(".ndjson"));
  expect(files).toHaveLength(2);
  for (const { signal } of dead) signal("SIGKILL");
  await Promise.all(dead.map(({ ended }) => ended()));
  // As if Redis had been away for them: their files had been written by then.
  for (const [n, file] of files.entries())
    await appendFile(join(folder, file), lines.filter((_, at) => at % 2 === n).join(""));

  await redis.client.config("RESETSTAT");
  await redis.client.config("SET", "slowlog-log-slower-than", "10000");
  await redis.client.slowlog("RESET");
  note("killed");
  const env = {
    HOST: "127.0.0.1",
    PORT: "0",
    ADMIN_PORT: "0",
    REDIS_URL: redis.url,
    UPSTREAM_URL: upstream.url,
    UPSTREAM_API_KEY: "upstream-secret",
    ...(process.env.MASS_NODE_OPTIONS ? { NODE_OPTIONS: process.env.MASS_NODE_OPTIONS } : {}),
  };
  const alive = await Promise.all([startProgram(env, {}, folder), startProgram(env, {}, folder)]);
  programs.push(...alive);
  const listening = (at: number) => alive[at]!.logs().find((line) => line.msg === "tollgate is listening");
  const urls = (): string[] => [0, 1].flatMap((at) => (listening(at) ? [String(listening(at)!.url)] : []));
  await until(() => urls().length === 2, "both to listen");
  note("listening");
  const admins = [0, 1].map((at) => String(listening(at)!.admin_url));
  const served = urls();
  const customer = startCustomer(honest.key, () => served);
  for (const [at, admin] of admins.entries()) {
    await until(async () => (await fetch(`${admin}/readyz`)).status === 200, "readyz");
    note(`ready ${at}`);
  }
  for (const admin of admins)
    await until(async () => (await gauge(admin, "tollgate_store_outbox_entries")) === 0, "the outbox");
  note("settled");
  // The sweeper is at work on all tasks meanwhile.
  await delay(TASKS > 10_000 ? 15_000 : 500);
  const taken = await customer.stop();
  figures.statuses = Object.fromEntries(customer.statuses);
  figures.honest = {
    count: taken.length,
    p50: taken.at(taken.length / 2),
    p99: taken.at(taken.length * 0.99),
    max: taken.at(-1),
  };
  figures.residentMiB = alive.map(({ pid }) => residentMiB(pid));
  figures.slowest = ((await redis.client.slowlog("GET", 100)) as [number, number, number, string[]][])
    .map(([, , us, [command, sha]]) => `${us} ${command} ${sha?.slice(0, 60)}`)
    .sort((a, b) => Number.parseInt(b, 10) - Number.parseInt(a, 10))
    .slice(0, 5);
  figures.commands = (await redis.client.info("commandstats"))
    .split("\r\n")
    .filter((line) => /cmdstat_(evalsha|eval|fcall):/.test(line));
  if (TASKS > 10_000 || process.env.MASS_SHOW) console.log(JSON.stringify(figures, null, 1));

  for (const [n, key] of keys.entries()) {
    const mine = Array.from({ length: TASKS + LINES }, (_, at) => at).filter(
      (at) => at % ACCOUNTS === n,
    ).length;
    const found = await accountIn(redis.client, accountNames(key.partition, key.accountId).account);
    expect([found.balance, found.held, found.total_used].map(Number)).toEqual([
      CREDITS - mine * PRICE,
      0,
      mine * PRICE,
    ]);
  }
  const { violations, credits } = await verifyLedger(oneNode(redis.client));
  expect(violations).toEqual([]);
  expect(credits.consumed).toBe((TASKS + LINES + upstream.made()) * PRICE);
  expect(customer.statuses.get(200)).toBe(upstream.made());
  for (const { stop } of alive) await stop();
  expect((await readdir(folder)).filter((name) => name.endsWith(".ndjson"))).toEqual([]);
}, 600_000);
