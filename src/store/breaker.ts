import type { Logger } from "../telemetry/log.ts";
import { inStoreWords } from "./reasons.ts";

const PROBE_MIN_MS = 50;
const PROBE_MAX_MS = 1000;
/** After so many failed probes in a row the connection itself is suspect (a black hole never closes). */
const PROBES_BEFORE_RECONNECT = 2;

/** The reason that is no reason: the store was not asked yet. */
export const STARTING = "starting";

export interface Breaker {
  /** While open no request waits for the store. */
  isOpen(): boolean;
  /** A call failed in a way that says the store may be away: opens, and probes in the background. */
  trip(why: string): void;
  /** Resolves once the breaker has closed. */
  closed(): Promise<void>;
  stop(): void;
}

/**
 * The breaker in front of the store: one failure opens it, one successful probe closes it, so a hiccup costs one
 * probe's time and an outage costs each request nothing.
 * @param probe writes to the store, finishes what was left unsettled, and throws while the store is unusable
 * @param reconnect drops the connection for a new one
 */
export function createBreaker(options: {
  probe(): Promise<void>;
  reconnect(): void;
  changed(open: boolean): void;
  log: Logger;
}): Breaker {
  const { probe, reconnect, changed, log } = options;
  let open = false;
  let stopped = false;
  let timer: NodeJS.Timeout | undefined;
  let waiting: (() => void)[] = [];
  /** What this outage's log has said of it. */
  const said = new Set<string>();

  const attempt = async (failures: number): Promise<void> => {
    try {
      await probe();
    } catch (error) {
      if (stopped) return;
      const why = inStoreWords(error);
      if (failures % 20 === 0 || !said.has(why)) {
        said.add(why);
        log.error({ why }, "the store is unusable; see `tollgate doctor`");
      }
      if ((failures + 1) % PROBES_BEFORE_RECONNECT === 0) reconnect();
      const waitMs = Math.min(PROBE_MAX_MS, PROBE_MIN_MS * 2 ** Math.min(failures, 10));
      timer = setTimeout(() => void attempt(failures + 1), waitMs).unref();
      return;
    }
    if (stopped) return;
    open = false;
    said.clear();
    changed(false);
    log.info("the store is usable");
    for (const resolve of waiting) resolve();
    waiting = [];
  };

  return {
    isOpen: () => open,
    trip(why) {
      if (open || stopped) return;
      open = true;
      changed(true);
      if (why === STARTING) log.debug("connecting to the store");
      else log.warn({ why }, "the store does not answer as it should; requests no longer wait for it");
      void attempt(0);
    },
    closed: () => (open ? new Promise((resolve) => waiting.push(resolve)) : Promise.resolve()),
    stop() {
      stopped = true;
      clearTimeout(timer);
    },
  };
}
