import type { Logger } from "../../telemetry/log.ts";
import { inStoreWords } from "../reasons.ts";
import { jittered } from "../repeated-work.ts";
import { SLOTS } from "./cluster-slots.ts";
import type { PlacedPrimary, Placement, PlacementSource } from "./placement.ts";

const EVERY_MS = 1000;
/** While a primary is away, for as many polls as a failover needs. */
const EVERY_AWAY_MS = 250;
const POLLS_WHILE_AWAY = 120;
/** However often somebody asks for one, polls are at least this far apart. */
const APART_MS = 100;

export const POLL_OUTCOMES = ["answered", "outdated", "unanswered"] as const;

interface FollowOptions {
  source: PlacementSource;
  /** Called with each other placement. */
  found(placement: Placement): void;
  /** True while another may have taken a primary's place. */
  isAway(): boolean;
  counted(outcome: (typeof POLL_OUTCOMES)[number]): void;
  log: Logger;
}

/** Keeps a gateway with the primaries that the servers of its store name: polls them now and again. */
export class PlacementFollower {
  readonly #options: FollowOptions;
  readonly #report: ReturnType<typeof createReport>;
  #current: Placement | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** How many polls in a row were made while a primary was away. */
  #whileAway = 0;
  #isPolling = false;
  #isWanted = false;
  #isClosed = false;
  #waiting: (() => void)[] = [];

  constructor(options: FollowOptions) {
    this.#options = options;
    this.#report = createReport(options.log);
    void this.#poll();
  }

  /** Polls now, or as soon as the present poll is answered: a primary may have failed over. */
  readonly poll = (): void => {
    if (this.#isClosed || this.#isWanted) return;
    this.#isWanted = true;
    if (!this.#isPolling) this.#pollIn(APART_MS);
  };

  /** Resolves once the answer to a look-up that began after now is in force, or has failed. */
  polled(): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    this.poll();
    return promise;
  }

  placement(): Placement | undefined {
    return this.#current;
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    for (const resolve of this.#waiting) resolve();
    this.#options.source.close();
  }

  async #poll(): Promise<void> {
    const { source, isAway, counted } = this.#options;
    this.#isPolling = true;
    this.#isWanted = false;
    const answered = this.#waiting;
    this.#waiting = [];
    try {
      const next = await source.find();
      if (!this.#isClosed) this.#take(next);
    } catch (error) {
      if (!this.#isClosed) this.#report.failed(inStoreWords(error), this.#current);
      counted("unanswered");
    }
    this.#isPolling = false;
    for (const resolve of answered) resolve();
    if (this.#isClosed) return;
    this.#whileAway = isAway() ? this.#whileAway + 1 : 0;
    const isUrgent = this.#whileAway > 0 && this.#whileAway < POLLS_WHILE_AWAY;
    this.#pollIn(this.#isWanted ? APART_MS : jittered(isUrgent ? EVERY_AWAY_MS : EVERY_MS));
  }

  #pollIn(delayMs: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#poll(), delayMs).unref();
  }

  #take(next: Placement): void {
    const { found, counted, log } = this.#options;
    const change = this.#current === undefined ? "newer" : compare(this.#current, next);
    counted(change === "older" ? "outdated" : "answered");
    if (change === "older") {
      this.#report.older(next);
      return;
    }
    this.#report.answered();
    const what = this.#current === undefined ? "were found" : "have changed";
    this.#current = next;
    if (change === "same") return;
    log.info({ primaries: next.primaries.map(({ name }) => name) }, `the primaries of the store ${what}`);
    found(next);
  }
}

/** `older`: of an earlier epoch for a slot. Who says so has not heard of a failover, or is cut off with the former primary. */
function compare(current: Placement, next: Placement): "same" | "newer" | "older" {
  let change: "same" | "newer" = "same";
  for (let slot = 0; slot < SLOTS; slot++) {
    const before = current.ofSlot(slot);
    const after = next.ofSlot(slot);
    if (before && after && after.epoch < before.epoch) return "older";
    if (before?.name !== after?.name) change = "newer";
  }
  return change;
}

/** Logs why no answer counts: each reason once, and again every minute or so while it lasts. */
function createReport(log: Logger) {
  const AGAIN_AFTER_MS = 60_000;
  const loggedMs = new Map<string, number>();
  const isDue = (why: string): boolean => {
    const nowMs = performance.now();
    if (nowMs - (loggedMs.get(why) ?? Number.NEGATIVE_INFINITY) < AGAIN_AFTER_MS) return false;
    if (loggedMs.size >= 100) loggedMs.clear();
    loggedMs.set(why, nowMs);
    return true;
  };

  return {
    answered: (): void => loggedMs.clear(),
    failed(why: string, current: Placement | undefined): void {
      if (!isDue(why)) return;
      if (current === undefined) log.error({ why }, "the store is unusable; see `tollgate doctor`");
      else log.warn({ why }, "nobody says where the primaries are; the gateway stays with those it knows");
    },
    older({ primaries }: Placement): void {
      const named = primaries.map(({ name, epoch }: PlacedPrimary) => `${name} (epoch ${epoch})`).join(", ");
      if (isDue(named))
        log.warn(
          { named },
          "an answer of an earlier epoch does not count; if the Sentinels were set up anew, restart the gateways",
        );
    },
  };
}
