import { jittered } from "../redis/repeated-work.ts";
import type { OpenRequest } from "../scripts/tasks.ts";
import type { PollOutcome } from "../upstream/poll-request.ts";
import { SWEEP_POLLS_MAX } from "../upstream/upstream.ts";
import { isAnswered } from "./task-verdict.ts";

/** Polls of one upstream that wait; more are left to other gateways and later rounds. */
const WAITING_MAX = 200;
/** Upstreams that are polled at a time: the present one, and those that have unfinished tasks. */
const LANES_MAX = 16;
/** A lane without work for this long is removed. */
const LANE_KEPT_MS = 10 * 60_000;
/** After as long without a poll, the upstream is polled anew. Each task is polled more often. */
const POLLED_APART_MAX_MS = 10 * 60_000;
const LIMITED_PAUSE_MIN_SECONDS = 10;
const LIMITED_PAUSE_MAX_SECONDS = 30;
/** The pause after a failed poll; it doubles with each failure in a row. */
const FAILED_PAUSE_MIN_MS = 250;
const FAILED_PAUSE_MAX_MS = 10_000;

/** How much pauses and intervals differ, so that work that started together spreads over time. */
export const JITTER_SHARE = 0.1;

interface Lane {
  queue: PacedQueue<OpenRequest>;
  pending: number;
  /** Polls in a row that the upstream did not answer. */
  failures: number;
  /** When the first of the unanswered polls in a row failed; undefined after an answered one. */
  unansweredSinceMs: number | undefined;
  pausedUntilMs: number;
  usedAtMs: number;
  /** When the first and the latest of the polls ended between which there was no long pause. */
  polled: { sinceMs: number; atMs: number } | undefined;
}

interface LaneOptions {
  perSecond(): number;
  /** Of a task; without a tag, the present one. */
  upstreamName(tag: string | undefined): string;
  /** Must not throw; calls `ended` first. */
  poll(request: OpenRequest, ended: (outcome: PollOutcome) => void): Promise<void>;
}

/** A paced queue per upstream: one that fails does not delay the tasks of another. */
export function createSweepLanes(options: LaneOptions) {
  const { upstreamName } = options;
  const lanes = new Map<string, Lane>();

  function laneOf(tag: string | undefined): Lane | undefined {
    const name = upstreamName(tag);
    const lane = lanes.get(name) ?? open(name);
    if (lane) lane.usedAtMs = performance.now();
    return lane;
  }

  function open(name: string): Lane | undefined {
    const nowMs = performance.now();
    for (const [other, { pending, usedAtMs }] of lanes) {
      if (pending === 0 && nowMs - usedAtMs >= LANE_KEPT_MS) lanes.delete(other);
    }
    if (lanes.size >= LANES_MAX) return undefined;
    const lane = newLane(options, nowMs);
    lanes.set(name, lane);
    return lane;
  }

  return {
    /** The room of the fullest lane, since a task of a full one would wait for the end of its lease; failing lanes do not count. */
    room(): number {
      laneOf(undefined);
      const all = [...lanes.values()];
      const moving = all.filter((lane) => !isStalled(lane));
      if (moving.length === 0) return Math.max(0, ...all.map(({ queue }) => queue.room()));
      return Math.min(...moving.map(({ queue }) => queue.room()));
    },
    /** For how long the upstream of this tag has answered nothing about any task, ms. */
    silentMs(tag: string | undefined): number {
      return silentMs(lanes.get(upstreamName(tag)));
    },
    /** For how long the upstream of this tag has been polled without a long pause, ms: by a process that was not away. */
    polledMs(tag: string | undefined): number {
      const polled = recentPolls(lanes.get(upstreamName(tag)));
      return polled ? performance.now() - polled.sinceMs : 0;
    },
    /** True when no upstream answers, and one has not for so long. */
    isSilent(ms: number): boolean {
      const all = [...lanes.values()];
      return all.every(isStalled) && all.some((lane) => silentMs(lane) >= ms);
    },
    /** @returns false when there is no room for it */
    add(request: OpenRequest): boolean {
      const lane = laneOf(request.upstream);
      if (!lane || lane.queue.room() === 0) return false;
      lane.pending++;
      lane.queue.add(request);
      return true;
    },
    async idle(): Promise<void> {
      await Promise.all([...lanes.values()].map(({ queue }) => queue.idle()));
    },
    stop(): void {
      for (const { queue } of lanes.values()) queue.stop();
    },
  };
}

