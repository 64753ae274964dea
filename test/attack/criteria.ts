import type { Check, Sent } from "./attack.ts";
import type { Sample } from "./honest.ts";
import type { Money } from "./ledger.ts";

/** Figures that an attacked gateway must reach, by which the page is judged. */
export const REACH = {
  honestP99Ms: 150,
  /** Bound on a busy machine, on which it is as slow without the attack. */
  busyP99Ms: 300,
  /** Above the memory before the attack. */
  residentMiB: 200,
  recoverySeconds: 10,
} as const;

const MIB = 1024 * 1024;

/** One attack as it was measured. */
export interface Measured {
  name: string;
  title: string;
  sent: Sent;
  /** How long the attacker took, s. */
  attackSeconds: number;
  /** Requests of the honest customer before the attack, and from its beginning to its end. */
  baseline: readonly Sample[];
  during: readonly Sample[];
  residentBytes: { before: number; peak: number; after: number };
  /** From the attack's end until everything was as before, s; undefined: not within the time that was waited. */
  recoverySeconds: number | undefined;
  money: Money;
  /** Calls of `/livez` during the attack. */
  livez: { requests: number; failed: number; slowestMs: number };
  /** The gateway's process lived to the end. */
  alive: boolean;
}

/** One criterion, met or not, and by how much. */
export interface Criterion {
  name: string;
  met: boolean;
  figure: string;
}

/** The smallest value that a share of all values does not exceed; 0 of none. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0;
}

export const p99Of = (samples: readonly Sample[]): number =>
  quantile(
    samples.map(({ tookMs }) => tookMs),
    0.99,
  );

export const refusalsOf = (samples: readonly Sample[]): readonly Sample[] =>
  samples.filter(({ status }) => status !== 200);

/** Judges one attack. @returns the common criteria in a fixed order, then those of the attack itself */
export function judge(measured: Measured): Criterion[] {
  const { baseline, during, residentBytes, recoverySeconds, money, livez, alive, sent } = measured;
  const [alone, p99] = [p99Of(baseline), p99Of(during)];
  const refusals = refusalsOf(during);
  const grownMiB = (residentBytes.peak - residentBytes.before) / MIB;
  return [
    {
      name: `honest p99 at most ${REACH.honestP99Ms} ms`,
      // If it was as slow without the attack, the machine had other things to do, and the gateway is not to blame. Up to a bound:
      // beyond it, the run does not speak for the gateway either.
      met: during.length > 0 && p99 <= Math.max(REACH.honestP99Ms, Math.min(alone, REACH.busyP99Ms)),
      figure: `${Math.round(p99)} ms of ${during.length} requests${alone > REACH.honestP99Ms ? `, ${Math.round(alone)} ms alone` : ""}`,
    },
    {
      name: "no honest request refused",
      met: during.length > 0 && refusals.length === 0,
      figure: refusals.length === 0 ? "none" : `${refusals.length}: ${reasons(refusals)}`,
    },
    {
      name: `resident memory at most ${REACH.residentMiB} MiB above idle`,
      met: grownMiB <= REACH.residentMiB,
      figure: `${Math.round(grownMiB)} MiB above`,
    },
    {
      name: `everything back within ${REACH.recoverySeconds} s`,
      met: recoverySeconds !== undefined && recoverySeconds <= REACH.recoverySeconds,
      figure: recoverySeconds === undefined ? "not back" : `${recoverySeconds.toFixed(1)} s`,
    },
    {
      name: "no free video",
      met: money.freeVideos.length === 0,
      figure: `${money.freeVideos.length} of ${money.videos} videos`,
    },
    {
      name: "no charge without a video",
      met: money.chargesWithoutVideo.length === 0,
      figure: `${money.chargesWithoutVideo.length} of ${money.charges} charges`,
    },
    {
      name: "`/livez` answers and the process lives",
      met: alive && livez.requests > 0 && livez.failed === 0,
      figure: `${livez.failed} of ${livez.requests} failed, slowest ${Math.round(livez.slowestMs)} ms`,
    },
    ...sent.checks.map(({ what, met, figure }: Check) => ({ name: what, met, figure })),
  ];
}

export const isMet = (measured: Measured): boolean => judge(measured).every(({ met }) => met);

/** Why, with how often, the commonest first; a few of them. */
function reasons(refusals: readonly Sample[]): string {
  const counts = new Map<string, number>();
  for (const { kind, status, reason } of refusals) {
    const message = /"(?:msg|error)":"([^"]*)"/.exec(reason)?.[1] ?? reason;
    const text = `${kind} ${status === 0 ? "no answer" : status} (${message})`;
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  const listed = [...counts].sort(([, a], [, b]) => b - a).map(([text, count]) => `${count} × ${text}`);
  return listed.slice(0, 3).join(", ");
}
