import cluster, { type Worker } from "node:cluster";
import { setTimeout as delay } from "node:timers/promises";
import { AggregatorRegistry, Registry } from "prom-client";
import type { MetricsReading } from "../admin/health.ts";
import type { Logger } from "../telemetry/log.ts";
import { metricsIn } from "../telemetry/metrics/factory.ts";
import { logMetrics } from "../telemetry/metrics/process.ts";

type MetricValues = Awaited<ReturnType<Registry["getMetricsAsJSON"]>>;

const RESTART_DELAY_MIN_MS = 500;
const RESTART_DELAY_MAX_MS = 10_000;
const STARTED_WELL_MS = 10_000;
const METRIC_VALUES_TIMEOUT_MS = 5000;
const METRICS_TIMEOUT_MS = 6000;

/** The worker's number, from 1. Worker 1 also does single-process work. */
const WORKER_NUMBER = "TOLLGATE_WORKER";

/** SIGUSR1 opens a debugger for every local user. */
const NO_INSPECTOR = "--disable-sigusr1";

const SUPERVISOR = 0;

type ToSupervisor =
  | { kind: "listening" }
  | { kind: "metrics request"; id: number }
  | { kind: "metric values"; values: MetricValues }
  | { kind: "metric values failed"; why: string }
  | { kind: "reading"; reading: MetricsReading }
  | { kind: "log level"; level: string };
type ToWorker =
  | { kind: "metric values request" }
  | { kind: "metrics"; id: number; page: string }
  | { kind: "metrics failed"; id: number; why: string }
  | { kind: "reading"; from: number; reading: MetricsReading }
  | { kind: "log level"; level: string };

/** Runs `count` gateways on one port. Decision 0040. @returns 0 when all workers ended cleanly after a signal */
export function supervise(count: number, log: Logger): Promise<number> {
  const supervisor = new Supervisor(log);
  process.on("SIGTERM", () => supervisor.stop("SIGTERM"));
  process.on("SIGINT", () => supervisor.stop("SIGINT"));
  process.on("SIGHUP", () => supervisor.reload());
  cluster.setupPrimary({ execArgv: [...new Set([...process.execArgv, NO_INSPECTOR])] });
  for (let number = 1; number <= count; number++) supervisor.launch(number, RESTART_DELAY_MIN_MS);
  return supervisor.ended;
}

class Supervisor {
  readonly #log: Logger;
  readonly #metrics = createMetricsPage();
  readonly #workers = new Map<number, Worker>();
  readonly #started = new Set<number>();
  readonly #serving = new Set<Worker>();
  /** Workers that were starting at the last SIGHUP: they may have read the files before it. */
  readonly #outdated = new WeakSet<Worker>();
  readonly #ended = Promise.withResolvers<number>();
  #isStopping = false;
  #exitCode = 0;

  constructor(log: Logger) {
    this.#log = log;
  }

  get ended(): Promise<number> {
    return this.#ended.promise;
  }