function newLane({ perSecond, poll }: LaneOptions, usedAtMs: number): Lane {
  const lane: Lane = {
    queue: createPacedQueue<OpenRequest>({
      concurrency: SWEEP_POLLS_MAX,
      perSecond,
      entriesMax: WAITING_MAX,
      async work(request) {
        await poll(request, (outcome) => pace(lane, outcome));
        lane.pending--;
      },
    }),
    pending: 0,
    failures: 0,
    unansweredSinceMs: undefined,
    pausedUntilMs: 0,
    usedAtMs,
    polled: undefined,
  };
  return lane;
}

const isStalled = ({ failures, pausedUntilMs }: Lane): boolean =>
  failures > 0 || performance.now() < pausedUntilMs;

const recentPolls = (lane: Lane | undefined): Lane["polled"] =>
  lane?.polled && performance.now() - lane.polled.atMs < POLLED_APART_MAX_MS ? lane.polled : undefined;

const silentMs = (lane: Lane | undefined): number =>
  lane?.unansweredSinceMs === undefined || !recentPolls(lane)
    ? 0
    : performance.now() - lane.unansweredSinceMs;

/** Pauses a lane whose poll was not answered, or was rate limited. */
function pace(lane: Lane, outcome: PollOutcome): void {
  // A poll without an address was not sent, so it says nothing of the upstream.
  const hasFailed =
    !isAnswered(outcome) && outcome.outcome !== "rate_limited" && outcome.outcome !== "unroutable";
  const isUnsent = outcome.outcome === "overloaded" || outcome.outcome === "unroutable";
  const nowMs = performance.now();
  const recent = recentPolls(lane);
  if (isAnswered(outcome) || !recent) lane.unansweredSinceMs = undefined;
  if (!isAnswered(outcome) && !isUnsent) lane.unansweredSinceMs ??= nowMs;
  lane.polled = { sinceMs: recent?.sinceMs ?? nowMs, atMs: nowMs };
  lane.failures = hasFailed ? lane.failures + 1 : 0;
  let pauseMs = 0;
  if (hasFailed) {
    const failedPauseMs = Math.min(FAILED_PAUSE_MAX_MS, FAILED_PAUSE_MIN_MS * 2 ** (lane.failures - 1));
    pauseMs = jittered(failedPauseMs, JITTER_SHARE);
  }
  if (outcome.outcome === "rate_limited") {
    const askedSeconds = outcome.retryAfterSeconds ?? 0;
    pauseMs = 1000 * Math.min(LIMITED_PAUSE_MAX_SECONDS, Math.max(LIMITED_PAUSE_MIN_SECONDS, askedSeconds));
  }
  if (pauseMs === 0) return;
  lane.pausedUntilMs = Math.max(lane.pausedUntilMs, performance.now() + pauseMs);
  lane.queue.pause(pauseMs);
}

/** All items that are due within this time start together, since each timer costs a wake-up. */
const WAIT_MIN_MS = 100;

/**
 * At most `concurrency` at a time, `perSecond` started in a second, `entriesMax` waiting. Starts left over from a second may be caught up on.
 * @param options.work must not throw
 */
export function createPacedQueue<Item>(options: {
  concurrency: number;
  perSecond: () => number;
  entriesMax: number;
  work(item: Item): Promise<void>;
}) {
  const waiting: Item[] = [];
  let running = 0;
  let nextStartMs = 0;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  let idleWaiters: (() => void)[] = [];

  function advance(): void {
    while (running < options.concurrency && waiting.length > 0) {
      const waitMs = nextStartMs - performance.now();
      if (waitMs > 0) {
        timer ??= setTimeout(
          () => {
            timer = undefined;
            advance();
          },
          Math.max(WAIT_MIN_MS, Math.ceil(waitMs)),
        );
        return;
      }
      nextStartMs = Math.max(nextStartMs, performance.now() - 1000) + 1000 / options.perSecond();
      start(waiting.shift()!);
    }
    if (running > 0 || waiting.length > 0) return;
    for (const resolve of idleWaiters) resolve();
    idleWaiters = [];
  }

  function start(item: Item): void {
    running++;
    void options.work(item).finally(() => {
      running--;
      advance();
    });
  }

  return {
    room: (): number => (stopped ? 0 : options.entriesMax - waiting.length),
    add(item: Item): void {
      waiting.push(item);
      advance();
    },
    pause(ms: number): void {
      nextStartMs = Math.max(nextStartMs, performance.now() + ms);
      // A timer for the very end of the pause: later, all delayed items would start at once.
      clearTimeout(timer);
      timer = undefined;
      advance();
    },
    idle: (): Promise<void> =>
      new Promise((resolve) => {
        idleWaiters.push(resolve);
        advance();
      }),
    /** Drops all waiting items; `idle` then waits for those under way. */
    stop(): void {
      stopped = true;
      clearTimeout(timer);
      waiting.length = 0;
      advance();
    },
  };
}

type PacedQueue<Item> = ReturnType<typeof createPacedQueue<Item>>;
