import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Fault, Strike } from "./strikes.ts";

/** Written once for each node that takes over: by the Sentinel that leads the failover, or by the replica that is elected. */
const TAKEOVER = /\+promoted-slave|Failover election won/;
/** `1:X 27 Nov 2026 02:02:27.059 # ...` */
const STAMP = /^\d+:\w (\d+ \w+ \d+ [\d:]+\.\d+) /;
/** Replicas are promoted in these; all others keep their primary. */
const NONE: ReadonlySet<Fault> = new Set(["replica", "reset", "loss", "move", "move slowly"]);
/** True if a replica is promoted. */
export const isFailover = (fault: Fault): boolean => !NONE.has(fault);

/** How far a replica may be behind, and how late after its admission a request is seen upstream. */
const SLACK_MS = { before: 1000, after: 500 };

/** When nodes took over since then, in order, by the logs of nodes and Sentinels. Unix ms. */
export function takeoversSince(folder: string, sinceMs: number): number[] {
  const stamps = globSync("*/redis.log", { cwd: folder }).flatMap((file) =>
    readFileSync(join(folder, file), "utf8")
      .split("\n")
      .filter((line) => TAKEOVER.test(line))
      .map((line) => Date.parse(STAMP.exec(line)?.[1] ?? "")),
  );
  return stamps.filter((atMs) => atMs >= sinceMs).sort((a, b) => a - b);
}

/**
 * On a busy machine Sentinels or replicas may take a primary for dead that is not, or that they have just promoted: one more
 * failover than was struck, which forgets what it lacks.
 */
export function withFurtherTakeovers(
  fault: Fault,
  { atMs, forgets }: Pick<Strike, "atMs" | "forgets">,
  takeovers: readonly number[],
): Strike["forgets"] {
  const before = takeovers.filter((at) => at < atMs);
  const further = [...before, ...takeovers.slice(before.length + (isFailover(fault) ? 1 : 0))];
  if (further.length === 0) return forgets;
  const [fromMs, toMs] = forgets ?? [Number.POSITIVE_INFINITY, 0];
  return [Math.min(fromMs, further[0]! - SLACK_MS.before), Math.max(toMs, further.at(-1)! + SLACK_MS.after)];
}
