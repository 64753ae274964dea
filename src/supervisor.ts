import cluster, { type Worker } from "node:cluster";
import { setTimeout as delay } from "node:timers/promises";
import { Registry } from "prom-client";
import type { Reading } from "./operator/console/live.ts";
import { endConnectionsLeftBy } from "./orphaned-connections.ts";
import { createAggregatedMetrics, type MetricValues } from "./telemetry/aggregated-metrics.ts";
import type { Logger } from "./telemetry/log.ts";
import { metricsIn } from "./telemetry/metrics/factory.ts";
import { logMetrics } from "./telemetry/metrics/process.ts";

const RESTART_DELAY_MIN_MS = 500;
const RESTART_DELAY_MAX_MS = 10_000;
/** A worker that lived so long had started well. */
const STARTED_WELL_MS = 10_000;
const NUMBERS_TIMEOUT_MS = 5000;
const METRICS_TIMEOUT_MS = 6000;

/** Its number among the workers, from 1; set by the supervisor. The first one also does what is done once. */
const NUMBER = "TOLLGATE_WORKER";

/** SIGUSR1 would open a debugger that anybody on the machine may use; npm scripts and the image start Node with it. */
const NO_INSPECTOR = "--disable-sigusr1";

/** Beside the ids of workers, which begin with 1. */
const SUPERVISOR = 0;

type ToSupervisor =
  | { kind: "listening" }
  | { kind: "metrics wanted"; id: number }
  | { kind: "numbers"; numbers: MetricValues }
  | { kind: "no numbers"; why: string }
  | { kind: "reading"; reading: Reading }
  | { kind: "log level"; level: string };
type ToWorker =
  | { kind: "numbers wanted" }
  | { kind: "metrics"; id: number; page: string }
  | { kind: "reading"; from: number; reading: Reading }
  | { kind: "log level"; level: string };

/**
 * Runs `count` gateways on one public port and starts anew those that end; SIGTERM and SIGINT end all, SIGHUP is passed
 * on. The supervisor serves nothing itself. Decision 0023.
 * @returns the exit code: 0 when all workers ended cleanly after a signal
 */
export async function supervise(count: number, log: Logger): Promise<number> {
  const metrics = createMetricsPage();
  const ended = Promise.withResolvers<number>();
  const living = new Map<number, Worker>();
  /** Numbers under which a worker has once served the port. */
  const started = new Set<number>();
  const serving = new Set<Worker>();
  let stopping = false;
  let code = 0;

  function launch(number: number, afterMs: number): void {
    const worker = cluster.fork({ [NUMBER]: String(number) });
    endConnectionsLeftBy(worker);
    const startedMs = performance.now();
    living.set(number, worker);
    worker.on("message", (message: ToSupervisor) => {
      if (message.kind === "listening") {
        started.add(number);
        serving.add(worker);
      }
      if (message.kind === "metrics wanted") void answerMetrics(worker, message.id);
      if (message.kind === "numbers" || message.kind === "no numbers") metrics.heard(worker, message);
      if (message.kind === "reading") passOn(number, message.reading);
      if (message.kind === "log level") setLevel(message.level);
    });
    worker.on("error", (error) => log.error({ err: error, worker: number }, "a worker cannot be reached"));
    worker.once("exit", (exitCode, signal) => {
      living.delete(number);
      serving.delete(worker);
      metrics.ended(worker);
      if (stopping || !started.has(number)) {
        // One that cannot start says so itself. None after it would do better, and the others lack what it does alone.
        if (exitCode !== 0) code = 1;
        stop("SIGTERM");
        return;
      }
      const wellMs = performance.now() - startedMs;
      const nextMs =
        wellMs > STARTED_WELL_MS ? RESTART_DELAY_MIN_MS : Math.min(RESTART_DELAY_MAX_MS, 2 * afterMs);
      log.error(
        { worker: number, exit_code: exitCode, signal, again_in_ms: nextMs },
        "a worker ended; it is started again",
      );
      void delay(nextMs).then(() => (stopping ? stop("SIGTERM") : launch(number, nextMs)));
    });
  }

  async function answerMetrics(worker: Worker, id: number): Promise<void> {
    const page = await metrics.read([...living.values()]).catch((error: Error) => `# ${error.message}`);
    say(worker, { kind: "metrics", id, page });
  }

  /** What one worker says of itself is for the first one, whose console shows all. */
  function passOn(from: number, reading: Reading): void {
    say(living.get(1), { kind: "reading", from, reading });
  }

  function setLevel(level: string): void {
    log.level = level;
    for (const worker of living.values()) say(worker, { kind: "log level", level });
  }

  function stop(signal: NodeJS.Signals): void {
    stopping = true;
    for (const worker of living.values()) worker.process.kill(signal);
    if (living.size === 0) ended.resolve(code);
  }

  process.on("SIGTERM", () => stop("SIGTERM"));
  process.on("SIGINT", () => stop("SIGINT"));
  process.on("SIGHUP", () => {
    // One that is still starting reads the configuration anyway, and might not listen for the signal yet.
    for (const worker of serving) worker.process.kill("SIGHUP");
  });
  cluster.setupPrimary({ execArgv: [...new Set([...process.execArgv, NO_INSPECTOR])] });
  for (let number = 1; number <= count; number++) launch(number, RESTART_DELAY_MIN_MS);
  return ended.promise;
}

