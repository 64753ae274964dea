import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { freePort } from "../../src/sandbox/redis.ts";
import { type Started, startPinned } from "../processes.ts";
import type { Tree } from "../tree.ts";
import { journalOf, type World } from "../world.ts";
import type { RunningSubject, Subject } from "./subject.ts";

/** A machine that has much else to do takes long to read TypeScript. */
const START_TIMEOUT_MS = 120_000;

export interface GatewayOptions {
  /** As tables name it, where the tree's name does not say enough. */
  name?: string;
  /** Lines of YAML beside those that every run has, by section. */
  server?: string;
  tasks?: string;
  store?: string;
  /** Further sections, each a line of YAML. */
  sections?: string;
  env?: NodeJS.ProcessEnv;
  cores?: string;
  nodeArgs?: readonly string[];
  /** Program to run, if not `src/main.ts` of the tree. */
  main?: string;
  upstreamUrl?: string;
}

/** The gateway of a tree, beside others. */
export const gatewaySubject = (tree: Tree, options: GatewayOptions = {}): Subject => ({
  name: options.name ?? tree.name,
  start: (world) => startGateway(world, tree, options),
});

/** The yardstick begins its check ten seconds after its start, in a process that is not counted as the gateway's and slows all others. */
const WITHOUT_LEDGER_CHECK = "ledger_check_interval: 0s";
const RATE = "utility_requests_per_second";

/**
 * Starts it as a user does, everything on, its log to a file, and waits until it is ready. Only its patience with Redis is longer, so
 * that a moment in which the machine does something else is not an outage, and it does not check its ledger.
 */
export async function startGateway(
  world: World,
  tree: Tree,
  {
    server = "",
    tasks = "",
    store = "",
    sections = "",
    env = {},
    cores,
    nodeArgs = [],
    main = join(tree.root, "src/main.ts"),
    upstreamUrl = world.upstreamUrl,
  }: GatewayOptions = {},
): Promise<RunningSubject> {
  const home = join(world.folder, "gateway");
  mkdirSync(home, { recursive: true });
  // Few keys poll here as many do elsewhere. Older trees have no such limit, and refuse settings that they do not know.
  const hasRate = readFileSync(join(tree.root, "config/tollgate.schema.json"), "utf8").includes(RATE);
  const settings = [`host: 127.0.0.1, port: ${await freePort()}, drain_delay: 0s, drain_timeout: 2s`];
  if (hasRate) settings.push(`${RATE}: 1000000`);
  if (server) settings.push(server);
  writeFileSync(
    join(home, "tollgate.yaml"),
    `server: { ${settings.join(", ")} }
admin: { port: ${await freePort()} }
store: { ${[store.includes("command_timeout") ? "" : "command_timeout: 5s", `journal: ${journalOf(world)}`, WITHOUT_LEDGER_CHECK, store].filter(Boolean).join(", ")} }
${tasks && `tasks: { ${tasks} }\n`}${sections}`,
  );
  const child = await startPinned(process.execPath, [...nodeArgs, main], {
    folder: world.folder,
    name: "gateway",
    ...(cores === undefined ? {} : { cores }),
    env: {
      ...env,
      NODE_ENV: "production",
      TOLLGATE_CONFIG: join(home, "tollgate.yaml"),
      REDIS_URL: world.redisUrl,
      UPSTREAM_URL: upstreamUrl,
      UPSTREAM_API_KEY: "bench-upstream-key",
    },
  });
  try {
    const logFile = join(world.folder, "gateway.log");
    const addresses = await ready(child, logFile);
    return { ...addresses, logFile, pid: child.pid, stop: child.stop };
  } catch (error) {
    await child.stop();
    throw error;
  }
}

/** Its addresses stand in one of the first lines of its log. */
async function ready({ ended }: Started, logFile: string): Promise<{ url: string; adminUrl: string }> {
  const deadlineMs = performance.now() + START_TIMEOUT_MS;
  let lives = true;
  void ended.then(() => {
    lives = false;
  });
  while (lives && performance.now() < deadlineMs) {
    const lines = readFileSync(logFile, "utf8").split("\n").slice(0, -1);
    const line = lines.find((text) => text.includes('"msg":"tollgate is listening"'));
    if (line) {
      const { url, admin_url: adminUrl } = JSON.parse(line) as { url: string; admin_url: string };
      const response = await fetch(`${adminUrl}/readyz`).catch(() => undefined);
      if (response?.status === 200) return { url, adminUrl };
    }
    await delay(20);
  }
  throw new Error(`the gateway did not become ready: ${readFileSync(logFile, "utf8").trim().slice(-1000)}`);
}
