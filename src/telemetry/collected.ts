import { Counter, type Registry } from "prom-client";
import { dropped } from "./line-writer.ts";

/** Below this share of the window an admission counts as near its limit. */
const NEAR_SHARE = 0.2;

/**
 * Counts admissions that left little: in plain numbers, which become a metric when somebody asks.
 * @returns `admitted` takes what ADMIT has answered
 */
export function createNearLimit(registers: Registry[]) {
  const tiers = new Map<string, { window: number; slots: number }>();
  new Counter({
    name: "tollgate_admissions_near_limit_total",
    help: "Admissions that left less than 20 % of the window, or took the last slot, by tier and limit.",
    labelNames: ["tier", "limit"],
    registers,
    collect() {
      this.reset();
      for (const [tier, { window, slots }] of tiers) {
        this.inc({ tier, limit: "window" }, window);
        this.inc({ tier, limit: "slots" }, slots);
      }
    },
  });
  return {
    admitted(
      tier: string,
      left: { rateLimit: number; remaining: number; maxConcurrent: number; active: number },
    ): void {
      let counts = tiers.get(tier);
      if (!counts) {
        counts = { window: 0, slots: 0 };
        tiers.set(tier, counts);
      }
      if (left.remaining < left.rateLimit * NEAR_SHARE) counts.window++;
      if (left.active >= left.maxConcurrent) counts.slots++;
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
