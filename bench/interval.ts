import type { Calibration } from "./calibration.ts";
import { cpuUs, processTree, residentBytes } from "./cpu.ts";
import { watchCore } from "./foreign.ts";
import type { LoadResult } from "./load/wrk.ts";

/** The calibration loop may take this much longer before and after without a mark. */
const SLOWDOWN_MAX = 1.1;

/** One stretch of load on one program. */
export interface Interval {
  load: LoadResult;
  /** Processor time per request, in microseconds: of the program under test with all its threads, and of Redis. */
  cpuUs: number;
  redisCpuUs: number;
  requestsPerSecond: number;
  residentBytes: number;
  /** Why the figures are not to be trusted; undefined when nothing was noticed. */
  disturbed: string | undefined;
}

/** Runs a load and reads what it cost. The core's other users and a slower calibration loop mark the interval. */
export async function measure(
  calibration: Calibration,
  pid: number,
  redisPid: number,
  load: () => Promise<LoadResult>,
): Promise<Interval> {
  const before = await calibration.slowdown();
  const pids = processTree(pid);
  const watched = watchCore(pids);
  const [subjectUs, redisUs] = [cpuUs(pids), cpuUs([redisPid])];
  const result = await load();
  const subject = cpuUs(pids) - subjectUs;
  const redis = cpuUs([redisPid]) - redisUs;
  const foreign = watched.end();
  const resident = residentBytes(pids);
  const slowdown = Math.max(before, await calibration.slowdown());
  const reasons = [foreign, slowdown > SLOWDOWN_MAX && `a fixed loop took ${slowdown.toFixed(2)} x its time`];
  return {
    load: result,
    cpuUs: subject / result.requests,
    redisCpuUs: redis / result.requests,
    requestsPerSecond: result.requests / result.seconds,
    residentBytes: resident,
    disturbed: reasons.filter(Boolean).join(", ") || undefined,
  };
}
