import { randomUUID } from "node:crypto";
import type { Run } from "../scripts/script-definition.ts";
import { turn } from "../scripts/turn.ts";

/** Never twice at a time. What it throws is logged at most. @param options.pauseMs from the end of a round to the next one */
export function repeated(
  round: (signal: AbortSignal) => Promise<unknown>,
  options: { pauseMs(): number; failed(error: unknown): void },
) {
  const ending = new AbortController();
  const { signal } = ending;
  let timer: NodeJS.Timeout | undefined;
  let current: Promise<void> = Promise.resolve();

  function start(firstMs = options.pauseMs()): void {
    if (signal.aborted) return;
    timer = setTimeout(() => {
      current = round(signal)
        .catch(options.failed)
        .then(() => start());
    }, firstMs).unref();
  }

  return {
    signal,
    start,
    async stop(): Promise<void> {
      ending.abort();
      clearTimeout(timer);
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
): () => void {
  const { start, stop } = repeated(
    async (signal) => {
      for (const primary of primaries()) {
        if (signal.aborted) return;
        if (primary.breaker.isOpen) away?.(primary);
        else await work(primary).catch(() => undefined);
      }
    },
    { pauseMs: () => pauseMs, failed: () => undefined },
  );
  start();
  return () => void stop();
}

/** Gateways that lose a server at one moment do not come back to it at one moment. @param share by how much it differs at most */
export const jittered = (delayMs: number, share = 0.25): number =>
  delayMs * (1 - share + 2 * share * Math.random());

/** @param name of the marker, which expires by itself @returns true for one gateway per interval */
export const takeTurn = (
  { ofName }: { ofName(name: string): { run: Run } },
  name: string,
  intervalMs: number,
): Promise<boolean> => ofName(name).run(turn, { name, holder: randomUUID(), turnMs: intervalMs });
