import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import type { LiveView } from "../../src/admin/live-figures.ts";
import { consumed, expectSound, readLedger } from "../support/audit.ts";
import { expectStatus, send, until } from "../support/gateway.ts";
import { startGenerator } from "../support/generator.ts";
import { holdPort } from "../support/held-port.ts";
import { type Ended, startGatewayProcess, startProgram } from "../support/processes.ts";
import { heads, rawClient } from "../support/raw-client.ts";
import { givenKey, givenRedis, TEXT_TO_VIDEO, type TestRedis } from "../support/store-stage.ts";

const UNLIMITED = { rate_limit: 100_000, max_concurrent: 10_000, daily_limit: 100_000 };
const WORKERS = { server: { workers: 2, drain_delay: "0s" } };

let redis: TestRedis;
let generator: Awaited<ReturnType<typeof startGenerator>>;
beforeAll(async () => {
  redis = await givenRedis();
  generator = await startGenerator({ behaviour: { durationMs: 60_000 } });
});
afterAll(async () => {
  await generator.stop();
  await redis.stop();
});

const ADMIN_TOKEN = "correct-horse-battery-staple";

/** Lines of the metrics page that begin with `name`, as numbers. */
async function samples(adminUrl: string, name: string): Promise<number[]> {
  const page = await (await fetch(`${adminUrl}/metrics`)).text();
  const lines = page.split("\n").filter((line) => line.startsWith(name));
  return lines.map((line) => Number(line.slice(line.lastIndexOf(" "))));
}

/** Everything that is counted, by name and labels. */
async function counters(adminUrl: string): Promise<Map<string, number>> {
  const page = await (await fetch(`${adminUrl}/metrics`)).text();
  const counted = page.match(/^\w+_(?:total|count|bucket)(?:\{.*\})? .+$/gm) ?? [];
  return new Map(
    counted.map((line) => line.split(/ (?=\S+$)/)).map(([name, value]) => [name!, Number(value)]),
  );
}

test("two processes share the port, the limits and one metrics page; one that dies comes back", async () => {
  const urls = { redisUrl: redis.url, upstreamUrl: generator.url };
  const env = { ADMIN_TOKEN };
  const gateway = await startGatewayProcess({ ...urls, config: WORKERS, env });
  const key = await givenKey(redis.client, { credits: 1_000_000, limits: UNLIMITED });
  const limited = await givenKey(redis.client, {
    credits: 1_000_000,
    limits: { ...UNLIMITED, rate_limit: 9 },
  });
  const generate = (by = key) =>
    send(gateway.url, "POST", TEXT_TO_VIDEO, {
      key: by.key,
      body: { prompt: "x" },
      headers: { connection: "close" },
    });
  const servedBy = () =>
    processesOf(gateway.logs().flatMap(({ request_id: id }) => (id ? [String(id)] : [])));
  const sound = async (): Promise<number> => {
    const ledger = await readLedger(redis.client, key);
    expectSound(ledger);
    return consumed(ledger).length;
  };

  await until(
    () => gateway.logs().some(({ msg }) => msg === "one more process listens"),
    "the second process",
  );
  const usable = () => gateway.logs().filter(({ msg }) => msg === "the store is usable").length;
  await until(() => usable() === 2, "both to have found Redis");
  let sent = 0;
  await until(async () => {
    expectStatus(await generate(), 200);
    sent++;
    return servedBy().size === 2;
  }, "both to have served");
  expect(await samples(gateway.adminUrl, "tollgate_requests_total")).toEqual([sent]);
  expect(await sound()).toBe(sent);

  const answers = await Promise.all(Array.from({ length: 30 }, () => generate(limited)));
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(9);

  // The console, which the first one serves, shows what both have refused.
  for (let n = 0; n < 10; n++) {
    await send(gateway.url, "GET", "/api/v1/credits", { headers: { connection: "close" } });
  }
  await until(async () => {
    const headers = { authorization: `Bearer ${ADMIN_TOKEN}` };
    const live = (await (await fetch(`${gateway.adminUrl}/manage/v1/live`, { headers })).json()) as LiveView;
    const refused = live.denied.find(({ outcome }) => outcome === "missing_api_key");
    return refused?.last_15_minutes === 10;
  }, "the console to show the refusals of both");

  const before = await counters(gateway.adminUrl);
  // The second one is killed: requests go on, and it is replaced.
  const [other] = await workersOf(gateway.pid);
  process.kill(other!, "SIGKILL");
  await until(
    () => gateway.logs().filter(({ msg }) => msg === "one more process listens").length === 2,
    "a new one",
  );
  await until(() => usable() === 3, "the new one to have found Redis");
  // Guarantee: Prometheus takes a counter that falls for one that began anew, and what is left of it for new.
  const after = await counters(gateway.adminUrl);
  expect(before.size).toBeGreaterThan(100);
  expect([...before].filter(([name, value]) => !(after.get(name)! >= value))).toEqual([]);
  await until(async () => {
    expectStatus(await generate(), 200);
    sent++;
    return servedBy().size === 3;
  }, "the new one to have served");
  expect(await sound()).toBe(sent);

  gateway.signal("SIGTERM");
  expect((await gateway.ended()).how).toBe("exit code 0");
});

