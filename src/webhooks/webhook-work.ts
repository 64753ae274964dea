import { partitionNames, webhookNames } from "../records/names.ts";
import type { Connection } from "../redis/connection.ts";
import { createDueLists } from "../redis/due-lists.ts";
import { many } from "../redis/pipelines.ts";
import type { Primary } from "../redis/primary.ts";
import { repeated } from "../redis/repeated-work.ts";
import { thawedPartitions } from "../redis/topology/frozen-partitions.ts";
import { createWriteWatch } from "../redis/write-watch.ts";
import { expiring } from "../scripts/keys.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { type DeliverySettings, DeliveryWorker } from "./delivery-worker.ts";
import type { EgressPolicy } from "./guarded-agent.ts";
import { openSecretBox, type SecretKeys } from "./sealed-secrets.ts";
import { createSender } from "./sender.ts";

const FIGURES_EVERY_MS = 10_000;

export type WebhookWorkSettings = DeliverySettings & EgressPolicy & SecretKeys;

/** Figures come from the store, so that they tell of deliveries that nobody sends. @param options.settings those in force */
export function createWebhookWork(options: {
  connection: Connection;
  settings(): WebhookWorkSettings;
  metrics: Metrics;
  log: Logger;
}) {
  const { connection, settings, metrics, log } = options;
  const box = openSecretBox(settings());
  if (!box) throw new Error("webhooks need WEBHOOK_SECRET_KEY");
  const sender = createSender(settings);
  const worker = new DeliveryWorker({ connection, sender, box, settings, metrics, log });
  const figures = createQueueFigures(connection);
  const expiringKeys = createExpiringKeys(connection, log);
  const showing = repeated(show, {
    pauseMs: () => FIGURES_EVERY_MS,
    failed: (error) => log.debug({ err: error }, "no figures of webhooks"),
  });

  async function show(): Promise<void> {
    const { firstDueMs, waiting, bytes, dropped } = await figures();
    const overdueMs = firstDueMs === undefined ? 0 : Math.max(0, connection.nowMs() - firstDueMs);
    metrics.webhooksOverdue.set(overdueMs / 1000);
    metrics.webhooksWaiting.set(waiting);
    metrics.webhookBytes.set(bytes);
    if (dropped !== undefined) metrics.webhooksDropped.set(dropped);
  }

  return {
    start(): void {
      worker.start();
      expiringKeys.start();
      showing.start();
    },
    async stop(): Promise<void> {
      await Promise.all([worker.stop(), expiringKeys.stop(), showing.stop()]);
    },
  };
}

/** Deliveries that wait in the store, whichever gateway sends them. Unix ms. */
interface QueueFigures {
  /** When the delivery that is due longest was due; undefined if none waits. */
  firstDueMs: number | undefined;
  waiting: number;
  bytes: number;
  dropped: number;
}

/** Reads the figures of all primaries that answer; an idle store is not read again. */
function createQueueFigures(connection: Connection) {
  const watch = createWriteWatch({ late: true });
  const known = new WeakMap<Primary, QueueFigures>();

  const figuresOf = (primary: Primary): Promise<QueueFigures> =>
    primary.command(async (redis) => {
      const own = thawedPartitions(connection, primary);
      const looked = await watch.news(redis, own.join());
      const last = known.get(primary);
      if (!looked && last) return last;
      const lanes = own.flatMap((partition) => [
        webhookNames(partition).first,
        webhookNames(partition).retry,
      ]);
      const firsts = await many<string[], string>(redis, lanes, (pipe, name) =>
        pipe.zrange(name, "0", "0", "WITHSCORES"),
      );
      const totals = await many<(string | null)[], number>(redis, own, (pipe, partition) =>
        pipe.hmget(webhookNames(partition).totals, " waiting", " bytes", " dropped"),
      );
      const sum = (at: number): number => totals.reduce((all, values) => all + Number(values[at] ?? 0), 0);
      const dues = firsts.flatMap(([, score]) => (score === undefined ? [] : [Number(score)]));
      const firstDueMs = dues.length === 0 ? undefined : Math.min(...dues);
      const figures = { firstDueMs, waiting: sum(0), bytes: sum(1), dropped: sum(2) };
      known.set(primary, figures);
      looked?.();
      return figures;
    });

  return async () => {
    const all: QueueFigures[] = [];
    const primaries = connection.primaries();
    for (const primary of primaries)
      await figuresOf(primary).then(
        (figures) => all.push(figures),
        // The latest figures of one that does not answer: an outage ends no alarm.
        () => all.push(...[known.get(primary) ?? []].flat()),
      );
    const dues = all.flatMap(({ firstDueMs }) => firstDueMs ?? []);
    const sum = (field: "waiting" | "bytes" | "dropped"): number =>
      all.reduce((total, figures) => total + figures[field], 0);
    const firstDueMs = dues.length === 0 ? undefined : Math.min(...dues);
    // While a primary has not answered yet, the sum would rise by what was dropped there long ago.
    const isWhole = connection.known.facts !== undefined && all.length === primaries.length;
    const dropped = isWhole ? sum("dropped") : undefined;
    return { firstDueMs, waiting: sum("waiting"), bytes: sum("bytes"), dropped };
  };
}

const LOOK_EVERY_MS = 60_000;
/** Each may be told at ten endpoints. */
export const KEYS_AT_ONCE = 15;

/** Tells accounts, once a minute, of their keys that end soon. Every gateway looks; a script tells each key once. */
function createExpiringKeys(connection: Connection, log: Logger) {
  const dueLists = createDueLists(connection, listsOfKeys, ["expiring"]);

  async function look(signal: AbortSignal): Promise<void> {
    for (const partition of (await dueLists()).expiring) {
      let taken = KEYS_AT_ONCE;
      while (taken === KEYS_AT_ONCE && !signal.aborted)
        ({ taken } = await connection.of(partition).run(expiring, { partition, most: KEYS_AT_ONCE }));
    }
  }
  return repeated(look, {
    pauseMs: () => LOOK_EVERY_MS,
    failed: (error) => log.debug({ err: error }, "no look at keys that end"),
  });
}

const listsOfKeys = (partition: number) => [
  { list: "expiring" as const, name: partitionNames(partition).expiring, partition },
];
