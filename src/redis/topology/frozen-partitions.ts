import type { Redis } from "ioredis";
import { GatewayError } from "../../domain/errors.ts";
import { META, partitionNames, partitionOfName } from "../../records/names.ts";
import type { Logger } from "../../telemetry/log.ts";
import type { Metrics } from "../../telemetry/metrics.ts";
import type { Connection } from "../connection.ts";
import type { Primary } from "../primary.ts";
import { repeated } from "../repeated-work.ts";
import { isOfSlot } from "../script-errors.ts";
import { slotOf } from "./cluster-slots.ts";

/** How often the list in `tg:meta` is read, and for how long a partition is left alone after Redis has refused it. */
const LOOK_EVERY_MS = 1000;
const RETRY_AFTER_SECONDS = 5;

interface FrozenOptions {
  isClustered(): boolean;
  /** Of the store; 0 while that is not known. */
  partitions(): number;
  /** Reads what `tg:meta` lists. @throws while that cannot be read */
  list(): Promise<readonly number[]>;
  /** Called each second while any partition is left alone: it may be on another primary by now. */
  findPrimaries(): void;
  released(): void;
  log: Logger;
  metrics: Metrics;
}

/**
 * Partitions of a cluster that this process leaves alone: those frozen in `tg:meta`, read each second, and for a second those that Redis
 * has refused. Scripts do not depend on it (lua/include/frozen.lua). Accounts get 503, settlements wait. Decision 0042.
 */
export class FrozenPartitions {
  /** No partition is left alone. A field, since each call reads it. */
  isEmpty = true;
  readonly #options: FrozenOptions;
  #listed: ReadonlySet<number> = new Set();
  /** With the time at which Redis refused them, monotonic ms. */
  readonly #refused = new Map<number, number>();
  readonly #looking = repeated(() => this.#lookRegularly(), { pauseMs: () => LOOK_EVERY_MS });

  constructor(options: FrozenOptions) {
    this.#options = options;
    this.#looking.start();
  }

  readonly has = (partition: number): boolean => this.#listed.has(partition) || this.#refused.has(partition);

  hasName(name: string): boolean {
    const partition = partitionOfName(name);
    return partition !== undefined && this.has(partition);
  }

  /** @returns whether the partition is to be left alone; the primary as such is usable then */
  refuses(name: string, error: unknown): boolean {
    const partition = isOfSlot(error) ? partitionOfName(name) : undefined;
    if (partition === undefined) return false;
    this.#refused.set(partition, performance.now());
    this.#changed();
    return true;
  }

  /** As `refuses`, of a read of several partitions: Redis names the slot. */
  refusesRead(error: unknown): void {
    const [, slot] = (error instanceof Error && /^(?:ASK|MOVED) (\d+) /.exec(error.message)) || [];
    if (slot === undefined) return;
    for (let partition = 0; partition < this.#options.partitions(); partition++) {
      const { ledger } = partitionNames(partition);
      if (slotOf(ledger) === Number(slot)) this.refuses(ledger, error);
    }
  }

  /** Reads the list again. @throws what `list` throws; what was known stays then */
  async look(): Promise<void> {
    const next = new Set(await this.#options.list());
    this.#report(next);
    this.#listed = next;
    this.#changed();
  }

  stop(): void {
    void this.#looking.stop();
  }

  async #lookRegularly(): Promise<void> {
    const { isClustered, findPrimaries, released } = this.#options;
    if (!isClustered()) return;
    const before = new Set([...this.#listed, ...this.#refused.keys()]);
    const sinceMs = performance.now() - LOOK_EVERY_MS;
    for (const [partition, atMs] of this.#refused) if (atMs < sinceMs) this.#refused.delete(partition);
    this.#changed();
    await this.look().catch(() => undefined);
    if (!this.isEmpty) findPrimaries();
    if ([...before].some((partition) => !this.has(partition))) released();
  }

  #changed(): void {
    this.isEmpty = this.#listed.size === 0 && this.#refused.size === 0;
  }

  #report(next: ReadonlySet<number>): void {
    const { log, metrics } = this.#options;
    const added = [...next.difference(this.#listed)];
    const thawed = [...this.#listed.difference(next)];
    if (added.length > 0) log.warn({ partitions: added }, "partitions are frozen; their accounts get 503");
    if (thawed.length > 0) log.info({ partitions: thawed }, "partitions are not frozen any more");
    metrics.partitionsFrozen.set(next.size);
    // Until it is known where they are now.
    for (const partition of thawed) this.#refused.set(partition, performance.now());
  }
}

export const frozenError = (cause?: unknown): GatewayError =>
  new GatewayError("store_unavailable", "store: the partition is frozen or on its way to another node", {
    cause,
    text: "This account is under maintenance; retry shortly",
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });

/** Before the number of each frozen partition in `tg:meta`; the value is since when, Unix ms. */
const PREFIX = "frozen:";

export const frozenField = (partition: number): string => `${PREFIX}${partition}`;

/** The partitions that operators have frozen, each with since when (Unix ms). @param redis has `tg:meta` */
export async function listFrozen(redis: Redis): Promise<Map<number, number>> {
  const fields = Object.entries(await redis.hgetall(META));
  return new Map(
    fields.flatMap(([field, sinceMs]) =>
      field.startsWith(PREFIX) ? [[Number(field.slice(PREFIX.length)), Number(sinceMs)]] : [],
    ),
  );
}

export const thawedPartitions = (connection: Connection, primary: Primary): number[] =>
  Array.from({ length: connection.known.facts?.partitions ?? 0 }, (_, partition) => partition).filter(
    (partition) => connection.of(partition) === primary && !connection.isFrozen(partition),
  );

/** Usable primaries with their partitions; frozen partitions are left out. */
export function usablePrimaries(connection: Connection): { primary: Primary; partitions: number[] }[] {
  return connection.primaries().flatMap((primary) => {
    const partitions = primary.breaker.isOpen ? [] : thawedPartitions(connection, primary);
    return partitions.length === 0 ? [] : [{ primary, partitions }];
  });
}