// Guarantee: what is under way is finished and told, also when the supervisor is killed.
test("workers whose supervisor was killed drain: a generation under way is answered and charged, then all end", async () => {
  const gateway = await startGatewayProcess({
    redisUrl: redis.url,
    upstreamUrl: generator.url,
    config: WORKERS,
  });
  onTestFinished(() => gateway.stop());
  await until(() => gateway.logs().some(({ msg }) => msg === "one more process listens"), "the second one");
  const key = await givenKey(redis.client);
  generator.requests.length = 0;
  const slow = send(gateway.url, "POST", TEXT_TO_VIDEO, {
    key: key.key,
    body: { prompt: "[sandbox: delay=1500ms]" },
  });
  await until(() => generator.requests.length > 0, "the generation to reach the upstream");
  process.kill(gateway.pid, "SIGKILL");
  const reply = await slow;
  expectStatus(reply, 200);
  const ledger = await readLedger(redis.client, key);
  expectSound(ledger);
  expect(consumed(ledger)).toHaveLength(1);
  // Its output ends with the last of the processes.
  await gateway.ended();
  const stopped = gateway.logs().filter(({ msg }) => msg === "stopped");
  expect(stopped).toEqual([
    expect.objectContaining({ clean: true }),
    expect.objectContaining({ clean: true }),
  ]);
});

// node:cluster keeps a connection open that a worker was handed, until the worker says that it has it.
test("connections that a stalled worker was handed end when it is killed; none is left hanging", async () => {
  const gateway = await startGatewayProcess({
    redisUrl: redis.url,
    upstreamUrl: generator.url,
    config: WORKERS,
  });
  onTestFinished(() => gateway.stop());
  await until(() => gateway.logs().some(({ msg }) => msg === "one more process listens"), "the second one");
  const [second] = await workersOf(gateway.pid);
  process.kill(second!, "SIGSTOP");
  const clients = await Promise.all(Array.from({ length: 4 }, () => rawClient(gateway.url)));
  onTestFinished(() => {
    for (const client of clients) client.close();
  });
  for (const client of clients) {
    client.send("GET /api/v1/credits HTTP/1.1\r\nHost: gateway.test\r\nConnection: close\r\n\r\n");
  }
  await until(
    () => clients.filter((client) => heads(client.received()).length === 1).length === 3,
    "the other worker to have answered all but one",
  );
  process.kill(second!, "SIGKILL");
  await Promise.all(clients.map((client) => client.ended()));
  expect(clients.filter((client) => heads(client.received()).length === 1)).toHaveLength(3);
});

