import type { Static } from "typebox";
import { API_PREFIX, GENERATION_ENDPOINTS } from "../domain/endpoints.ts";
import { TIER_LIMITS } from "../domain/limits.ts";
import { repeated } from "../redis/repeated-work.ts";
import type { Live } from "./api/view-schemas.ts";
import {
  countExchanges,
  dependenciesOf,
  type MetricsReading,
  sumOf,
  type UpstreamCounts,
  upstreamBetween,
  type Value,
} from "./health.ts";

export const SAMPLE_EVERY_MS = 2000;
const KEPT = 450;
/** Rates are averaged over so many samples, and quantiles taken over so many: single ones jump about. */
const RATE_SAMPLES = 5;
const QUANTILE_SAMPLES = 15;
const MINUTE_SAMPLES = 30;
/** The store is asked for the slots taken every so many samples. */
const SLOTS_EVERY = 10;

/** Limits have lines of their own in the plot; all other refusals are one. */
const LIMITS: readonly string[] = [...TIER_LIMITS.map(({ refusal }) => refusal), "insufficient_credits"];
const KINDS = ["all", "generations", "polls"] as const;
type Kind = (typeof KINDS)[number];

const GENERATIONS = new Set<string>(GENERATION_ENDPOINTS.map((endpoint) => API_PREFIX + endpoint));

interface Sample {
  atMs: number;
  ok: number;
  /** By outcome and HTTP status, for statuses from 400 on: an upstream's refusal may have several. */
  denied: Map<string, { outcome: string; status: number; count: number }>;
  latency: Record<Kind, Buckets>;
  upstream: Record<Kind, Buckets>;
  exchanges: UpstreamCounts;
  inFlight: number;
  settlementsWaiting: number;
  slots: number | null;
}

export type LiveView = Pick<Static<typeof Live>, "sample_every_ms" | "at_ms" | "series" | "denied">;

interface LiveSources {
  readings(): Promise<readonly MetricsReading[]>;
  /** Slots taken over all gateways; null while the store is away. */
  slots(): Promise<number | null>;
}

/** Samples the metrics of all processes every two seconds and keeps 15 minutes of them. */
export function createLive(sources: LiveSources, nowMs: () => number = Date.now) {
  const samples: Sample[] = [];
  let taken = 0;
  let slots: number | null = null;
  let dependencies = dependenciesOf([]);
  let lastAnswerMs: number | null = null;

  async function sample(): Promise<void> {
    if (taken++ % SLOTS_EVERY === 0) slots = await sources.slots().catch(() => null);
    const readings = await sources.readings();
    dependencies = dependenciesOf(readings);
    const all = (name: keyof MetricsReading): Value[] => readings.flatMap((reading) => reading[name]);
    const exchanges = countExchanges(all("upstreamSeconds"));
    if (exchanges.answered > (samples.at(-1)?.exchanges.answered ?? 0)) lastAnswerMs = nowMs();
    const [atMs, beforeMs = 0] = [nowMs(), samples.at(-1)?.atMs];
    samples.push({
      // Where the clock was set back, samples go on until it has caught up.
      atMs: atMs > beforeMs ? atMs : beforeMs + SAMPLE_EVERY_MS,
      exchanges,
      ...countByOutcome(all("requests")),
      latency: bucketsByKind(all("requestSeconds"), ({ route }) => kindOfRoute(route)),
      upstream: bucketsByKind(all("upstreamSeconds"), ({ kind }) =>
        kind === "generate" ? "generations" : "polls",
      ),
      inFlight: sumOf(all("inFlight")),
      settlementsWaiting: dependencies.journal.waiting,
      slots,
    });
    // One more than there are points: each point is the difference of two samples.
    if (samples.length > KEPT + 1) samples.shift();
  }

  // A failed sample is a gap in the plot, no more.
  const sampling = repeated(sample, { pauseMs: () => SAMPLE_EVERY_MS });
  return {
    sample,
    start(): void {
      void sample().catch(() => undefined);
      sampling.start();
    },
    stop: (): void => void sampling.stop(),
    latest: () => latestOf(samples),
    /** The gateway's dependencies. Of the upstream the last minute counts, or if it was not asked then, the last 15. */
    health() {
      const now = samples.at(-1);
      const since = (before: Sample) =>
        now && upstreamBetween(before.exchanges, now.exchanges, (now.atMs - before.atMs) / 1000);
      const minute = since(ago(samples, MINUTE_SAMPLES));
      const isAsked = minute && minute.answered + minute.limited + minute.failed > 0;
      const upstream = isAsked ? minute : now && since(samples[0]!);
      return { ...dependencies, upstream, lastAnswerMs };
    },
    /** @param afterMs only what was sampled later than this, Unix ms */
    view: (afterMs: number): LiveView => viewOf(samples, afterMs),
  };
}

/** The sample that was taken so many before another one, or the first of all. */
const ago = (samples: readonly Sample[], count: number, at = samples.length - 1): Sample =>
  samples[Math.max(0, at - count)]!;

function latestOf(samples: readonly Sample[]) {
  const now = samples.at(-1);
  const rates: Record<string, number | null> = now ? ratesOf(ago(samples, RATE_SAMPLES), now) : {};
  const [ok, refused, failed] = ["ok", "refused", "failed"].map((name) => rates[name] ?? 0);
  return {
    requestsPerSecond: ok! + refused! + failed!,
    refusedPerSecond: refused!,
    failedPerSecond: failed!,
    inFlight: now?.inFlight ?? 0,
    settlementsWaiting: now?.settlementsWaiting ?? 0,
    slots: now?.slots ?? null,
  };
}

