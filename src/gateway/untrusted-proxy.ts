import type { Logger } from "../telemetry/log.ts";

const WARN_EVERY_MS = 3_600_000;

/**
 * Warns when a proxy in front of the gateway is not in `server.trust_proxy`: at once, then once an hour at most.
 * @param count counts each request that shows it
 */
export function createUntrustedProxyNotice(
  log: Logger,
  count: () => void,
  nowMs: () => number = () => performance.now(),
): (peer: string) => void {
  let warnedAtMs = Number.NEGATIVE_INFINITY;
  return (peer) => {
    count();
    if (nowMs() - warnedAtMs < WARN_EVERY_MS) return;
    warnedAtMs = nowMs();
    log.warn(
      { peer },
      "X-Forwarded-For comes from an address that is not in server.trust_proxy: all customers behind it count as one address",
    );
  };
}
