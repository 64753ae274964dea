import { setTimeout as pause } from "node:timers/promises";
import { webhookNames } from "../records/names.ts";
import type { Connection } from "../redis/connection.ts";
import { createDueLists } from "../redis/due-lists.ts";
import type { Primary } from "../redis/primary.ts";
import { repeated } from "../redis/repeated-work.ts";
import {
  cleanDeliveries,
  type Lane,
  type LeasedDelivery,
  leaseDeliveries,
  settleDelivery,
} from "../scripts/webhooks.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { createMessages } from "./delivery-message.ts";
import type { SecretBox } from "./sealed-secrets.ts";
import type { Sender, SendResult } from "./sender.ts";

const LOOK_EVERY_MS = 500;
const CLEANED_AT_ONCE = 50;
const CLEANINGS_MAX = 20;
/** Bodies of one lease, so that no reply is large. */
const LEASED_AT_ONCE = 16;
/** A lease outlives its try by this much: time for the store's round trips. */
const LEASE_SLACK_MS = 5_000;
/** How often replicas are waited for once more. */
const CONFIRMED_AGAIN_AFTER_MS = 100;
/** Retries, and endpoints that failed last, have this share of the places beside those of first tries. */
const RETRY_SHARE = 0.25;
/** A first try that takes longer gives its place to others, up to as many as there are places. */
const PLACE_KEPT_MS = 1000;
const STOP_WITHIN_MS = 5000;
/** How often it is said that secrets cannot be opened. */
const UNOPENED_SAID_EVERY_MS = 60_000;
const KEPT_ANSWER_CHARS = 1000;
const LANES = ["first", "retry"] as const satisfies readonly Lane[];

export interface DeliverySettings {
  timeoutMs: number;
  retriesMs: readonly number[];
  disableAfterMs: number;
  keepMs: number;
  /** First tries that this process makes at a time. */
  inFlight: number;
  inFlightPerEndpoint: number;
}

interface WorkerOptions {
  connection: Connection;
  sender: Sender;
  box: SecretBox;
  settings(): DeliverySettings;
  metrics: Pick<Metrics, "webhookDeliveries">;
  log: Logger;
}

interface Lease {
  untilMs: number;
  /** The store's clock minus the monotonic one: receivers refuse a timestamp of a gateway whose own clock is wrong. */
  aheadMs: number;
  primary: Primary;
  /** The run of the primary that has answered it. */
  runId: string | undefined;
}