  launch(number: number, delayMs: number): void {
    const worker = cluster.fork({ [WORKER_NUMBER]: String(number) });
    endConnectionsLeftBy(worker);
    const startedMs = performance.now();
    this.#workers.set(number, worker);
    worker.on("message", (message: ToSupervisor) => this.#onMessage(number, worker, message));
    const ended = (exitCode: number, signal: string): void => {
      this.#workers.delete(number);
      this.#serving.delete(worker);
      this.#metrics.ended(worker);
      if (this.#isStopping || !this.#started.has(number)) {
        // A worker that cannot start logs why; its successor would fail, too.
        if (exitCode !== 0) this.#exitCode = 1;
        this.stop("SIGTERM");
        return;
      }
      const hasStartedWell = performance.now() - startedMs > STARTED_WELL_MS;
      const nextMs = hasStartedWell ? RESTART_DELAY_MIN_MS : Math.min(RESTART_DELAY_MAX_MS, 2 * delayMs);
      const fields = { worker: number, exit_code: exitCode, signal, again_in_ms: nextMs };
      this.#log.error(fields, "a worker ended; it is started again");
      void delay(nextMs).then(() => (this.#isStopping ? this.stop("SIGTERM") : this.launch(number, nextMs)));
    };
    worker.once("exit", ended);
    worker.on("error", (error) => {
      this.#log.error({ err: error, worker: number }, "a worker cannot be reached");
      // The system made no process, so none exits: a limit of processes or files.
      if (worker.process.pid === undefined) ended(1, "none");
    });
  }

  stop(signal: NodeJS.Signals): void {
    this.#isStopping = true;
    for (const worker of this.#workers.values()) worker.process.kill(signal);
    if (this.#workers.size === 0) this.#ended.resolve(this.#exitCode);
  }

  reload(): void {
    for (const worker of this.#workers.values()) {
      // The signal would end a worker that does not listen to it yet.
      if (this.#serving.has(worker)) worker.process.kill("SIGHUP");
      else this.#outdated.add(worker);
    }
  }

  #onMessage(number: number, worker: Worker, message: ToSupervisor): void {
    switch (message.kind) {
      case "listening":
        this.#started.add(number);
        this.#serving.add(worker);
        if (this.#outdated.delete(worker)) worker.process.kill("SIGHUP");
        return;
      case "metrics request":
        void this.#answerMetrics(worker, message.id);
        return;
      case "metric values":
      case "metric values failed":
        this.#metrics.received(worker, message);
        return;
      case "reading":
        send(this.#workers.get(1), { kind: "reading", from: number, reading: message.reading });
        return;
      case "log level":
        this.#log.level = message.level;
        for (const each of this.#workers.values()) send(each, message);
    }
  }

  async #answerMetrics(worker: Worker, id: number): Promise<void> {
    try {
      const page = await this.#metrics.read([...this.#workers.values()]);
      send(worker, { kind: "metrics", id, page });
    } catch (error) {
      send(worker, { kind: "metrics failed", id, why: (error as Error).message });
    }
  }
}

/** prom-client declares the type as a number and never uses one. */
const CUMULATIVE = new Set<unknown>(["counter", "histogram"]);

/** Counts of an ended process stay: to Prometheus, a counter that falls was reset. */
export function createAggregatedMetrics() {
  const latest = new Map<number, MetricValues>();
  let ended: Promise<MetricValues> = Promise.resolve([]);
  return {
    update(processId: number, values: MetricValues): void {
      latest.set(processId, values);
    },
    /** Counts since the last update are lost; they were on no page. */
    processEnded(processId: number): void {
      const last = latest.get(processId) ?? [];
      latest.delete(processId);
      const counts = last.filter(({ type }) => CUMULATIVE.has(type));
      ended = ended.then((before) => AggregatorRegistry.aggregate([before, counts]).getMetricsAsJSON());
    },
    async text(): Promise<string> {
      return AggregatorRegistry.aggregate([...latest.values(), await ended]).metrics();
    },
  };
}

function createMetricsPage() {
  const page = createAggregatedMetrics();
  const own = new Registry();
  logMetrics(metricsIn(own));
  const requests = new Map<Worker, PromiseWithResolvers<void>>();
  const gone = new WeakSet<Worker>();

  function request(worker: Worker): Promise<void> {
    const before = requests.get(worker);
    if (before) return before.promise;
    const reply = Promise.withResolvers<void>();
    requests.set(worker, reply);
    send(worker, { kind: "metric values request" });
    return reply.promise;
  }

  return {
    /** @throws if a worker does not answer: a partial page would look complete */
    async read(workers: readonly Worker[]): Promise<string> {
      const answered = new AbortController();
      const late = delay(METRIC_VALUES_TIMEOUT_MS, undefined, { signal: answered.signal }).then(() => {
        throw new Error("a worker does not send its metrics");
      });
      const all = Promise.all(workers.filter((worker) => worker.isConnected()).map(request));
      await Promise.race([all, late]).finally(() => answered.abort());
      page.update(SUPERVISOR, await own.getMetricsAsJSON());
      return page.text();
    },
    received(
      worker: Worker,
      message: Extract<ToSupervisor, { kind: "metric values" | "metric values failed" }>,
    ): void {
      // They arrived after the worker ended: the total has them.
      if (gone.has(worker)) return;
      if (message.kind === "metric values") page.update(worker.id, message.values);
      const reply = requests.get(worker);
      requests.delete(worker);
      if (message.kind === "metric values") reply?.resolve();
      else reply?.reject(new Error(message.why));
    },
    ended(worker: Worker): void {
      gone.add(worker);
      page.processEnded(worker.id);
      requests.get(worker)?.resolve();
      requests.delete(worker);
    },
  };
}

function send(worker: Worker | undefined, message: ToWorker): void {
  if (worker?.isConnected()) worker.send(message);
}

/** A process that runs alone has all of them. */
export interface Role {
  /** It also serves the admin port, sweeps and verifies the ledger. */
  isFirstWorker: boolean;
  listening(): void;
  /** @returns makes the page of metrics of all processes; it rejects if one of them does not send its own */
  share(registry: Registry): () => Promise<string>;
  sendReading(reading: MetricsReading): void;
  otherReadings(): MetricsReading[];
  sendLogLevel(level: string): void;
  onLogLevel(set: (level: string) => void): void;
  /** Without it this process would end at once. */
  onSupervisorGone(drain: () => void): void;
}

export const ALONE: Role = {
  isFirstWorker: true,
  listening: () => undefined,
  share: (registry) => () => registry.metrics(),
  sendReading: () => undefined,
  otherReadings: () => [],
  sendLogLevel: () => undefined,
  onLogLevel: () => undefined,
  onSupervisorGone: () => undefined,
};

export function roleOf(env: NodeJS.ProcessEnv): Role {
  if (!cluster.isWorker || env[WORKER_NUMBER] === undefined) return ALONE;
  const pages = new Map<number, PromiseWithResolvers<string>>();
  const readings = new Map<number, MetricsReading>();
  let requests = 0;
  let registry: Registry | undefined;
  let setLevel: (level: string) => void = () => undefined;
  process.on("message", (message: ToWorker) => {
    if (message.kind === "metric values request") void sendMetricValues(registry);
    if (message.kind === "metrics") pages.get(message.id)?.resolve(message.page);
    if (message.kind === "metrics failed") pages.get(message.id)?.reject(new Error(message.why));
    if (message.kind === "reading") readings.set(message.from, message.reading);
    if (message.kind === "log level") setLevel(message.level);
  });
  return {
    isFirstWorker: env[WORKER_NUMBER] === "1",
    listening: () => sendToSupervisor({ kind: "listening" }),
    sendReading: (reading) => sendToSupervisor({ kind: "reading", reading }),
    otherReadings: () => [...readings.values()],
    sendLogLevel: (level) => sendToSupervisor({ kind: "log level", level }),
    onLogLevel(set) {
      setLevel = set;
    },
    onSupervisorGone(drain) {
      const { worker } = cluster;
      worker?.once("disconnect", () => {
        // Otherwise node:cluster ends the process as soon as this listener returns.
        worker.exitedAfterDisconnect = true;
        drain();
      });
    },
    share(own) {
      registry = own;
      return () => {
        const id = requests++;
        const page = Promise.withResolvers<string>();
        pages.set(id, page);
        sendToSupervisor({ kind: "metrics request", id });
        const late = setTimeout(
          () => page.reject(new Error("the supervisor does not answer")),
          METRICS_TIMEOUT_MS,
        );
        late.unref();
        return page.promise.finally(() => {
          clearTimeout(late);
          pages.delete(id);
        });
      };
    },
  };
}

async function sendMetricValues(registry: Registry | undefined): Promise<void> {
  try {
    sendToSupervisor({ kind: "metric values", values: (await registry?.getMetricsAsJSON()) ?? [] });
  } catch (error) {
    sendToSupervisor({ kind: "metric values failed", why: (error as Error).message });
  }
}

function sendToSupervisor(message: ToSupervisor): void {
  if (process.connected) process.send?.(message, undefined, undefined, () => undefined);
}

const LAST_MESSAGES_MS = 1000;

/** A connection of node:cluster. Closing it twice has no effect. */
interface Handle {
  close(): void;
}

const isHandle = (sent: unknown): sent is Handle =>
  typeof sent === "object" && sent !== null && "close" in sent && typeof sent.close === "function";

/** node:cluster keeps a connection open that a worker ended without accepting. Call before the worker is sent a connection. */
function endConnectionsLeftBy(worker: Worker): void {
  let latest: Handle | undefined;
  const send = worker.process.send?.bind(worker.process) as (...args: unknown[]) => boolean;
  worker.process.send = (...args: unknown[]): boolean => {
    const handle = args[1];
    if (isHandle(handle)) latest = handle;
    return send(...args);
  };
  worker.once("exit", () => setTimeout(() => latest?.close(), LAST_MESSAGES_MS).unref());
}