test("a log level, an edited file and SIGHUP reach both processes", async () => {
  const urls = { redisUrl: redis.url, upstreamUrl: generator.url };
  const gateway = await startGatewayProcess({ ...urls, config: WORKERS });
  const linesWith = (msg: string) => gateway.logs().filter((line) => line.msg === msg).length;
  await until(() => linesWith("one more process listens") === 1, "the second process");
  // Until then a process answers 503, which it logs as a warning.
  await until(() => linesWith("the store is usable") === 2, "both to have found Redis");
  /** Sets it. A page of metrics goes the same way as the level, behind it, and comes back from both. */
  async function setLevel(body: string): Promise<void> {
    const { status } = await fetch(`${gateway.adminUrl}/log-level`, { method: "PUT", body });
    expect(status).toBe(200);
    await samples(gateway.adminUrl, "tollgate_");
  }
  const level = async () => (await fetch(`${gateway.adminUrl}/log-level`)).json();
  /** Requests until both have served one. @returns their ids, the gateway's own */
  async function servedByBoth(): Promise<string[]> {
    const ids: string[] = [];
    const headers = { connection: "close", "x-request-id": "ours-comes-beside-it" };
    await until(async () => {
      const reply = await send(gateway.url, "GET", "/api/v1/credits", { headers });
      ids.push(reply.headers.get("x-gateway-request-id")!);
      return processesOf(ids).size === 2;
    }, "both to have served");
    return ids;
  }
  const logged = () => gateway.logs().flatMap(({ request_id: id }) => (id ? [String(id)] : []));

  await setLevel("warn");
  await servedByBoth();
  await setLevel("info");
  const loud = await servedByBoth();
  await until(() => logged().length >= loud.length, "their lines");
  // All write to one pipe, so what came before these lines has been read: nothing of the quiet time.
  expect(logged().sort()).toEqual(loud.sort());
  expect(linesWith("the log level was set")).toBe(2);

  const text = readFileSync(gateway.configFile, "utf8");
  writeFileSync(gateway.configFile, JSON.stringify({ ...JSON.parse(text), log: { level: "debug" } }));
  await until(() => linesWith("a new configuration is in force") === 2, "both to have read the file");
  expect(await level()).toEqual({ level: "debug" });
  expect(await samples(gateway.adminUrl, "tollgate_config_info")).toEqual([1]);
  gateway.signal("SIGHUP");
  await until(() => linesWith("reading the configuration again") === 2, "both to have read it again");
  await gateway.stop();
});

/** The processes that gave these request ids: the middle of each is its process's own. */
const processesOf = (ids: readonly string[]): Set<string> => new Set(ids.map((id) => id.slice(-14, -6)));

/** Process ids of the workers, the one without an admin port first. */
async function workersOf(supervisor: number): Promise<number[]> {
  const pids = execFileSync("pgrep", ["-P", String(supervisor)], { encoding: "utf8" })
    .trim()
    .split("\n")
    .map(Number);
  const isSecond = (pid: number): boolean =>
    readFileSync(`/proc/${pid}/environ`, "utf8").includes("TOLLGATE_WORKER=2");
  return pids.filter(isSecond);
}

/** For NODE_OPTIONS: runs this before anything of ours. */
const beforeAnything = (script: string): string =>
  `--import=data:text/javascript,${encodeURIComponent(script)}`;

