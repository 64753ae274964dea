import type { Logger } from "../telemetry/log.ts";
import { jittered } from "./jitter.ts";

const PROBE_MIN_MS = 50;
const PROBE_MAX_MS = 1000;
/** After this many failed probes in a row the connection is replaced: one whose packets are dropped never closes. */
const PROBES_BEFORE_RECONNECT = 2;

/** Initial open state, before the first probe. */
export const STARTING = "starting";

export type Breaker = ReturnType<typeof createBreaker>;

/**
 * The breaker in front of the store: one failure opens it, one successful probe closes it, so a hiccup costs one
 * probe's time and an outage costs each request nothing.
 * @param options.probe writes to the store, sends the settlements that wait, and throws while the store is unusable
 * @param options.reconnect replaces the connection
 * @param options.words says in the log why a probe has failed
 */
export function createBreaker(options: {
  probe(): Promise<void>;
  reconnect(): void;
  changed(open: boolean): void;
  words(error: unknown): string;
  log: Logger;
}) {
  const { probe, reconnect, changed, words, log } = options;
  let open = false;
  let stopped = false;
  let timer: NodeJS.Timeout | undefined;
  let waiting: (() => void)[] = [];
  /** Reasons that were logged in this outage. */
  const logged = new Set<string>();

  const attempt = async (failures: number): Promise<void> => {
    try {
      await probe();
    } catch (error) {
      if (stopped) return;
      const why = words(error);
      if (failures % 20 === 0 || !logged.has(why)) {
        logged.add(why);
        log.error({ why }, "the store is unusable; see `tollgate doctor`");
      }
      if ((failures + 1) % PROBES_BEFORE_RECONNECT === 0) reconnect();
      const waitMs = Math.min(PROBE_MAX_MS, PROBE_MIN_MS * 2 ** Math.min(failures, 10));
      timer = setTimeout(() => void attempt(failures + 1), jittered(waitMs)).unref();
      return;
    }
    if (stopped) return;
    open = false;
    logged.clear();
    changed(false);
    log.info("the store is usable");
    resolveWaiting();
  };

  function resolveWaiting(): void {
    for (const resolve of waiting) resolve();
    waiting = [];
  }

  function stop(): void {
    stopped = true;
    clearTimeout(timer);
  }

  return {
    /** While open no request waits for the store. */
    isOpen: (): boolean => open,
    /** A call failed in a way that says the store may be away: opens, and probes in the background. */
    trip(why: string): void {
      if (open || stopped) return;
      open = true;
      changed(true);
      if (why === STARTING) log.debug("connecting to the store");
      else log.warn({ why }, "the store does not answer as it should; requests no longer wait for it");
      void attempt(0);
    },
    /** Resolves once the breaker has closed, or is open for good. */
    closed: (): Promise<void> => (open ? new Promise((resolve) => waiting.push(resolve)) : Promise.resolve()),
    /** Probes no more. */
    stop,
    /** Stays open for good. */
    openForGood(): void {
      stop();
      open = true;
      resolveWaiting();
    },
  };
}
