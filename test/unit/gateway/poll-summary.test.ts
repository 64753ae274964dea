import { expect, test, vi } from "vitest";
import { PollSummary } from "../../../src/gateway/poll-summary.ts";
import { createLogger } from "../../../src/telemetry/log.ts";

// Guarantee: what polls do stays in the log, in a line a minute.
test("polls of a minute are one line: how many by status, median and 99th percentile", () => {
  vi.useFakeTimers();
  try {
    const lines: Record<string, number>[] = [];
    const summary = new PollSummary(
      createLogger("info", { write: (line: string) => void lines.push(JSON.parse(line)) }),
    );
    for (let ms = 1; ms <= 1000; ms++) summary.add(ms % 10 === 0 ? 404 : 200, ms);
    vi.advanceTimersByTime(59_999);
    expect(lines).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(lines).toMatchObject([{ level: "info", polls: 1000, by_status: { 200: 900, 404: 100 } }]);
    const [{ p50_ms: median, p99_ms: high }] = lines as [Record<string, number>];
    expect(median).toBeGreaterThanOrEqual(500);
    expect(median).toBeLessThanOrEqual(550);
    expect(high).toBeGreaterThanOrEqual(990);
    expect(high).toBeLessThanOrEqual(1089);

    vi.advanceTimersByTime(600_000);
    expect(lines).toHaveLength(1);
    for (const ms of [0, 0.01, 1e9]) summary.add(200, ms);
    summary.write();
    expect(lines[1]).toMatchObject({ polls: 3, by_status: { 200: 3 }, p50_ms: 0.1 });
  } finally {
    vi.useRealTimers();
  }
});