/** A lease gives each delivery to one gateway. First tries of endpoints that answer have places of their own. Decision 0074. */
export class DeliveryWorker {
  readonly #options: WorkerOptions;
  readonly #message: ReturnType<typeof createMessages>;
  readonly #due: () => Promise<Record<Lane | "clean", ReadonlySet<number>>>;
  readonly #underWay: Record<Lane | "overtime", Set<Promise<void>>> = {
    first: new Set(),
    retry: new Set(),
    overtime: new Set(),
  };
  /** Partitions that may have something due, in the order of their turns: none keeps the places of a lane for itself. */
  readonly #turns: Record<Lane, Set<number>> = { first: new Set(), retry: new Set() };
  readonly #leasing = new Map<number, Promise<void>>();
  /** Places that leases under way may fill. */
  readonly #reserved: Record<Lane, number> = { first: 0, retry: 0 };
  readonly #looking = repeated(() => this.look(), {
    pauseMs: () => LOOK_EVERY_MS,
    failed: (error) => this.#options.log.debug({ err: error }, "no look at due deliveries"),
  });
  #unopenedSaidMs = Number.NEGATIVE_INFINITY;
  #stopped = false;

  constructor(options: WorkerOptions) {
    this.#options = options;
    const { connection } = options;
    this.#message = createMessages(options.box);
    // A gateway that is idle does not ask for the time: its estimate of the store's clock is good enough to look.
    const { nowMs } = connection;
    this.#due = createDueLists(connection, listsOfDeliveries, ["first", "retry", "clean"], {
      nowMs,
      late: false,
    });
  }

  start(): void {
    this.#looking.start();
  }

  /** Takes on what is due now, as far as there are places, and forgets what is old. */
  async look(): Promise<void> {
    const due = await this.#due();
    for (const lane of LANES) {
      for (const partition of fromAnywhere(due[lane])) this.#turns[lane].add(partition);
    }
    this.#leaseInTurn();
    await Promise.all(this.#leasing.values());
    for (const partition of due.clean) await this.#clean(partition);
  }

  /** Resolves once nothing is under way, for tests and tools. */
  async idle(): Promise<void> {
    for (;;) {
      const { first, retry, overtime } = this.#underWay;
      const all = [...first, ...retry, ...overtime, ...this.#leasing.values()];
      if (all.length === 0) return;
      await Promise.all(all);
    }
  }

  /** Forgets what is older than it is kept, and what belonged to deleted endpoints. */
  async #clean(partition: number): Promise<void> {
    const { connection, settings, log } = this.#options;
    try {
      for (let round = 0; round < CLEANINGS_MAX && !this.#stopped; round++) {
        const call = { partition, keepMs: settings().keepMs, most: CLEANED_AT_ONCE };
        if (!(await connection.of(partition).run(cleanDeliveries, call)).isMore) break;
      }
    } catch (error) {
      log.debug({ err: error, partition }, "old deliveries were not forgotten");
    }
  }

  /** Tries under way have a moment to end. What has not is sent again by another gateway, once its lease is over. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#looking.stop();
    const timeout = Promise.withResolvers<void>();
    const timer = setTimeout(timeout.resolve, STOP_WITHIN_MS);
    await Promise.race([this.idle(), timeout.promise]);
    clearTimeout(timer);
    await this.#options.sender.close();
  }

  #places(lane: Lane): number {
    const { inFlight } = this.#options.settings();
    const all = lane === "first" ? inFlight : Math.ceil(inFlight * RETRY_SHARE);
    return Math.max(0, all - this.#underWay[lane].size - this.#reserved[lane]);
  }

  /** As long as there are places, leases what is due in the partitions whose turn it is, of each one call at a time. */
  #leaseInTurn(): void {
    for (const lane of LANES) {
      for (const partition of this.#turns[lane]) {
        if (this.#stopped || this.#places(lane) === 0) break;
        if (!this.#leasing.has(partition)) this.#lease(partition);
      }
    }
  }

  #lease(partition: number): void {
    const places = { first: this.#reserve("first", partition), retry: this.#reserve("retry", partition) };
    const work = this.#leaseUpTo(places, partition)
      .catch((error: unknown) =>
        this.#options.log.debug({ err: error, partition }, "no deliveries were leased"),
      )
      .finally(() => {
        for (const lane of LANES) this.#reserved[lane] -= places[lane];
        this.#leasing.delete(partition);
        this.#leaseInTurn();
      });
    this.#leasing.set(partition, work);
  }

  #reserve(lane: Lane, partition: number): number {
    const places = this.#turns[lane].has(partition) ? Math.min(this.#places(lane), LEASED_AT_ONCE) : 0;
    if (places > 0) this.#turns[lane].delete(partition);
    this.#reserved[lane] += places;
    return places;
  }

  async #leaseUpTo(places: Record<Lane, number>, partition: number): Promise<void> {
    const { connection, settings, box } = this.#options;
    const { timeoutMs, inFlightPerEndpoint } = settings();
    const leaseMs = timeoutMs + LEASE_SLACK_MS;
    const primary = connection.of(partition);
    const untilMs = performance.now() + leaseMs;
    const { nowMs, deliveries, unopened } = await primary.run(leaseDeliveries, {
      partition,
      firstMax: places.first,
      retryMax: places.retry,
      perEndpoint: inFlightPerEndpoint,
      leaseMs,
      keys: box.prefixes,
    });
    if (unopened > 0) this.#sayUnopened(unopened);
    const aheadMs = nowMs - performance.now();
    const lease = { untilMs, aheadMs, primary, runId: primary.confirmation?.runId() };
    for (const delivery of deliveries) this.#begin(delivery, lease);
    for (const lane of LANES) {
      const leased = deliveries.filter((one) => one.lane === lane).length;
      // There may be more.
      if (leased > 0 && leased === places[lane]) this.#turns[lane].add(partition);
    }
  }

  /** They stay for gateways that can open them; if there is none, the alarm for overdue messages comes. */
  #sayUnopened(endpoints: number): void {
    if (performance.now() < this.#unopenedSaidMs + UNOPENED_SAID_EVERY_MS) return;
    this.#unopenedSaidMs = performance.now();
    this.#options.log.error(
      { endpoints },
      "WEBHOOK_SECRET_KEY of this gateway does not open the secrets of webhook endpoints; their messages are left for other gateways",
    );
  }

  #begin(delivery: LeasedDelivery, lease: Lease): void {
    const { [delivery.lane]: underWay, overtime } = this.#underWay;
    const work = this.#deliver(delivery, lease)
      .catch((error: unknown) => this.#options.log.debug({ err: error }, "a delivery was not settled"))
      .finally(() => {
        clearTimeout(timer);
        underWay.delete(work);
        overtime.delete(work);
        this.#leaseInTurn();
      });
    underWay.add(work);
    const timer =
      delivery.lane === "first" ? setTimeout(() => this.#givePlace(work), PLACE_KEPT_MS) : undefined;
  }

  #givePlace(work: Promise<void>): void {
    const { first, overtime } = this.#underWay;
    if (overtime.size >= this.#options.settings().inFlight) return;
    first.delete(work);
    overtime.add(work);
    this.#leaseInTurn();
  }

  async #deliver(delivery: LeasedDelivery, lease: Lease): Promise<void> {
    if (!(await this.#isConfirmed(delivery, lease)) || !this.#endsWithin(lease)) return;
    const startedMs = performance.now();
    const result = await this.#send(delivery, startedMs + lease.aheadMs);
    if (this.#stopped && result.status === undefined) return;
    await this.#settle(delivery, result, performance.now() - startedMs);
  }

  /** False if the reply came late, this process stood still, or tries may take longer: another gateway may have it before this try would end. */
  #endsWithin({ untilMs }: Lease): boolean {
    return performance.now() + this.#options.settings().timeoutMs + LEASE_SLACK_MS / 2 <= untilMs;
  }

  /** True once replicas have the event: nobody is told of a task whose charge a failover can lose. Decision 0043. */
  async #isConfirmed(delivery: LeasedDelivery, lease: Lease): Promise<boolean> {
    const { confirmation } = lease.primary;
    // Replicas that still lack it at the next lease are away for longer than any message waits.
    if (!confirmation || delivery.lease > 1) return true;
    while (!this.#stopped && this.#endsWithin(lease)) {
      const confirmed = await confirmation.confirmed();
      if (confirmation.runId() !== lease.runId) return false;
      if (confirmed === "replicas") return true;
      await pause(CONFIRMED_AGAIN_AFTER_MS);
    }
    return false;
  }

  async #send(delivery: LeasedDelivery, nowMs: number): Promise<SendResult> {
    const { sender, log } = this.#options;
    try {
      return await sender.send(this.#message(delivery, nowMs));
    } catch (error) {
      log.error({ err: error, endpoint: delivery.endpointId }, "a webhook could not be signed");
      return { outcome: "failed", reason: "it could not be signed" };
    }
  }

  async #settle(delivery: LeasedDelivery, result: SendResult, tookMs: number): Promise<void> {
    const { connection, settings, metrics, log } = this.#options;
    const { retriesMs, inFlightPerEndpoint, disableAfterMs } = settings();
    const { partition, endpointId, tries } = delivery;
    const retryAfterMs = result.retryAfterS === undefined ? undefined : result.retryAfterS * 1000;
    const { outcome, moreIsDue } = await connection.of(partition).run(settleDelivery, {
      delivery,
      result: result.outcome,
      retryMs: nextTryAfterMs(tries + 1, retriesMs, retryAfterMs),
      status: result.status,
      answer: (result.answer || result.reason || "").slice(0, KEPT_ANSWER_CHARS),
      tookMs,
      perEndpoint: inFlightPerEndpoint,
      disableMs: disableAfterMs,
    });
    metrics.webhookDeliveries.inc({ outcome });
    if (outcome === "disabled") log.warn({ endpoint: endpointId }, "a webhook endpoint was disabled");
    if (!moreIsDue) return;
    this.#turns[delivery.lane].add(partition);
    this.#turns[result.outcome === "delivered" ? "first" : "retry"].add(partition);
    this.#leaseInTurn();
  }
}

/** Gateways that look at a moment begin at other partitions, so that they do not contend for one. */
function fromAnywhere(partitions: ReadonlySet<number>): number[] {
  const all = [...partitions];
  const first = Math.floor(Math.random() * all.length);
  return [...all.slice(first), ...all.slice(0, first)];
}

const listsOfDeliveries = (partition: number) =>
  (["first", "retry", "clean"] as const).map((list) => ({
    list,
    name: webhookNames(partition)[list],
    partition,
  }));

const JITTER_SHARE = 0.1;

/** Ms; undefined after the last one. @param failed this one included @param retriesMs per failed try @param retryAfterMs by the receiver */
export function nextTryAfterMs(
  failed: number,
  retriesMs: readonly number[],
  retryAfterMs = 0,
): number | undefined {
  const scheduledMs = retriesMs[failed - 1];
  if (scheduledMs === undefined) return undefined;
  return Math.ceil(Math.max(scheduledMs, retryAfterMs) * (1 + JITTER_SHARE * Math.random()));
}
