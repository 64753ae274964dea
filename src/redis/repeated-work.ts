import { randomUUID } from "node:crypto";
import { workLease } from "../scripts/gateways.ts";
import type { Run } from "../scripts/script-definition.ts";

const TICK_MS = 1000;
const earlyMs = (delayMs: number): number => (delayMs < TICK_MS ? 0 : TICK_MS / 2);

interface Tick {
  readonly runs: Set<() => void>;
  readonly timer: NodeJS.Timeout;
}
const due = new Map<number, Tick>();

/**
 * As setTimeout, but a delay of a second or more ends on a whole second of the process's clock, at most half a second early or late: an idle
 * process wakes once for all of its regular work. Decision 0020. @returns takes it back
 */
export function atTick(run: () => void, delayMs: number): () => void {
  if (earlyMs(delayMs) === 0) {
    const timer = setTimeout(run, delayMs).unref();
    return () => clearTimeout(timer);
  }
  const at = Math.round((performance.now() + delayMs) / TICK_MS);
  const { runs, timer } = due.get(at) ?? openTick(at);
  runs.add(run);
  return () => {
    if (!runs.delete(run) || runs.size > 0) return;
    clearTimeout(timer);
    due.delete(at);
  };
}

function openTick(at: number): Tick {
  const runs = new Set<() => void>();
  const end = (): void => {
    due.delete(at);
    for (const run of runs) run();
  };
  const tick = { runs, timer: setTimeout(end, at * TICK_MS - performance.now()).unref() };
  due.set(at, tick);
  return tick;
}

/** Never twice at a time. What it throws is logged at most. @param options.pauseMs from the end of a round to the next one, as `atTick` takes it */
export function repeated(
  round: (signal: AbortSignal) => Promise<unknown>,
  options: { pauseMs(): number; failed?(error: unknown): void },
) {
  const ending = new AbortController();
  const { signal } = ending;
  const { failed = () => undefined } = options;
  let cancel = (): void => undefined;
  let current: Promise<void> = Promise.resolve();

  function start(firstMs = options.pauseMs()): void {
    if (signal.aborted) return;
    cancel = atTick(() => {
      current = round(signal)
        .catch(failed)
        .then(() => start());
    }, firstMs);
  }

  return {
    signal,
    start,
    async stop(): Promise<void> {
      ending.abort();
      cancel();
      await current;
    },
  };
}

/**
 * Work on one primary in use after the other, again and again. A failure is no outage: the next round tries again, and calls of requests learn the
 * same. @param options.away for each that is not in use @returns ends it
 */
export function forEachPrimary<One extends { readonly breaker: { readonly isOpen: boolean } }>(
  primaries: () => readonly One[],
  work: (primary: One) => Promise<unknown>,
  { pauseMs = 1000, away }: { pauseMs?: number; away?(primary: One): void } = {},
): () => Promise<void> {
  const { start, stop } = repeated(
    async (signal) => {
      for (const primary of primaries()) {
        if (signal.aborted) return;
        if (primary.breaker.isOpen) away?.(primary);
        else await work(primary).catch(() => undefined);
      }
    },
    { pauseMs: () => pauseMs },
  );
  start();
  return stop;
}

/** Gateways that lose a server at one moment do not come back to it at one moment. @param share by how much it differs at most */
export const jittered = (delayMs: number, share = 0.25): number =>
  delayMs * (1 - share + 2 * share * Math.random());

/**
 * For work that comes every `intervalMs`, as `atTick` takes it: a lease ends when the next round may begin at the earliest.
 * @param name of the marker, which expires by itself @returns true for one gateway per interval
 */
export const takeLease = (
  { ofName }: { ofName(name: string): { run: Run } },
  name: string,
  intervalMs: number,
): Promise<boolean> =>
  ofName(name).run(workLease, { name, holder: randomUUID(), leaseMs: intervalMs - earlyMs(intervalMs) });
