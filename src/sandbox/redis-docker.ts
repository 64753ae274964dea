import { randomBytes } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type RedisOptions, type RunningRedis, serverArgs } from "./redis-server.ts";

const IMAGE = "redis:7-alpine";
const ENGINE_TIMEOUT_MS = 5_000;
const STARTUP_TIMEOUT_MS = 60_000;
const STOP_GRACE_MS = 10_000;

/** Removed by testcontainers after a crash. The port is on all interfaces, hence the password. */
export async function startDockerRedis(options: RedisOptions): Promise<RunningRedis> {
  const { GenericContainer, getContainerRuntimeClient, Wait } = await import("testcontainers");
  const late = delay(ENGINE_TIMEOUT_MS, undefined, { ref: false });
  const engine = await Promise.race([getContainerRuntimeClient().catch(() => undefined), late]);
  if (!engine) throw new Error("no Docker engine answers");
  const password = randomBytes(16).toString("hex");
  const port = options.port === undefined ? 6379 : { container: 6379, host: options.port };
  let container = new GenericContainer(IMAGE)
    .withExposedPorts(port)
    .withStartupTimeout(STARTUP_TIMEOUT_MS)
    .withWaitStrategy(Wait.forLogMessage("Ready to accept connections"))
    .withCommand(["redis-server", "--requirepass", password, ...serverArgs(options)]);
  if (options.persistent) {
    await mkdir(options.dir, { recursive: true });
    container = container.withBindMounts([{ source: resolve(options.dir), target: "/data" }]);
    if (process.getuid && process.getgid)
      container = container.withUser(`${process.getuid()}:${process.getgid()}`);
  }
  const started = await container.start();
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