/** The page of all workers, put together anew whenever one is asked for it. */
function createMetricsPage() {
  const page = createAggregatedMetrics();
  /** What the supervisor counts itself: lines of its own log. */
  const own = new Registry();
  logMetrics(metricsIn(own));
  const asked = new Map<Worker, PromiseWithResolvers<void>>();
  const gone = new WeakSet<Worker>();

  /** Until it has said its numbers, or has ended. */
  function ask(worker: Worker): Promise<void> {
    const before = asked.get(worker);
    if (before) return before.promise;
    const answer = Promise.withResolvers<void>();
    asked.set(worker, answer);
    say(worker, { kind: "numbers wanted" });
    return answer.promise;
  }

  return {
    /** @throws where one of them does not answer: what is true of the others alone would look like all */
    async read(workers: readonly Worker[]): Promise<string> {
      const patience = new AbortController();
      const late = delay(NUMBERS_TIMEOUT_MS, undefined, { signal: patience.signal }).then(() => {
        throw new Error("a worker does not say its numbers");
      });
      const all = Promise.all(workers.filter((worker) => worker.isConnected()).map(ask));
      await Promise.race([all, late]).finally(() => patience.abort());
      page.update(SUPERVISOR, await own.getMetricsAsJSON());
      return page.text();
    },
    heard(worker: Worker, said: Extract<ToSupervisor, { kind: "numbers" | "no numbers" }>): void {
      // What was on its way when a worker ended comes too late: its last numbers are added up.
      if (gone.has(worker)) return;
      if (said.kind === "numbers") page.update(worker.id, said.numbers);
      const answer = asked.get(worker);
      asked.delete(worker);
      if (said.kind === "numbers") answer?.resolve();
      else answer?.reject(new Error(said.why));
    },
    ended(worker: Worker): void {
      gone.add(worker);
      page.processEnded(worker.id);
      asked.get(worker)?.resolve();
      asked.delete(worker);
    },
  };
}

function say(worker: Worker | undefined, message: ToWorker): void {
  if (worker?.isConnected()) worker.send(message);
}

/** What a process is among those that share a port; a process on its own does everything. */
export interface Role {
  /** Serves the admin port, sweeps, verifies the ledger: what one of all workers does. */
  first: boolean;
  /** Says to the supervisor that the public port is served. */
  listening(): void;
  /** Takes this process's metrics. @returns asks for the page of all workers, or of this process alone */
  share(registry: Registry): () => Promise<string>;
  /** Says to the first worker what this one has counted. */
  tell(reading: Reading): void;
  /** What the others have told this one, the latest of each. */
  heard(): Reading[];
  /** Says to all of them which log level is wanted. */
  tellLevel(level: string): void;
  /** @param set called when one of them has said so, be it this one */
  onLevel(set: (level: string) => void): void;
  /** @param drain called when the supervisor has gone without a word: without it, the process ends at once */
  onSupervisorGone(drain: () => void): void;
}

export const ALONE: Role = {
  first: true,
  listening: () => undefined,
  share: (registry) => () => registry.metrics(),
  tell: () => undefined,
  heard: () => [],
  tellLevel: () => undefined,
  onLevel: () => undefined,
  onSupervisorGone: () => undefined,
};

/** The role of this process. */
export function roleOf(env: NodeJS.ProcessEnv): Role {
  if (!cluster.isWorker || env[NUMBER] === undefined) return ALONE;
  const waiting = new Map<number, (page: string) => void>();
  const heard = new Map<number, Reading>();
  let asked = 0;
  let setLevel: (level: string) => void = () => undefined;
  process.on("message", (message: ToWorker) => {
    if (message.kind === "numbers wanted") void tellNumbers();
    if (message.kind === "metrics") waiting.get(message.id)?.(message.page);
    if (message.kind === "reading") heard.set(message.from, message.reading);
    if (message.kind === "log level") setLevel(message.level);
  });
  /** What cannot be told to a supervisor that has gone is dropped. */
  const tell = (told: ToSupervisor): void => {
    if (process.connected) process.send?.(told, undefined, undefined, () => undefined);
  };
  let registry: Registry | undefined;
  const tellNumbers = async (): Promise<void> => {
    try {
      tell({ kind: "numbers", numbers: (await registry?.getMetricsAsJSON()) ?? [] });
    } catch (error) {
      tell({ kind: "no numbers", why: (error as Error).message });
    }
  };
  return {
    first: env[NUMBER] === "1",
    listening: () => tell({ kind: "listening" }),
    tell: (reading) => tell({ kind: "reading", reading }),
    heard: () => [...heard.values()],
    tellLevel: (level) => tell({ kind: "log level", level }),
    onLevel(set) {
      setLevel = set;
    },
    onSupervisorGone(drain) {
      const { worker } = cluster;
      worker?.once("disconnect", () => {
        // Else node:cluster ends the process as soon as this listener returns.
        worker.exitedAfterDisconnect = true;
        drain();
      });
    },
    share(own) {
      registry = own;
      return () => {
        const id = asked++;
        const page = Promise.withResolvers<string>();
        waiting.set(id, page.resolve);
        tell({ kind: "metrics wanted", id });
        const late = delay(METRICS_TIMEOUT_MS, "# the supervisor does not answer", { ref: false });
        return Promise.race([page.promise, late]).finally(() => waiting.delete(id));
      };
    },
  };
}
