/** One figure that is to be reached. */
interface Target {
  text: string;
  unit: string;
  atMost?: number;
  atLeast?: number;
}

/**
 * Everything that performance is held to, in one place: each is a ratio to something that one could run instead, or a
 * figure that a plan for capacity needs.
 */
const TARGETS = {
  costByNginx: {
    text: "generation: CPU of gateway and Redis together at most that of nginx + Lua and its Redis",
    unit: "x",
    atMost: 1,
  },
  cpuByFastify: {
    text: "generation: CPU of the gateway at most that of a fastify proxy that only limits rates",
    unit: "x",
    atMost: 1,
  },
  gatewayByYardstick: { text: "generation: CPU of the gateway beside the yardstick", unit: "x", atMost: 0.9 },
  redisByYardstick: { text: "generation: CPU of Redis beside the yardstick", unit: "x", atMost: 0.85 },
  costByYardstick: { text: "generation: both together beside the yardstick", unit: "x", atMost: 0.88 },
  servedByYardstick: {
    text: "generation: requests a second beside the yardstick",
    unit: "x",
    atLeast: 1.1,
  },
  governed: {
    text: "generation: CPU of gateway and Redis together at most 0.85 x that of nginx + Lua and its Redis",
    unit: "x",
    atMost: 0.85,
  },
  idleMemory: { text: "idle gateway (bundle): resident memory at most 110 MiB", unit: "MiB", atMost: 110 },
  idleCommands: {
    text: "idle gateway: at most 20 commands a second to Redis",
    unit: "commands a second",
    atMost: 20,
  },
  idleCpu: { text: "idle gateway: at most 0.3 % of a core", unit: "%", atMost: 0.3 },
  startUp: { text: "start until ready at most 10 x `node -e 0`", unit: "x", atMost: 10 },
  refusal: { text: "refused request: CPU at most that of nginx + Lua", unit: "x", atMost: 1 },
  poll: { text: "poll answered from Redis: CPU at most half of a generation's", unit: "x", atMost: 0.5 },
  p50First: {
    text: "1,000 requests a second, in the first minute: p50 at most 1.2 x that of nginx + Lua",
    unit: "x",
    atMost: 1.2,
  },
  p99First: {
    text: "1,000 requests a second, in the first minute: p99 at most 3 x that of nginx + Lua",
    unit: "x",
    atMost: 3,
  },
  p50Later: {
    text: "1,000 requests a second, later: p50 at most 1.2 x that of nginx + Lua",
    unit: "x",
    atMost: 1.2,
  },
  p99Later: {
    text: "1,000 requests a second, later: p99 at most 3 x that of nginx + Lua",
    unit: "x",
    atMost: 3,
  },
  stall: { text: "no event-loop stall over 20 ms in 60 s", unit: "ms", atMost: 20 },
  flat: { text: "resident memory after 10 minutes at most 1.05 x that after 3", unit: "x", atMost: 1.05 },
  byKeys: {
    text: "1,000,000 keys instead of 1,000: Redis per admission at most 1.25 x",
    unit: "x",
    atMost: 1.25,
  },
  byLimit: {
    text: "a limit of 10,000 instead of 20: Redis per admission at most 1.2 x",
    unit: "x",
    atMost: 1.2,
  },
  footprint: { text: "Redis memory per account at most 8 KiB", unit: "KiB", atMost: 8 },
  sweeper: { text: "100,000 open tasks: the sweeper takes at most 5 % of a core", unit: "%", atMost: 5 },
  delivery: {
    text: "1,000 webhook messages a second: CPU of the gateway for each at most 150 us",
    unit: "us",
    atMost: 150,
  },
  untold: {
    text: "a generation and its end without a webhook endpoint: at most 1 % more instructions of Redis than without webhooks",
    unit: "%",
    atMost: 1,
  },
  workers: {
    text: "two workers on two free cores serve at least 1.5 x what one does",
    unit: "x",
    atLeast: 1.5,
  },
  gatewayByPrimaries: {
    text: "three primaries: CPU of the gateway per generation at most 1.15 x that on one",
    unit: "x",
    atMost: 1.15,
  },
  redisByPrimaries: {
    text: "three primaries: CPU of each per generation that it serves at most 1.1 x that of one",
    unit: "x",
    atMost: 1.1,
  },
  throughputByPrimaries: {
    text: "three primaries serve at least 2.7 x what one does, computed from CPU",
    unit: "x",
    atLeast: 2.7,
  },
  confirmCost: {
    text: "charges confirmed by a replica: CPU of gateway and Redis together at most 1.15 x that without",
    unit: "x",
    atMost: 1.15,
  },
  confirmP50: {
    text: "charges confirmed by a replica: p50 at 1,000 requests a second at most a replica round trip more",
    unit: "round trips",
    atMost: 1,
  },
  uploadCpu: {
    text: "upload of 10 MB: CPU at most 1.5 x that of http-proxy-3 alone",
    unit: "x",
    atMost: 1.5,
  },
  uploadMemory: {
    text: "upload of 10 MB: extra resident memory of each at most 4 MB",
    unit: "MB",
    atMost: 4,
  },
} as const satisfies Record<string, Target>;

export type TargetName = keyof typeof TARGETS;
export const TARGET_NAMES = Object.keys(TARGETS) as TargetName[];

/** A target, and whether it was reached; undefined when it was not measured. */
export interface Verdict {
  target: string;
  reached: string;
  met: boolean | undefined;
}

/**
 * Holds a figure against its target.
 * @param value NaN when it could not be measured
 * @param shown how the figure is put where a number and its unit do not say enough
 */
export function judge(name: TargetName, value: number, shown?: string): Verdict {
  const { text, unit, atMost, atLeast }: Target = TARGETS[name];
  if (Number.isNaN(value)) return { target: text, reached: "not measured", met: undefined };
  const met = value <= (atMost ?? Number.POSITIVE_INFINITY) && value >= (atLeast ?? Number.NEGATIVE_INFINITY);
  return { target: text, reached: shown ?? `${short(value)} ${unit}`, met };
}

/** A number with three digits that matter. */
export function short(value: number): string {
  if (!Number.isFinite(value)) return "";
  const magnitude = Math.abs(value);
  return value.toFixed(magnitude >= 100 ? 0 : magnitude >= 10 ? 1 : 2);
}
