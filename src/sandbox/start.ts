import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdir, readFile } from "node:fs/promises";
import { connect } from "node:net";
import { join, relative, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { refusedArguments } from "../domain/operator-texts.ts";
import { parseServerAddress, type RedisHost } from "../domain/redis-address.ts";
import { type GuardedChild, startChild } from "./child.ts";
import {
  answeringAt,
  barredText,
  DEMO,
  demoKey,
  demoText,
  EMPTY,
  OWN_REQUEST_ID,
  writePrivately,
  writeStartEnv,
} from "./demo.ts";
import { behaviourFromEnv } from "./generator/behaviour.ts";
import { DIALECTS, isDialectName } from "./generator/generator-dialect.ts";
import { reachableHost, startGenerator } from "./generator/server.ts";
import { printReadably } from "./readable-lines.ts";
import { freePort, portIfFree, startRedis, TOLLGATE_DIR } from "./redis.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const CLI = join(ROOT, "src/cli.ts");
const DEFAULT_PORTS = { public: 8080, admin: 9090, redis: 6379, sandbox: 4010 } as const;
const LOOPBACK = "127.0.0.1";
const READY_TIMEOUT_MS = 60_000;
const CONNECT_TIMEOUT_MS = 3000;
const DRAIN_GRACE_MS = 45_000;

interface Part {
  name: string;
  ended?: Promise<string> | undefined;
  stop(): Promise<void>;
}

type PortVariable = "PORT" | "ADMIN_PORT" | "SANDBOX_PORT" | "REDIS_PORT";

interface Ports {
  host: string;
  port: number;
  adminHost: string;
  adminPort: number;
  sandboxPort: number;
  redisPort: number | undefined;
}

async function main(env: NodeJS.ProcessEnv): Promise<void> {
  const parts: Part[] = [];
  const stopping = new AbortController();
  // npm passes Ctrl-C on, so it often comes twice.
  const onSignal = () => stopping.abort();
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, onSignal);
  try {
    await startAll(env, parts, stopping.signal);
    console.log(await Promise.race([anyEnds(parts), aborted(stopping.signal)]));
    if (!stopping.signal.aborted) process.exitCode = 1;
  } catch (error) {
    if (!stopping.signal.aborted) {
      process.exitCode = 1;
      console.error(`\nTollgate did not start. ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  for (const part of parts.reverse()) {
    await part.stop();
    console.log(`Stopped ${part.name}.`);
  }
}

function anyEnds(parts: readonly Part[]): Promise<string> {
  const ends = parts.flatMap(
    ({ name, ended }) => ended?.then((how) => `${name} ended by itself (${how}).`) ?? [],
  );
  return Promise.race(ends).then((what) => `\nStopping everything: ${what}`);
}

async function aborted(signal: AbortSignal): Promise<string> {
  if (!signal.aborted) await new Promise((done) => signal.addEventListener("abort", done, { once: true }));
  return "\nStopping: first the gateway, which finishes what it has begun ...";
}

async function startAll(env: NodeJS.ProcessEnv, parts: Part[], signal: AbortSignal): Promise<void> {
  const { ports, instead } = await wantedPorts(env);
  await mkdir(TOLLGATE_DIR, { recursive: true });
  if (env.REDIS_URL) await mustAnswer(env.REDIS_URL);
  const redisUrl = env.REDIS_URL || (await addRedis(parts, ports.redisPort));
  signal.throwIfAborted();
  const upstream = env.UPSTREAM_URL
    ? { UPSTREAM_URL: env.UPSTREAM_URL, UPSTREAM_API_KEY: env.UPSTREAM_API_KEY }
    : await addGenerator(env, parts, ports.sandboxPort);
  signal.throwIfAborted();
  const adminToken =
    env.ADMIN_TOKEN || (await keptToken(join(TOLLGATE_DIR, perRedis("admin-token", env.REDIS_URL))));
  const listeners = {
    HOST: ports.host,
    PORT: String(ports.port),
    ADMIN_HOST: ports.adminHost,
    ADMIN_PORT: String(ports.adminPort),
  };
  // A journal folder knows one store.
  const journal = env.REDIS_URL && !env.JOURNAL && join(TOLLGATE_DIR, perRedis("journal", env.REDIS_URL));
  const gatewayEnv = {
    ...env,
    ...upstream,
    ...listeners,
    ...(journal && { JOURNAL: journal }),
    ADMIN_TOKEN: adminToken,
    REDIS_URL: redisUrl,
  };
  const gateway = await startChild(process.execPath, ["--disable-sigusr1", join(ROOT, "src/main.ts")], {
    cwd: ROOT,
    env: gatewayEnv,
    stdio: ["ignore", process.stdout.isTTY ? "pipe" : "inherit", "inherit"],
  });
  if (gateway.process.stdout) printReadably(gateway.process.stdout, process.stdout, OWN_REQUEST_ID);
  parts.push({ name: "the gateway", ended: gateway.ended, stop: () => gateway.stop(DRAIN_GRACE_MS) });
  const adminUrl = await readyAt(`${reachableHost(ports.adminHost)}:${ports.adminPort}`, gateway, signal);
  const place = `${reachableHost(ports.host)}:${ports.port}`;
  const fileOf = (name: string): string => join(TOLLGATE_DIR, perRedis(name, env.REDIS_URL));
  const { key, baseUrl, isBarred } = await demoKey(place, DEMO, fileOf("demo-key"), CLI, gatewayEnv);
  const empty = await demoKey(place, EMPTY, fileOf("demo-empty-key"), CLI, gatewayEnv);
  signal.throwIfAborted();
  const envFile = fileOf("start.env");
  const whole = (path: string | undefined) => path && resolve(ROOT, path);
  const files = { TOLLGATE_CONFIG: whole(env.TOLLGATE_CONFIG), JOURNAL: whole(gatewayEnv.JOURNAL) };
  await writeStartEnv(envFile, { ...gatewayEnv, ...files });
  console.log(`\nTollgate is ready at ${baseUrl}; metrics at ${adminUrl}/metrics`);
  const signIn = env.ADMIN_TOKEN ? "its ADMIN_TOKEN" : `token ${adminToken}`;
  console.log(`The operators' console: ${adminUrl}/console (sign in with ${signIn})`);
  console.log(portsText({ ports, instead, redisUrl, upstreamUrl: upstream.UPSTREAM_URL }));
  const shown = relative(process.cwd(), envFile);
  const isSandbox = !env.UPSTREAM_URL;
  if (isBarred) console.log(barredText(DEMO.account, shown));
  if (empty.isBarred) console.log(barredText(EMPTY.account, shown));
  console.log(demoText({ baseUrl, key, emptyKey: empty.key, envFile: shown, isSandbox }));
}

/** Checked first: the gateway's own message would come after a page of logs. */
async function wantedPorts(env: NodeJS.ProcessEnv): Promise<{ ports: Ports; instead: string[] }> {
  const [host, adminHost] = [env.HOST || LOOPBACK, env.ADMIN_HOST || LOOPBACK];
  const instead: string[] = [];
  const wanted = async (variable: PortVariable, usual: number, on: string): Promise<number | undefined> => {
    const named = env[variable];
    if (!named && !(await portIfFree(usual, on)) && (await portIfFree(0, on))) {
      instead.push(`${usual} is taken`);
      return undefined;
    }
    const port = Number(named || usual);
    await mustBeFree(variable, port, on);
    return port;
  };
  const port = (await wanted("PORT", DEFAULT_PORTS.public, host)) ?? (await freePort());
  const adminPort = (await wanted("ADMIN_PORT", DEFAULT_PORTS.admin, adminHost)) ?? (await freePort());
  const sandboxPort = env.UPSTREAM_URL
    ? undefined
    : await wanted("SANDBOX_PORT", DEFAULT_PORTS.sandbox, LOOPBACK);
  if (env.REDIS_URL && env.REDIS_PORT)
    throw new Error(
      "REDIS_PORT is for the Redis that is started here, and REDIS_URL names another: set one.",
    );
  const redisPort = env.REDIS_URL ? undefined : await wanted("REDIS_PORT", DEFAULT_PORTS.redis, LOOPBACK);
  return { ports: { host, port, adminHost, adminPort, sandboxPort: sandboxPort ?? 0, redisPort }, instead };
}

function portsText(taken: {
  ports: Ports;
  instead: readonly string[];
  redisUrl: string;
  upstreamUrl: string | undefined;
}): string {
  const { ports, instead, redisUrl, upstreamUrl = "" } = taken;
  const redisPort = parseServerAddress(redisUrl).hosts[0]!.port;
  const sandbox = URL.parse(upstreamUrl)?.port ?? "";
  const list = `gateway ${ports.port}, metrics and console ${ports.adminPort}, Redis ${redisPort}, upstream ${sandbox}`;
  return `Ports: ${list}${instead.length > 0 ? ` (${instead.join(", ")})` : ""}`;
}

/** Each Redis has a demo key of its own. */
function perRedis(name: string, redisUrl: string | undefined): string {
  if (!redisUrl) return name;
  return `${name}-${createHash("sha256").update(redisUrl).digest("hex").slice(0, 12)}`;
}

async function keptToken(file: string): Promise<string> {
  const kept = (await readFile(file, "utf8").catch(() => "")).trim();
  if (/^[\w-]{32}$/.test(kept)) return kept;
  const token = randomBytes(24).toString("base64url");
  await writePrivately(file, `${token}\n`);
  return token;
}

async function mustAnswer(redisUrl: string): Promise<void> {
  const { host, port } = serverOf(redisUrl);
  const socket = connect(port, host);
  try {
    await once(socket, "connect", { signal: AbortSignal.timeout(CONNECT_TIMEOUT_MS) });
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code ?? "no answer";
    throw new Error(
      `Nothing answers at REDIS_URL, ${host}:${port} (${why}). See that the address is right, and that this Redis runs ` +
        "with its data: an empty one in its place has no accounts and no credits. For a demo, leave REDIS_URL out: then a " +
        "Redis of its own is started for you.",
    );
  } finally {
    socket.destroy();
  }
}

function serverOf(redisUrl: string): RedisHost {
  try {
    return parseServerAddress(redisUrl).hosts[0]!;
  } catch (error) {
    const problem = error instanceof Error ? error.message : String(error);
    throw new Error(`REDIS_URL ${problem}; left out, a Redis is started for you.`);
  }
}

async function mustBeFree(variable: string, port: number, host: string): Promise<void> {
  if (!(port > 0 && port < 65_536)) throw new Error(`${variable} must be a port from 1 to 65535.`);
  if (await portIfFree(port, host)) return;
  if (!(await portIfFree(0, host)))
    throw new Error(`${host} is no address of this machine; mend HOST or ADMIN_HOST.`);
  const other = port < 65_535 ? port + 1 : port - 1;
  throw new Error(
    `Port ${port} on ${host} is taken. Stop what listens there (perhaps an earlier start), or choose another: ` +
      `${variable}=${other} npm start`,
  );
}

async function addRedis(parts: Part[], wanted: number | undefined): Promise<string> {
  const port = wanted ?? (await freePort());
  const dir = join(TOLLGATE_DIR, "redis-data");
  const redis = await startRedis({ dir, port, persistent: true, waiting: sayEarlierRuns });
  parts.push({ name: "Redis", ended: redis.ended, stop: redis.stop });
  console.log(`Redis: ${redis.source}, port ${redis.port}, data kept in .tollgate/redis-data`);
  return redis.url;
}

function sayEarlierRuns(port: number): void {
  console.log(
    `The Redis of an earlier start still runs on port ${port}; waiting some seconds for it to end ...`,
  );
}

async function addGenerator(env: NodeJS.ProcessEnv, parts: Part[], port: number): Promise<NodeJS.ProcessEnv> {
  const as = env.UPSTREAM_ADAPTER || "envelope";
  if (!isDialectName(as)) {
    const known = Object.keys(DIALECTS).join(" and ");
    throw new Error(
      `The sandbox generator speaks ${known}, and UPSTREAM_ADAPTER is ${as}: name its upstream in UPSTREAM_URL.`,
    );
  }
  // A new one at each start limits the harm of a leak.
  const apiKey = randomBytes(24).toString("base64url");
  const publicUrl = env.SANDBOX_PUBLIC_URL?.replace(/\/$/, "") || undefined;
  const generator = await startGenerator({ as, port, apiKey, publicUrl, behaviour: behaviourFromEnv(env) });
  parts.push({ name: "the sandbox generator", stop: generator.stop });
  console.log(`Sandbox generator: ${generator.url}, steered at ${generator.url}/sandbox/behaviour`);
  return { UPSTREAM_URL: generator.url, UPSTREAM_API_KEY: apiKey };
}

async function readyAt(place: string, gateway: GuardedChild, signal: AbortSignal): Promise<string> {
  const died = gateway.ended.then((how) => {
    throw new Error(`The gateway ended at once (${how}); its own words are above.`);
  });
  let last = "nothing listens";
  const startMs = performance.now();
  while (performance.now() - startMs < READY_TIMEOUT_MS) {
    const { url, status, why } = await Promise.race([died, answeringAt(place, "/readyz")]);
    if (status === 200) return url;
    last = status === undefined ? why : `HTTP ${status}`;
    await Promise.race([died, delay(100, undefined, { signal })]);
  }
  throw new Error(
    `The gateway was not ready in time: its admin port ${place} does not answer 200 (${last}).`,
  );
}

const refused = refusedArguments(process.argv.slice(2), "npm start");
if (refused === undefined) await main(process.env);
else {
  process.exitCode = 1;
  console.error(refused);
}
