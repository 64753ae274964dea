import cluster from "node:cluster";
import { availableParallelism } from "node:os";
import { setFlagsFromString } from "node:v8";
import { ConfigError, type Loaded, readConfig, redact, requireLoaded } from "./config/config.ts";
import { refusedArguments } from "./domain/operator-texts.ts";
import { startGateway } from "./process/start-gateway.ts";
import { roleOf, supervise } from "./process/supervisor.ts";
import { createLogger, standardOutput } from "./telemetry/log.ts";

/** Decision 0072. */
function tuneCollector(): void {
  // V8 counts what outlives the first small collections, when most requests are under way, and would from then on make the
  // objects of each request among the old ones.
  setFlagsFromString("--no-allocation-site-pretenuring");
  // On one core, helpers of the young collector only wait for the thread that waits for them.
  if (availableParallelism() === 1) setFlagsFromString("--no-parallel-scavenge");
}

async function main(): Promise<void> {
  tuneCollector();
  const loaded = loadOrExit();
  const { workers } = loaded.config.server;
  const log = createLogger(loaded.config.log.level, standardOutput({ shared: workers > 1 }));
  if (workers > 1 && cluster.isPrimary) {
    log.info({ workers }, "several processes share the port");
    process.exit(await supervise(workers, log));
  }
  let gateway: Awaited<ReturnType<typeof startGateway>> | undefined;
  let isOutdated = false;
  // Registered first: without a listener SIGHUP ends the process, and the first process of a container gets no signal at all.
  process.on("SIGHUP", () => {
    isOutdated = gateway === undefined;
    gateway?.live.reload("SIGHUP");
  });
  // A second signal is ignored: npm and the terminal both send one.
  const end = async (signal: string): Promise<void> => {
    log.info({ signal }, "asked to stop");
    // It has served nobody yet.
    if (!gateway) process.exit(0);
    const { clean, cutRequests, cutAnswers } = await gateway.drain();
    log[clean ? "info" : "warn"]({ clean, cut_requests: cutRequests, cut_answers: cutAnswers }, "stopped");
    process.exit(clean ? 0 : 1);
  };
  process.on("SIGTERM", () => void end("SIGTERM"));
  process.on("SIGINT", () => void end("SIGINT"));
  const role = roleOf(process.env);
  gateway = await startGateway(loaded, log, role);
  const { url, adminUrl, live } = gateway;
  if (isOutdated) live.reload("SIGHUP");
  live.watch();
  if (adminUrl === "") log.info({ url }, "one more process listens");
  else log.info({ url, admin_url: adminUrl, config: redact(loaded.config) }, "tollgate is listening");

  // The state after an unexpected error is unknown: log it, and let the supervisor start a new process.
  for (const event of ["uncaughtException", "unhandledRejection"] as const) {
    process.on(event, (error: unknown) => {
      log.fatal({ err: error }, event);
      process.exit(1);
    });
  }
  role.onSupervisorGone(() => void end("none: the supervisor has gone"));
}

function loadOrExit(): Loaded {
  try {
    return requireLoaded(readConfig({ env: process.env }));
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exit(1);
  }
}

if (import.meta.main) {
  const refused = refusedArguments(process.argv.slice(2), "src/main.ts");
  if (refused !== undefined) {
    process.stderr.write(refused);
    process.exit(1);
  }
  main().catch((error: NodeJS.ErrnoException) => {
    const hint = error.code === "EADDRINUSE" ? "; choose another with PORT or ADMIN_PORT" : "";
    process.stderr.write(`tollgate cannot start: ${error.message}${hint}\n`);
    process.exit(1);
  });
}
