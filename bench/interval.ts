import type { Calibration } from "./calibration.ts";
import { coreBusyUs, cpuUs, processTree, residentBytes } from "./cpu.ts";
import type { LoadResult } from "./load/wrk.ts";
import { SUBJECT_CORE } from "./processes.ts";

/** The loop may take this much longer before and after, and others may use this share of the core, without a mark. */
const SLOWDOWN_MAX = 1.1;
const FOREIGN_SHARE_MAX = 0.03;

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
  const startedMs = performance.now();
  const [busyUs, subjectUs, redisUs] = [coreBusyUs(SUBJECT_CORE), cpuUs(pids), cpuUs([redisPid])];
  const result = await load();
  const subject = cpuUs(pids) - subjectUs;
  const redis = cpuUs([redisPid]) - redisUs;
  const wallUs = (performance.now() - startedMs) * 1000;
  const foreign = Math.max(0, coreBusyUs(SUBJECT_CORE) - busyUs - subject) / wallUs;
  const resident = residentBytes(pids);
  const slowdown = Math.max(before, await calibration.slowdown());
  const reasons: string[] = [];
  if (foreign > FOREIGN_SHARE_MAX) reasons.push(`others used ${percent(foreign)} of the core`);
  if (slowdown > SLOWDOWN_MAX) reasons.push(`a fixed loop took ${percent(slowdown - 1)} longer`);
  return {
    load: result,
    cpuUs: subject / result.requests,
    redisCpuUs: redis / result.requests,
    requestsPerSecond: result.requests / result.seconds,
    residentBytes: resident,
    disturbed: reasons.length > 0 ? reasons.join(", ") : undefined,
  };
}

const percent = (share: number): string => `${Math.round(share * 100)} %`;
