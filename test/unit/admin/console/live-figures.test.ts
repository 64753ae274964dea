import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { type MetricsReading, readMetrics } from "../../../../src/admin/health.ts";
import { createLive, quantileBetween } from "../../../../src/admin/live-figures.ts";
import { createMetrics } from "../../../../src/telemetry/metrics.ts";

const GENERATE = "/api/v1/gen2/text-to-video";
const POLL = "/api/v1/tasks/{taskId}";

/** A sampler over metrics of its own, with a clock of its own that goes two seconds per sample. */
function givenLive() {
  const metrics = createMetrics();
  const clock = { nowMs: Date.UTC(2031, 0, 1) };
  const store = { slots: 3 as number | null };
  const others: MetricsReading[] = [];
  const live = createLive(
    {
      readings: async () => [await readMetrics(metrics), ...others],
      async slots() {
        if (store.slots === null) throw new Error("away");
        return store.slots;
      },
    },
    () => clock.nowMs,
  );
  return {
    metrics,
    others,
    live,
    clock,
    store,
    async sample(times = 1): Promise<void> {
      for (let n = 0; n < times; n++) {
        clock.nowMs += 2000;
        await live.sample();
      }
    },
    last: (name: string) => live.view(0).series[name]?.at(-1),
  };
}

describe("quantiles between two readings", () => {
  const before = new Map([
    [0.1, 10],
    [1, 10],
    [Number.POSITIVE_INFINITY, 10],
  ]);

  test("what came before the first reading does not count", () => {
    const after = new Map([
      [0.1, 10],
      [1, 20],
      [Number.POSITIVE_INFINITY, 20],
    ]);
    expect(quantileBetween(0.5, before, after)).toBeCloseTo(0.55);
    expect(quantileBetween(1, before, after)).toBe(1);
  });

  test("nothing between them is nothing, and beyond the last bound it is that bound", () => {
    expect(quantileBetween(0.99, before, before)).toBeNull();
    const slow = new Map([...before, [Number.POSITIVE_INFINITY, 12]] as [number, number][]);
    expect(quantileBetween(0.5, before, slow)).toBe(1);
  });
});

describe("the last 15 minutes", () => {
  test("rates are per second over the last ten, by how it ended and by limit", async () => {
    const { metrics, sample, last } = givenLive();
    await sample();
    metrics.requests.inc({ route: GENERATE, status: 200, outcome: "ok" }, 20);
    metrics.requests.inc({ route: GENERATE, status: 429, outcome: "rate_limited" }, 30);
    metrics.requests.inc({ route: GENERATE, status: 404, outcome: "path_not_found" }, 10);
    metrics.requests.inc({ route: GENERATE, status: 502, outcome: "upstream_failed" }, 40);
    metrics.requests.inc({ route: GENERATE, status: 499, outcome: "client_gone" }, 1000);
    await sample(5);
    expect(last("ok")).toBe(2 + 100);
    expect(last("refused")).toBe(4);
    expect(last("rate_limited")).toBe(3);
    expect(last("other_refusals")).toBe(1);
    expect(last("failed")).toBe(4);
    await sample(5);
    for (const name of ["ok", "refused", "failed"]) expect(last(name)).toBe(0);
  });

  test("samples go on with right rates where the clock was set back", async () => {
    const { metrics, clock, live, sample, last } = givenLive();
    await sample(3);
    const before = live.view(0).at_ms.at(-1)!;
    clock.nowMs -= 3_600_000;
    metrics.requests.inc({ route: GENERATE, status: 200, outcome: "ok" }, 20);
    await sample(3);
    expect(live.view(before).at_ms).toEqual([before + 2000, before + 4000, before + 6000]);
    expect(last("ok")).toBe(2);
  });

  test("several processes are one gateway, and one that ends takes nothing below zero", async () => {
    const { metrics, others, sample, last } = givenLive();
    const other = createMetrics();
    others.push(await readMetrics(other));
    await sample();
    metrics.requests.inc({ route: GENERATE, status: 200, outcome: "ok" }, 2);
    other.requests.inc({ route: GENERATE, status: 200, outcome: "ok" }, 4);
    metrics.requestSeconds.observe({ route: POLL, class: "2xx" }, 0.002);
    other.requestSeconds.observe({ route: POLL, class: "2xx" }, 20);
    other.inFlight.set(5);
    others[0] = await readMetrics(other);
    await sample();
    expect([last("ok"), last("in_flight")]).toEqual([3, 5]);
    expect(last("polls_p99")).toBeGreaterThan(10);
    others.pop();
    await sample();
    expect(last("ok")).toBe(0.5);
    await sample(10);
    expect(last("ok")).toBe(0);
  });

  test("latency is told apart by what was asked, and is null where nobody asked", async () => {
    const { metrics, sample, last } = givenLive();
    await sample();
    metrics.requestSeconds.observe({ route: GENERATE, class: "2xx" }, 0.3);
    metrics.requestSeconds.observe({ route: POLL, class: "2xx" }, 0.002);
    metrics.upstreamSeconds.observe({ kind: "poll", outcome: "task" }, 0.002);
    await sample();
    expect(last("generations_p50")).toBeGreaterThan(0.25);
    expect(last("polls_p99")).toBeLessThanOrEqual(0.0025);
    expect(last("polls_upstream_p99")).toBeLessThanOrEqual(0.0025);
    expect(last("generations_upstream_p99")).toBeNull();
    expect(last("all_p99")).toBeGreaterThan(0.25);
  });

  test("why requests were denied is counted for a minute and for all that is kept", async () => {
    const { metrics, sample, live } = givenLive();
    metrics.requests.inc({ route: GENERATE, status: 402, outcome: "insufficient_credits" }, 7);
    await sample();
    metrics.requests.inc({ route: GENERATE, status: 402, outcome: "insufficient_credits" }, 2);
    metrics.requests.inc({ route: POLL, status: 404, outcome: "upstream_refused" }, 1);
    metrics.requests.inc({ route: POLL, status: 502, outcome: "upstream_refused" }, 3);
    await sample(31);
    metrics.requests.inc({ route: POLL, status: 402, outcome: "insufficient_credits" }, 1);
    await sample();
    expect(live.view(0).denied).toEqual([
      { outcome: "insufficient_credits", status: 402, last_minute: 1, last_15_minutes: 3 },
      { outcome: "upstream_refused", status: 502, last_minute: 0, last_15_minutes: 3 },
      { outcome: "upstream_refused", status: 404, last_minute: 0, last_15_minutes: 1 },
    ]);
  });

  test("it stays 15 minutes long, all its series alike, and a page asks for what is new only", async () => {
    const { sample, live, clock } = givenLive();
    await sample(1000);
    const view = live.view(0);
    expect(view.at_ms).toHaveLength(450);
    expect(new Set(Object.values(view.series).map((values) => values.length))).toEqual(new Set([450]));
    const before = clock.nowMs;
    await sample(2);
    expect(live.view(before).at_ms).toEqual([before + 2000, before + 4000]);
    expect(live.view(before).series.ok).toEqual([0, 0]);
  });

  // Guarantee: the console's first view takes two seconds on a bad line also while the gateway is busy.
  test("15 minutes of a busy gateway are at most 12 KB of a line", async () => {
    const { metrics, sample, live, clock } = givenLive();
    let seed = 1;
    const random = (): number => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed / 2_147_483_647;
    };
    const count = (status: number, outcome: string, most: number): void =>
      metrics.requests.inc({ route: GENERATE, status, outcome }, Math.floor(random() * most));
    for (let nth = 0; nth < 451; nth++) {
      count(200, "ok", 300);
      count(429, "rate_limited", 20);
      count(402, "insufficient_credits", 5);
      count(502, "upstream_failed", 3);
      for (const route of [GENERATE, POLL])
        metrics.requestSeconds.observe({ route, class: "2xx" }, random() ** 4);
      metrics.upstreamSeconds.observe({ kind: "poll", outcome: "task" }, random() ** 4);
      metrics.upstreamSeconds.observe({ kind: "generate", outcome: "task" }, random() ** 4);
      metrics.inFlight.set(Math.floor(random() * 40));
      clock.nowMs += Math.floor(random() * 9);
      await sample();
    }
    const { length } = gzipSync(JSON.stringify(live.view(0)));
    expect(length).toBeGreaterThan(6000);
    expect(length).toBeLessThan(12_000);
  });

  test("a store that is away leaves a gap in the slots and nowhere else", async () => {
    const { sample, last, store } = givenLive();
    await sample(2);
    expect(last("slots")).toBe(3);
    store.slots = null;
    await sample(10);
    expect(last("slots")).toBeNull();
    expect(last("ok")).toBe(0);
  });
});