function viewOf(samples: readonly Sample[], afterMs: number): LiveView {
  const view: LiveView = { sample_every_ms: SAMPLE_EVERY_MS, at_ms: [], series: {}, denied: [] };
  for (let at = 1; at < samples.length; at++) {
    const now = samples[at]!;
    if (now.atMs <= afterMs) continue;
    view.at_ms.push(now.atMs);
    const point = {
      ...ratesOf(ago(samples, RATE_SAMPLES, at), now),
      ...quantilesOf(ago(samples, QUANTILE_SAMPLES, at), now),
    };
    for (const [name, value] of Object.entries(point)) {
      view.series[name] ??= [];
      view.series[name].push(value === null ? null : rounded(value));
    }
  }
  view.denied = deniedOf(samples);
  return view;
}

/** Digits that nobody sees would be most of what 15 minutes take on a slow line. */
const rounded = (value: number): number => (Number.isInteger(value) ? value : Number(value.toPrecision(3)));

function countByOutcome(requests: readonly Value[]): Pick<Sample, "ok" | "denied"> {
  let ok = 0;
  const denied: Sample["denied"] = new Map();
  for (const { value, labels } of requests) {
    const { status: text, outcome } = labels as { status?: string | number; outcome?: string };
    const status = Number(text);
    // 499: the client had gone; the request was not refused.
    if (status < 400 || status === 499) ok += value;
    else {
      const name = `${outcome} ${status}`;
      const count = (denied.get(name)?.count ?? 0) + value;
      denied.set(name, { outcome: String(outcome), status, count });
    }
  }
  return { ok, denied };
}

const kindOfRoute = (route: unknown): Kind | undefined => {
  if (GENERATIONS.has(String(route))) return "generations";
  return String(route).startsWith(`${API_PREFIX}tasks/`) ? "polls" : undefined;
};

/** Sums the series of a histogram by what they time; those of no kind are in `all` alone. */
function bucketsByKind(
  histogram: readonly Value[],
  kindOf: (labels: Record<string, unknown>) => Kind | undefined,
): Record<Kind, Buckets> {
  const sums = { all: new Map(), generations: new Map(), polls: new Map() } as Record<
    Kind,
    Map<number, number>
  >;
  for (const { value, labels, metricName } of histogram) {
    if (!metricName?.endsWith("_bucket")) continue;
    const { le, ...rest } = labels as Record<string, unknown>;
    const bound = le === "+Inf" ? Number.POSITIVE_INFINITY : Number(le);
    for (const kind of ["all", kindOf(rest)] as const) {
      if (kind) sums[kind].set(bound, (sums[kind].get(bound) ?? 0) + value);
    }
  }
  return sums;
}

function ratesOf(before: Sample, now: Sample): Record<string, number | null> {
  const seconds = (now.atMs - before.atMs) / 1000;
  // A worker that has gone takes its counts with it.
  const perSecond = (count: number): number => (seconds > 0 ? Math.max(0, count) / seconds : 0);
  const rates: Record<string, number | null> = { ok: perSecond(now.ok - before.ok) };
  for (const name of ["refused", "failed", ...LIMITS, "other_refusals"]) rates[name] = 0;
  for (const [name, { outcome, status, count }] of now.denied) {
    const rate = perSecond(count - (before.denied.get(name)?.count ?? 0));
    const names =
      status >= 500 ? ["failed"] : ["refused", LIMITS.includes(outcome) ? outcome : "other_refusals"];
    for (const series of names) rates[series] = (rates[series] ?? 0) + rate;
  }
  return { ...rates, in_flight: now.inFlight, slots: now.slots };
}

function quantilesOf(before: Sample, now: Sample): Record<string, number | null> {
  const quantiles: Record<string, number | null> = {};
  for (const kind of KINDS) {
    quantiles[`${kind}_p50`] = quantileBetween(0.5, before.latency[kind], now.latency[kind]);
    quantiles[`${kind}_p99`] = quantileBetween(0.99, before.latency[kind], now.latency[kind]);
    quantiles[`${kind}_upstream_p99`] = quantileBetween(0.99, before.upstream[kind], now.upstream[kind]);
  }
  return quantiles;
}

function deniedOf(samples: readonly Sample[]): LiveView["denied"] {
  const now = samples.at(-1);
  if (!now) return [];
  const minuteAgo = ago(samples, MINUTE_SAMPLES);
  const first = samples[0]!;
  const since = (before: Sample, name: string, count: number): number =>
    Math.max(0, count - (before.denied.get(name)?.count ?? 0));
  return [...now.denied]
    .map(([name, { outcome, status, count }]) => ({
      outcome,
      status,
      last_minute: since(minuteAgo, name, count),
      last_15_minutes: since(first, name, count),
    }))
    .filter(({ last_15_minutes }) => last_15_minutes > 0)
    .sort((a, b) => b.last_15_minutes - a.last_15_minutes);
}

type Buckets = ReadonlyMap<number, number>;

/** As Prometheus: evenly spread within its bucket; null when nothing came; beyond the last bound that bound. @param share 0.5 for the median */
export function quantileBetween(share: number, before: Buckets, after: Buckets): number | null {
  const bounds = [...after.keys()].sort((a, b) => a - b);
  const grown = (bound: number): number => Math.max(0, (after.get(bound) ?? 0) - (before.get(bound) ?? 0));
  const total = grown(bounds.at(-1) ?? 0);
  if (total === 0) return null;
  const rank = share * total;
  let [lower, below] = [0, 0];
  for (const bound of bounds) {
    const count = grown(bound);
    if (count >= rank) {
      if (bound === Number.POSITIVE_INFINITY) return lower;
      return lower + (bound - lower) * ((rank - below) / (count - below));
    }
    [lower, below] = [bound, count];
  }
  return lower;
}
