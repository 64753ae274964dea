import { randomBytes } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { request } from "node:http";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { type RedisOptions, type RunningRedis, serverArgs } from "./redis-server.ts";

const IMAGE = "redis:7-alpine";
const PING_TIMEOUT_MS = 1_000;
const STARTUP_TIMEOUT_MS = 60_000;
const STOP_GRACE_MS = 10_000;

/**
 * Redis in a container, removed by testcontainers' own reaper if we crash. The port is published on all interfaces,
 * hence the password.
 * @throws within about a second when no engine answers
 */
export async function startDockerRedis(options: RedisOptions): Promise<RunningRedis> {
  if (!(await engineAnswers())) throw new Error("no Docker engine answers");
  const { GenericContainer } = await import("testcontainers");
  const password = randomBytes(16).toString("hex");
  const port = options.port === undefined ? 6379 : { container: 6379, host: options.port };
  let container = new GenericContainer(IMAGE)
    .withExposedPorts(port)
    .withStartupTimeout(STARTUP_TIMEOUT_MS)
    .withCommand(["redis-server", "--requirepass", password, ...serverArgs(options)]);
  if (options.persistent) {
    await mkdir(options.dir, { recursive: true });
    container = container.withBindMounts([{ source: resolve(options.dir), target: "/data" }]);
    if (process.getuid && process.getgid)
      container = container.withUser(`${process.getuid()}:${process.getgid()}`);
  }
  const { Wait } = await import("testcontainers");
  const started = await container.withWaitStrategy(Wait.forLogMessage("Ready to accept connections")).start();
  const mapped = started.getMappedPort(6379);
  return {
    url: `redis://:${password}@${started.getHost()}:${mapped}`,
    port: mapped,
    source: `${IMAGE} in Docker`,
    stop: async () => {
      await started.stop({ timeout: STOP_GRACE_MS });
    },
  };
}

/** Asks the places where testcontainers looks; the docker command may be there without any engine. */
async function engineAnswers(): Promise<boolean> {
  const runtimeDir = process.env.XDG_RUNTIME_DIR ?? `/run/user/${process.getuid?.() ?? 0}`;
  const sockets = [
    "/var/run/docker.sock",
    join(runtimeDir, "docker.sock"),
    join(homedir(), ".docker/run/docker.sock"),
    join(homedir(), ".docker/desktop/docker.sock"),
  ];
  const host = process.env.DOCKER_HOST;
  const places = host ? [host] : sockets.map((path) => `unix://${path}`);
  return (await Promise.all(places.map(pings))).some(Boolean);
}

function pings(place: string): Promise<boolean> {
  return new Promise((resolve) => {
    const url = URL.parse(place);
    // An engine behind ssh, TLS or a named pipe is left for testcontainers to find out.
    if (!url || (url.protocol !== "unix:" && (url.protocol !== "tcp:" || process.env.DOCKER_TLS_VERIFY))) {
      return resolve(url !== null);
    }
    const target =
      url.protocol === "unix:"
        ? { socketPath: url.pathname }
        : { host: url.hostname, port: url.port || 2375 };
    const ping = request(
      { ...target, path: "/_ping", signal: AbortSignal.timeout(PING_TIMEOUT_MS) },
      (answer) => {
        answer.resume();
        resolve(answer.statusCode === 200);
      },
    );
    ping.on("error", () => resolve(false));
    ping.end();
  });
}
