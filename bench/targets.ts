/** One figure that is to be reached. `point` is that of the list in issue 4. */
interface Target {
  point: number;
  text: string;
  unit: string;
  atMost?: number;
  atLeast?: number;
}

/** Everything that performance is held to, in one place. */
const TARGETS = {
  cpuByNginx: { point: 1, text: "generation: CPU at most 1.0 x nginx + Lua", unit: "x", atMost: 1 },
  cpuByFastify: { point: 1, text: "CPU at most 0.42 x the fastify stack", unit: "x", atMost: 0.42 },
  cpuByUndici: { point: 1, text: "CPU at most 1.4 x the bare undici proxy", unit: "x", atMost: 1.4 },
  redisUs: { point: 2, text: "Redis per generation at most 25 us", unit: "us", atMost: 25 },
  redisByNginx: { point: 2, text: "at most 0.65 x what nginx + Lua causes", unit: "x", atMost: 0.65 },
  refusal: { point: 3, text: "refused request: CPU at most 1.2 x nginx + Lua's", unit: "x", atMost: 1.2 },
  poll: { point: 4, text: "poll from the cache: CPU at most 0.7 x a generation", unit: "x", atMost: 0.7 },
  p50: { point: 5, text: "1,000 requests/s: p50 at most 1.1 x nginx + Lua's", unit: "x", atMost: 1.1 },
  p99: { point: 5, text: "p99 at most 1.3 x nginx + Lua's", unit: "x", atMost: 1.3 },
  stall: { point: 5, text: "no event-loop stall over 20 ms in 60 s", unit: "ms", atMost: 20 },
  flat: { point: 5, text: "resident memory flat over 10 minutes (at most 1.05 x)", unit: "x", atMost: 1.05 },
  byKeys: {
    point: 6,
    text: "Redis per admission from 1,000 to 1,000,000 keys within 1.15 x",
    unit: "x",
    atMost: 1.15,
  },
  byLimit: { point: 6, text: "from a limit of 20 to 10,000 within 1.2 x", unit: "x", atMost: 1.2 },
  footprint: { point: 6, text: "Redis memory per account at most 1.5 KiB", unit: "KiB", atMost: 1.5 },
  sweeper: {
    point: 6,
    text: "sweeper with 100,000 open tasks below 5 % of one core",
    unit: "%",
    atMost: 5,
  },
  workers: { point: 7, text: "2 workers on 2 free cores at least 1.8 x one", unit: "x", atLeast: 1.8 },
  uploadCpu: {
    point: 8,
    text: "upload of 10 MB: CPU at most 1.2 x http-proxy-3 alone",
    unit: "x",
    atMost: 1.2,
  },
  uploadMemory: { point: 8, text: "extra resident memory of each under 4 MB", unit: "MB", atMost: 4 },
} as const satisfies Record<string, Target>;

export type TargetName = keyof typeof TARGETS;
export const TARGET_NAMES = Object.keys(TARGETS) as TargetName[];

/** A target, and whether it was reached; undefined when it was not measured. */
export interface Verdict {
  point: number;
  target: string;
  reached: string;
  met: boolean | undefined;
}

/**
 * Holds a figure against its target.
 * @param value NaN when it could not be measured
 * @param said how the figure is put where a number and its unit do not say enough
 */
export function judge(name: TargetName, value: number, said?: string): Verdict {
  const { point, text, unit, atMost, atLeast }: Target = TARGETS[name];
  if (Number.isNaN(value)) return { point, target: text, reached: "not measured", met: undefined };
  const met = value <= (atMost ?? Number.POSITIVE_INFINITY) && value >= (atLeast ?? Number.NEGATIVE_INFINITY);
  return { point, target: text, reached: said ?? `${short(value)} ${unit}`, met };
}

/** A number with three digits that matter. */
export function short(value: number): string {
  if (!Number.isFinite(value)) return "";
  const magnitude = Math.abs(value);
  return value.toFixed(magnitude >= 100 ? 0 : magnitude >= 10 ? 1 : 2);
}
