import { readdirSync, readFileSync } from "node:fs";

/** A clock tick of /proc, in microseconds. */
const TICK_US = 10_000;

/** A process and all that descends from it, by /proc. */
export function processTree(pid: number): number[] {
  const pids = [pid];
  for (const parent of pids) {
    for (const thread of list(`/proc/${parent}/task`)) {
      const children = read(`/proc/${parent}/task/${thread}/children`).split(" ");
      pids.push(...children.filter(Boolean).map(Number));
    }
  }
  return pids;
}

/** Processor time that these processes have used in all their threads, user and system, in microseconds. */
export function cpuUs(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + processCpuUs(pid), 0);
}

/** By the scheduler's own account in ns where the kernel shows it, else in ticks of 10 ms. */
function processCpuUs(pid: number): number {
  const threads = list(`/proc/${pid}/task`).map((thread) => read(`/proc/${pid}/task/${thread}/schedstat`));
  const ns = threads.reduce((sum, line) => sum + Number(line.split(" ")[0]), 0);
  return ns > 0 ? ns / 1000 : ticksUs(pid);
}

function ticksUs(pid: number): number {
  const stat = read(`/proc/${pid}/stat`);
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11] ?? 0) + Number(fields[12] ?? 0)) * TICK_US;
}

/** Time that one core was not idle, for us or for anybody, stolen time included, in microseconds. */
export function coreBusyUs(core: string): number {
  const line = read("/proc/stat")
    .split("\n")
    .find((text) => text.startsWith(`cpu${core} `));
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = (line ?? "")
    .split(" ")
    .slice(1)
    .map(Number);
  return (user + nice + system + irq + softirq + steal) * TICK_US;
}

/** Resident memory of these processes, in bytes. */
export function residentBytes(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => {
    const kib = /^VmRSS:\s+(\d+) kB/m.exec(read(`/proc/${pid}/status`))?.[1];
    return sum + Number(kib ?? 0) * 1024;
  }, 0);
}

/** Threads and processes may end while they are looked at: those are empty. */
function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

function list(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}
