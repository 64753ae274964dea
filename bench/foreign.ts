import { coreBusyUs, cpuUs } from "./cpu.ts";
import { SUBJECT_CORE } from "./processes.ts";

/** Others may use this share of the core without a mark. */
const FOREIGN_SHARE_MAX = 0.03;

/** Begins to watch who else uses the core of the program under test; `end` gives their share in words, if it counts. */
export function watchCore(pids: readonly number[]): { end(): string | undefined } {
  const startedMs = performance.now();
  const [busyUs, ownUs] = [coreBusyUs(SUBJECT_CORE), cpuUs(pids)];
  return {
    end() {
      const foreignUs = coreBusyUs(SUBJECT_CORE) - busyUs - (cpuUs(pids) - ownUs);
      const share = foreignUs / 1000 / (performance.now() - startedMs);
      return share > FOREIGN_SHARE_MAX ? `others used ${Math.round(share * 100)} % of the core` : undefined;
    },
  };
}