test("SIGHUP reaches those that serve, and ends none that is still starting", async () => {
  const folder = await mkdtemp(join(tmpdir(), "tollgate-workers-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const go = join(folder, "go");
  const holdSecond = `
    import { existsSync } from "node:fs";
    import { setTimeout as delay } from "node:timers/promises";
    if (process.env.TOLLGATE_WORKER === "2") while (!existsSync(${JSON.stringify(go)})) await delay(10);`;
  const gateway = await startGatewayProcess({
    redisUrl: redis.url,
    upstreamUrl: generator.url,
    config: WORKERS,
    env: { NODE_OPTIONS: beforeAnything(holdSecond) },
  });
  onTestFinished(() => gateway.stop());
  const linesWith = (msg: string): number => gateway.logs().filter((line) => line.msg === msg).length;
  gateway.signal("SIGHUP");
  await until(
    () => linesWith("reading the configuration again") === 1,
    "the first one to have read it again",
  );
  await writeFile(go, "");
  await until(() => linesWith("one more process listens") === 1, "the second one");
  expect(linesWith("a worker ended; it is started again")).toBe(0);
});

// Guarantee: no process goes on with the files of before a SIGHUP.
test("SIGHUP reaches a process that has read its files and does not serve yet", async () => {
  const folder = await mkdtemp(join(tmpdir(), "tollgate-workers-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const [held, go] = [join(folder, "held"), join(folder, "go")];
  const holdSecond = `
    import { existsSync, writeFileSync } from "node:fs";
    import { Server } from "node:net";
    const { listen } = Server.prototype;
    Server.prototype.listen = function (...where) {
      if (process.env.TOLLGATE_WORKER !== "2") return listen.apply(this, where);
      writeFileSync(${JSON.stringify(held)}, "");
      const look = setInterval(() => {
        if (!existsSync(${JSON.stringify(go)})) return;
        clearInterval(look);
        listen.apply(this, where);
      }, 10);
      return this;
    };`;
  const gateway = await startGatewayProcess({
    redisUrl: redis.url,
    upstreamUrl: generator.url,
    // The one setting that is no section.
    config: { ...WORKERS, ...({ reload: "signal" } as object) },
    env: { NODE_OPTIONS: beforeAnything(holdSecond) },
  });
  onTestFinished(() => gateway.stop());
  const linesWith = (msg: string): number => gateway.logs().filter((line) => line.msg === msg).length;
  await until(() => existsSync(held), "the second one to have read its files");
  const text = readFileSync(gateway.configFile, "utf8");
  writeFileSync(gateway.configFile, JSON.stringify({ ...JSON.parse(text), log: { level: "debug" } }));
  gateway.signal("SIGHUP");
  await until(
    () => linesWith("a new configuration is in force") === 1,
    "the first one to have read them again",
  );
  await writeFile(go, "");
  await until(() => linesWith("one more process listens") === 1, "the second one");
  await until(
    () => linesWith("a new configuration is in force") === 2,
    "the second one to have read them again",
  );
});

// Guarantee: a process that hangs is seen. Prometheus takes an empty page of metrics for a gateway that has nothing to say.
test("while a process does not send its metrics, the page of metrics is 500", async () => {
  const urls = { redisUrl: redis.url, upstreamUrl: generator.url };
  const gateway = await startGatewayProcess({ ...urls, config: WORKERS });
  onTestFinished(() => gateway.stop());
  await until(() => gateway.logs().some(({ msg }) => msg === "one more process listens"), "the second one");
  const page = () => fetch(`${gateway.adminUrl}/metrics`);
  expect((await page()).status).toBe(200);
  const [second] = await workersOf(gateway.pid);
  process.kill(second!, "SIGSTOP");
  const refused = await page();
  process.kill(second!, "SIGCONT");
  expect(refused.status).toBe(500);
  const why = (): boolean => JSON.stringify(gateway.logs()).includes("a worker does not send its metrics");
  await until(why, "the log to say why");
  await until(async () => (await page()).status === 200, "the metrics of both");
});

// Guarantee: a gateway that could not start a process for a moment is whole again, and ends when it is told to.
test("a process that the system does not make at first is started once it does", async () => {
  const urls = { redisUrl: redis.url, upstreamUrl: generator.url };
  const gateway = await startGatewayProcess({ ...urls, config: WORKERS });
  onTestFinished(() => gateway.stop());
  const linesWith = (msg: string): number => gateway.logs().filter((line) => line.msg === msg).length;
  await until(() => linesWith("one more process listens") === 1, "the second one");
  const openFiles = (soft: number) =>
    execFileSync("prlimit", ["--pid", String(gateway.pid), `--nofile=${soft}:`]);
  openFiles(10);
  const [second] = await workersOf(gateway.pid);
  process.kill(second!, "SIGKILL");
  await until(() => linesWith("a worker cannot be reached") > 0, "the supervisor to have tried in vain");
  openFiles(1024);
  await until(() => linesWith("one more process listens") === 2, "a new one");
  gateway.signal("SIGTERM");
  expect((await gateway.ended()).how).toBe("exit code 0");
});

/** A port that somebody else has, until the test ends. */
async function givenTakenPort(): Promise<string> {
  const taken = createServer().listen(0, "127.0.0.1");
  onTestFinished(() => void taken.close());
  await until(() => taken.listening);
  return String((taken.address() as AddressInfo).port);
}

/** Two processes that cannot all start. @returns how it ended */
async function startInVain(env: Record<string, string>): Promise<Ended> {
  const urls = { REDIS_URL: redis.url, UPSTREAM_URL: generator.url };
  const program = await startProgram({ HOST: "127.0.0.1", ADMIN_PORT: "0", ...urls, ...env }, WORKERS);
  onTestFinished(() => program.stop());
  return program.ended();
}

test("when no process can listen, all end, and say why", async () => {
  const { how, stderr } = await startInVain({ PORT: await givenTakenPort() });
  expect(how).toBe("exit code 1");
  expect(stderr).toContain("EADDRINUSE");
});

// Without it nobody would sweep or show metrics, and customers would be served all the same.
test("when the first process never gets its admin port, all end, though the second one serves already", async () => {
  const { port, release } = await holdPort();
  onTestFinished(release);
  const secondServes = `fetch("http://127.0.0.1:${port}/").then(() => true, () => false)`;
  const first = `if (process.env.TOLLGATE_WORKER === "1") while (!(await ${secondServes}));`;
  const taken = await givenTakenPort();
  const env = { PORT: String(port), ADMIN_PORT: taken, NODE_OPTIONS: beforeAnything(first) };
  const { how, stderr } = await startInVain(env);
  expect(how).toBe("exit code 1");
  expect(stderr).toContain("EADDRINUSE");
});
