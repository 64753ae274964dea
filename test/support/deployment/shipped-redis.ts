import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, open, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { type GuardedChild, startChild } from "../../../src/sandbox/child.ts";
import { portIfFree } from "../../../src/sandbox/redis.ts";
import { redisBinary } from "../redis-binary.ts";

const run = promisify(execFile);
const SHIPPED = resolve(import.meta.dirname, "../../../deploy/redis");
/** Below the ports that the system gives away, so that the bus of a cluster (10000 more) is free, too. */
const PORTS = { first: 12_000, count: 9000 };

export type ShippedRedis = Awaited<ReturnType<typeof startShippedRedis>>;

interface Server {
  port: number;
  mode: string;
  child?: GuardedChild;
}

/** A copy of deploy/redis with secrets for servers that are not started yet. */
async function givenScripts(kind: "sentinel" | "cluster") {
  const folder = await mkdtemp(join(tmpdir(), "tollgate-shipped-"));
  const scripts = join(folder, "redis");
  await cp(SHIPPED, scripts, { recursive: true });
  const servers = await givenServers(kind);
  const data = servers.filter(({ mode }) => mode !== "sentinel");
  const places = (of: readonly Server[]): string[] => of.map(({ port }) => `127.0.0.1:${port}`);
  const polled = kind === "sentinel" ? servers.filter(({ mode }) => mode === "sentinel") : data;
  const address = `rediss+${kind}://${places(polled).join(",")}${kind === "sentinel" ? "/tollgate" : ""}`;
  const { path, env: own } = await redisBinary();
  const env = {
    ...own,
    PATH: [dirname(path), process.env.PATH].join(delimiter),
    NODES: places(data).join(" "),
    HOST: "127.0.0.1",
  };
  const script = (name: string, args: readonly string[], more: Record<string, string> = {}) =>
    run("sh", [join(scripts, name), ...args], { env: { ...env, ...more } }).then(({ stdout }) =>
      stdout.trim(),
    );
  await script("make-secrets.sh", [join(scripts, "secrets"), address]);
  return { folder, scripts, servers, data, env, script };
}

/** Servers and Sentinels as an operator starts them: by the scripts and settings of deploy/redis alone. */
export async function startShippedRedis(kind: "sentinel" | "cluster") {
  const { folder, scripts, servers, data, env, script } = await givenScripts(kind);

  async function start(server: Server, delayS?: number): Promise<void> {
    const { port, mode } = server;
    const dir = join(folder, String(port));
    await mkdir(dir, { recursive: true });
    const log = await open(join(dir, "log"), "a");
    server.child = await startChild("sh", [join(scripts, "start.sh")], {
      env: {
        ...env,
        MODE: mode,
        PORT: String(port),
        DATA: dir,
        ...(delayS === undefined ? {} : { RESTART_DELAY: String(delayS) }),
      },
      stdio: ["ignore", log.fd, log.fd],
    });
    await log.close();
  }
  /** An operator's command to a server. */
  const cli = (port: number, ...command: string[]): Promise<string> =>
    script("cli.sh", command, { PORT: String(port) });

  async function stop(): Promise<void> {
    await Promise.all(servers.map(({ child }) => child?.stop(5000)));
    await rm(folder, { recursive: true, force: true });
  }
  try {
    await Promise.all(servers.map((server) => start(server)));
    if (kind === "cluster") await script("cluster.sh", ["create"]);
  } catch (error) {
    await stop();
    throw error;
  }
  const gateways = join(scripts, "secrets/gateways");
  const variables = (await readFile(join(gateways, "gateway.env"), "utf8")).trim().split("\n");
  return {
    ports: servers.map(({ port }) => port),
    /** Certificates, users and passwords of the servers. */
    secrets: join(scripts, "secrets/servers"),
    /** Environment of gateways and of the command line. */
    env: {
      ...Object.fromEntries(variables.map((line) => line.split(/=(.*)/).slice(0, 2))),
      NODE_EXTRA_CA_CERTS: join(gateways, "ca.pem"),
    } as { REDIS_URL: string; NODE_EXTRA_CA_CERTS: string },
    cli,
    /** Ports of the servers that are primaries now. */
    async primaries(): Promise<number[]> {
      const roles = await Promise.all(
        data.map(({ port }) => cli(port, "INFO", "replication").catch(() => "away")),
      );
      return data.filter((_, at) => roles[at]!.includes("role:master")).map(({ port }) => port);
    },
    async kill(port: number): Promise<void> {
      const { child } = servers.find((server) => server.port === port)!;
      child!.process.kill("SIGKILL");
      await child!.ended;
    },
    /** As a supervisor would, at once. */
    startAgain: (port: number): Promise<void> => start(servers.find((server) => server.port === port)!),
    /** All servers lose power at once, and are back before anybody fails over. What they had written is on their disks. */
    async cutPower(): Promise<void> {
      for (const { child } of data) child!.process.kill("SIGKILL");
      await Promise.all(data.map(({ child }) => child!.ended));
      await Promise.all(data.map((server) => start(server, 0)));
    },
    stop,
  };
}

async function givenServers(kind: "sentinel" | "cluster"): Promise<Server[]> {
  const modes =
    kind === "cluster"
      ? Array.from({ length: 6 }, () => "cluster")
      : [...Array.from({ length: 3 }, () => "replicated"), ...Array.from({ length: 3 }, () => "sentinel")];
  const servers: Server[] = [];
  const offset = Math.floor(Math.random() * PORTS.count);
  for (let at = 0; servers.length < modes.length; at++) {
    if (at === PORTS.count) throw new Error("too few ports are free");
    const port = PORTS.first + ((offset + at) % PORTS.count);
    const free = await Promise.all([port, port + 10_000].map((one) => portIfFree(one)));
    if (!free.includes(undefined)) servers.push({ port, mode: modes[servers.length]! });
  }
  return servers;
}
