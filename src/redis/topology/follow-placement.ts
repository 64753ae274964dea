import type { Logger } from "../../telemetry/log.ts";
import { inStoreWords } from "../reasons.ts";
import { jittered } from "../repeated-work.ts";
import { SLOTS } from "./cluster-slots.ts";
import type { PlacedPrimary, Placement, PlacementSource } from "./placement.ts";

const EVERY_MS = 1000;
/** While a primary is away, for as many questions as a failover needs. */
const EVERY_AWAY_MS = 250;
const QUESTIONS_WHILE_AWAY = 120;
/** However often somebody asks for one, questions are at least this far apart. */
const APART_MS = 100;

export const QUESTION_OUTCOMES = ["answered", "outdated", "unanswered"] as const;

/** Keeps a gateway with the primaries that the servers of its store name. */
export interface PlacementFollower {
  /** Asks now, or as soon as the present question is answered: a primary may have failed over. */
  ask(): void;
  placement(): Placement | undefined;
  /** Resolves once the answer to a look-up that began after now is in force, or has failed. */
  asked(): Promise<void>;
  close(): void;
}

/** Asks now and again. @param options.found called with each other placement @param options.isAway another may have taken its place */
export function followPlacement(options: {
  source: PlacementSource;
  found(placement: Placement): void;
  isAway(): boolean;
  asked(outcome: (typeof QUESTION_OUTCOMES)[number]): void;
  log: Logger;
}): PlacementFollower {
  const { source, found, isAway, asked, log } = options;
  const report = createReport(log);
  let current: Placement | undefined;
  let timer: NodeJS.Timeout | undefined;
  /** How many questions in a row were asked while a primary was away. */
  let whileAway = 0;
  let isAsking = false;
  let isWanted = false;
  let isClosed = false;
  let waiting: (() => void)[] = [];

  async function ask(): Promise<void> {
    isAsking = true;
    isWanted = false;
    const answered = waiting;
    waiting = [];
    try {
      const next = await source.find();
      if (!isClosed) take(next);
    } catch (error) {
      if (!isClosed) report.failed(inStoreWords(error), current);
      asked("unanswered");
    }
    isAsking = false;
    for (const resolve of answered) resolve();
    if (isClosed) return;
    whileAway = isAway() ? whileAway + 1 : 0;
    const isUrgent = whileAway > 0 && whileAway < QUESTIONS_WHILE_AWAY;
    askIn(isWanted ? APART_MS : jittered(isUrgent ? EVERY_AWAY_MS : EVERY_MS));
  }

  function askIn(delayMs: number): void {
    clearTimeout(timer);
    timer = setTimeout(() => void ask(), delayMs).unref();
  }

  function take(next: Placement): void {
    const change = current === undefined ? "newer" : compare(current, next);
    asked(change === "older" ? "outdated" : "answered");
    if (change === "older") {
      report.older(next);
      return;
    }
    report.answered();
    const what = current === undefined ? "were found" : "have changed";
    current = next;
    if (change === "same") return;
    log.info({ primaries: next.primaries.map(({ name }) => name) }, `the primaries of the store ${what}`);
    found(next);
  }

  function want(): void {
    if (isClosed || isWanted) return;
    isWanted = true;
    if (!isAsking) askIn(APART_MS);
  }

  void ask();
  return {
    ask: want,
    asked(): Promise<void> {
      if (isClosed) return Promise.resolve();
      const { promise, resolve } = Promise.withResolvers<void>();
      waiting.push(resolve);
      want();
      return promise;
    },
    placement: () => current,
    close(): void {
      isClosed = true;
      clearTimeout(timer);
      for (const resolve of waiting) resolve();
      source.close();
    },
  };
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
