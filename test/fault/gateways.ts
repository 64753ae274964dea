import { existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { type GuardedChild, startChild } from "../../src/sandbox/child.ts";
import { childEnv } from "../support/child-env.ts";
import { createAgent, type Target } from "./client.ts";

/** Some 40 times what it takes: only a gateway that never starts waits so long, whatever else this machine does. */
const START_TIMEOUT_MS = 90_000;

/** One gateway process; it never comes back, its slot gets a new one. */
export interface GatewayProcess extends Target {
  pid: number;
  adminUrl: string;
  alive: boolean;
  /** SIGKILL, at once. */
  kill(): void;
  ended: Promise<string>;
  /** SIGTERM, and SIGKILL when it does not end. */
  stop(): Promise<void>;
}

/** Settings that differ from one gateway to another. */
export interface GatewaySettings {
  commandTimeoutMs: number;
  /** False: as good as never; another gateway does it, and no lease has to be waited for. */
  sweeps: boolean;
  /** Folder for what waits for the store; all gateways share one unless it is said. */
  journal: string;
  upstreamUrl: string;
  /** `envelope` when left out. */
  adapter?: "envelope" | "kie";
  maxAgeMs: number;
  /** How long a task may go unpolled; 1 s when left out. */
  pollIntervalMs?: number | undefined;
  unknownOutcomesMax: number;
  /** To the upstream, whose answers may then take longer: 2 s for the headers, 4 s in all. */
  connections?: number | undefined;
  /** A Redis without persistence is taken; it is when left out. */
  allowNoPersistence?: boolean;
  /** Of a new store; 4 when left out. */
  partitions?: number | undefined;
  /** Replicas that must have a charge before it is answered; as the gateway decides when left out. */
  confirmReplicas?: number | undefined;
  /** `store.fallback_strategy`; `deny` when left out. */
  fallbackStrategy?: "allow" | undefined;
  /** Of a PostgreSQL. What it has leaves Redis at once. */
  archiveUrl?: string | undefined;
  /** The section `webhooks` as JSON, and a secret; without it there are none. */
  webhooks?: object | undefined;
  /** `log.polls`; `debug`, which sums them up, when left out. */
  logPolls?: "info" | undefined;
}

/** Seals the secrets of endpoints in all runs. */
export const WEBHOOK_SECRET_KEY = "a-key-of-webhook-secrets-for-campaigns-only";

/**
 * Writes what one gateway reads, before it starts, or to change it while it runs.
 * Short timeouts: holds of an unknown outcome end after 0.2 + 1 + 1 + 8 s.
 */
export function writeGatewayConfig(folder: string, name: string, settings: GatewaySettings): void {
  const { commandTimeoutMs, sweeps, journal, upstreamUrl, maxAgeMs, unknownOutcomesMax } = settings;
  const { connections, partitions = 4, adapter = "envelope", pollIntervalMs = 1000 } = settings;
  const timeouts =
    connections === undefined
      ? "headers_timeout: 1s, total_timeout: 1s"
      : `headers_timeout: 2s, total_timeout: 4s, connections: ${connections}`;
  const every = sweeps ? "250ms" : "1m";
  const { confirmReplicas = "auto", fallbackStrategy = "deny", allowNoPersistence = true } = settings;
  writeFileSync(
    configFile(folder, name),
    `server: { host: 127.0.0.1, port: 0, drain_timeout: 3s, unknown_keys_per_minute: 100000 }
admin: { port: 0 }
store: { journal: ${JSON.stringify(journal)}, allow_no_persistence: ${allowNoPersistence}, command_timeout: ${commandTimeoutMs}ms, partitions: ${partitions}, confirm_replicas: ${confirmReplicas}, fallback_strategy: ${fallbackStrategy} }
upstream: { url: ${JSON.stringify(upstreamUrl)}, adapter: ${adapter}, connect_timeout: 200ms, ${timeouts} }
tasks: { cache: 0s, sweep_interval: ${every}, poll_interval: ${pollIntervalMs}ms, sweep_polls_per_second: 1000, max_age: ${maxAgeMs}ms, unknown_outcomes_per_account: ${unknownOutcomesMax} }
archive: { keep: 0s, interval: 100ms }
webhooks: ${JSON.stringify(settings.webhooks ?? {})}
log: { polls: ${settings.logPolls ?? "debug"} }
`,
  );
}

const configFile = (folder: string, name: string): string => join(folder, `${name}.yaml`);

export const logFileOf = (folder: string, name: string): string => join(folder, "logs", `${name}.ndjson`);

/** The file that starts a gateway of a copy, or its command line: of its bundle, if it has one. */
export function programOf(root: string, name: "main" | "cli"): string {
  const bundle = join(root, `dist/src/${name}.js`);
  return existsSync(bundle) ? bundle : join(root, `src/${name}.ts`);
}

/**
 * Starts a gateway of a source tree as its own process and waits until it is ready, unless the options say otherwise.
 * @param options.spawned told of the process as soon as there is one, so that it can be ended before it is ready
 */
export async function startGateway(options: {
  root: string;
  folder: string;
  name: string;
  redisUrl: string;
  archiveUrl?: string | undefined;
  hasWebhooks?: boolean | undefined;
  /** Where its log goes once it has started; a file of the folder unless it is said. */
  log?: string | undefined;
  /** False: it is enough that it listens, though its store may be away. */
  waitsForStore?: boolean | undefined;
  spawned(gateway: GatewayProcess): void;
}): Promise<GatewayProcess> {
  const { root, folder, name, redisUrl, archiveUrl } = options;
  mkdirSync(join(folder, "logs"), { recursive: true });
  const logFile = options.log ?? logFileOf(folder, name);
  const log = openSync(logFile, "w");
  const child = await startChild(process.execPath, [programOf(root, "main")], {
    cwd: folder,
    env: {
      ...childEnv(),
      TOLLGATE_CONFIG: configFile(folder, name),
      REDIS_URL: redisUrl,
      ...(archiveUrl === undefined ? {} : { ARCHIVE_URL: archiveUrl }),
      ...(options.hasWebhooks ? { WEBHOOK_SECRET_KEY } : {}),
    },
    stdio: ["ignore", log, log],
  });
  const gateway = handle(name, child);
  options.spawned(gateway);
  try {
    await ready(gateway, logFile, options.waitsForStore ?? true);
  } catch (error) {
    gateway.kill();
    throw error;
  }
  return gateway;
}

function handle(name: string, child: GuardedChild): GatewayProcess {
  const agent = createAgent();
  const gateway: GatewayProcess = {
    name,
    pid: child.pid,
    url: "",
    adminUrl: "",
    agent,
    alive: true,
    kill() {
      gateway.alive = false;
      child.process.kill("SIGKILL");
      agent.destroy();
    },
    ended: child.ended,
    async stop() {
      gateway.alive = false;
      agent.destroy();
      await child.stop(5000);
    },
  };
  void child.ended.then(() => {
    gateway.alive = false;
  });
  return gateway;
}

/** Its addresses stand in the first lines of its log. */
async function ready(gateway: GatewayProcess, logFile: string, waitsForStore: boolean): Promise<void> {
  const deadline = Date.now() + START_TIMEOUT_MS;
  while (Date.now() < deadline && gateway.alive) {
    const lines = readFileSync(logFile, "utf8").split("\n").slice(0, -1);
    const line = lines.find((text) => text.includes('"msg":"tollgate is listening"'));
    if (line) {
      const { url, admin_url } = JSON.parse(line) as { url: string; admin_url: string };
      gateway.url = url;
      gateway.adminUrl = admin_url;
      break;
    }
    await pause(10);
  }
  while (Date.now() < deadline && gateway.alive && gateway.adminUrl !== "") {
    if (!waitsForStore || (await isReady(gateway))) return;
    await pause(10);
  }
  const how = gateway.alive ? "did not become ready" : `did not start: ${await gateway.ended}`;
  throw new Error(`gateway ${gateway.name} ${how}; see ${logFile}`);
}

/** Settlements that a gateway still keeps for the store. */
export const outboxEntries = (gateway: GatewayProcess): Promise<number> =>
  metricOf(gateway, "tollgate_store_outbox_entries");

/** The values of a metric of a gateway, one for each of its labels. */
export async function metricValues({ adminUrl }: GatewayProcess, name: string): Promise<number[]> {
  const page = await (await fetch(`${adminUrl}/metrics`)).text();
  const lines = page.split("\n").filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`));
  return lines.map((line) => Number(line.slice(line.lastIndexOf(" ") + 1)));
}

/** A metric of a gateway, over all of its labels; 0 when it has none of that name. */
export async function metricOf(gateway: GatewayProcess, name: string): Promise<number> {
  return (await metricValues(gateway, name)).reduce((sum, value) => sum + value, 0);
}

/** True if a gateway takes requests: not while it drains or its store is unusable. */
export async function isReady({ adminUrl }: GatewayProcess): Promise<boolean> {
  const response = await fetch(`${adminUrl}/readyz`).catch(() => undefined);
  return response?.status === 200;
}
