import { Counter, Gauge, type Registry } from "prom-client";
import { dropped } from "./line-writer.ts";

/** Below this share of the window an admission counts as near its limit. */
const NEAR_SHARE = 0.2;

/**
 * Counts admissions that left little.
 * @returns `admitted` takes what ADMIT has answered
 */
export function createNearLimit(registers: Registry[]) {
  const nearLimit = new Counter({
    name: "tollgate_admissions_near_limit_total",
    help: "Admissions that left less than 20 % of the window, or took the last slot, by tier and limit.",
    labelNames: ["tier", "limit"],
    registers,
  });
  return {
    admitted(
      tier: string,
      left: { rateLimit: number; remaining: number; maxConcurrent: number; active: number },
    ): void {
      // Zeros are counted as well, so that both series of a tier are there from its first admission on.
      nearLimit.inc({ tier, limit: "window" }, left.remaining < left.rateLimit * NEAR_SHARE ? 1 : 0);
      nearLimit.inc({ tier, limit: "slots" }, left.active >= left.maxConcurrent ? 1 : 0);
    },
  };
}

/** What the connections of the public port hold now, and how often an address had to rest. */
export interface ConnectionCounts {
  open: number;
  /** Requests that were read and have not begun. */
  waiting: number;
  /** Of answers that clients have not taken yet. */
  unreadBytes: number;
  /** Since the start. */
  rests: number;
}

/** @returns `from` says who counts */
export function createConnectionMetrics(registers: Registry[]) {
  let counts = (): ConnectionCounts => ({ open: 0, waiting: 0, unreadBytes: 0, rests: 0 });
  const gauge = (name: string, help: string, now: () => number): Gauge =>
    new Gauge({
      name,
      help,
      registers,
      collect() {
        this.set(now());
      },
    });
  gauge("tollgate_connections", "Client connections now open on the public port.", () => counts().open);
  gauge(
    "tollgate_pipelined_requests_waiting",
    "Requests that wait for earlier ones of their connection; at most server.max_requests_in_flight.",
    () => counts().waiting,
  );
  gauge(
    "tollgate_unread_answer_bytes",
    "Bytes of answers that were written and that clients have not taken yet.",
    () => counts().unreadBytes,
  );
  new Counter({
    name: "tollgate_read_rests_total",
    help: "Times that nothing was read from an address for a moment, since what it sent took too much of one tick.",
    registers,
    collect() {
      this.reset();
      this.inc(counts().rests);
    },
  });
  return {
    from(source: () => ConnectionCounts): void {
      counts = source;
    },
  };
}

/** Log lines that could not be written, which the log counts itself. */
export const createLogLinesDropped = (registers: Registry[]) =>
  new Counter({
    name: "tollgate_log_lines_dropped_total",
    help: "Log lines that could not be written.",
    registers,
    collect() {
      this.reset();
      this.inc(dropped.lines);
    },
  });