describe("what the gateway needs", () => {
  const exchange = (metrics: ReturnType<typeof createMetrics>, outcome: string, times = 1): void => {
    for (let n = 0; n < times; n++)
      metrics.upstreamSeconds.observe({ kind: "generate", outcome: outcome as "task" }, 0.1);
  };

  test("of the upstream the last minute counts; what was never sent is no failure", async () => {
    const { metrics, sample, live, clock } = givenLive();
    await sample();
    expect(live.health()).toMatchObject({ lastAnswerMs: null, upstream: { answered: 0, failed: 0 } });
    exchange(metrics, "accepted", 5);
    exchange(metrics, "refused", 1);
    for (const outcome of ["overloaded", "client_gone", "unroutable"]) exchange(metrics, outcome, 50);
    await sample();
    const answeredAtMs = clock.nowMs;
    expect(live.health()).toMatchObject({
      lastAnswerMs: answeredAtMs,
      upstream: { answered: 6, failed: 0, failure: null },
    });
    await sample(31);
    exchange(metrics, "unreachable", 1);
    exchange(metrics, "timed_out", 3);
    exchange(metrics, "rate_limited", 2);
    await sample();
    expect(live.health()).toMatchObject({
      lastAnswerMs: answeredAtMs,
      upstream: { window_seconds: 60, answered: 0, limited: 2, failed: 4, failure: "timed_out" },
    });
  });

  test("in a minute in which it was not asked, the last 15 count", async () => {
    const { metrics, sample, live } = givenLive();
    await sample();
    exchange(metrics, "upstream_failed", 2);
    await sample(100);
    expect(live.health().upstream).toEqual({
      window_seconds: 200,
      answered: 0,
      limited: 0,
      failed: 2,
      failure: "upstream_failed",
    });
  });

  test("of several processes the worst counts, and what waits is added", async () => {
    const { metrics, others, sample, live } = givenLive();
    const other = createMetrics();
    for (const { storeUp, journalUsable, outbox } of [metrics, other]) {
      storeUp.set(1);
      journalUsable.set(1);
      outbox.set(2);
    }
    metrics.ledgerCheckedAt.set(1_900_000_000);
    metrics.ledgerViolations.set(3);
    others.push(await readMetrics(other));
    await sample();
    expect(live.health()).toMatchObject({
      redis: { usable: true, older: false },
      journal: { usable: true, waiting: 4 },
      ledger: { checkedAtMs: 1_900_000_000_000, violations: 3 },
    });
    other.storeUp.set(0);
    other.journalUsable.set(0);
    others.splice(0, 1, await readMetrics(other));
    await sample();
    expect(live.health()).toMatchObject({ redis: { usable: false }, journal: { usable: false } });
  });
});
