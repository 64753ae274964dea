import { ARCHIVE_CRITERIA } from "./criteria-archive.ts";
import { endsOnEvidence, ownVideos, storesKeptApart } from "./criteria-endings.ts";
import { capsKept, noFalseRefusal, slotsAndDaysKept, slotsFree, windowKept } from "./criteria-limits.ts";
import {
  byHandOnce,
  chargedOnce,
  type Finding,
  idempotent,
  ledgerBalances,
  refundedOnce,
} from "./criteria-money.ts";
import { SLOT_CRITERIA } from "./criteria-slots.ts";
import {
  answered,
  quiet,
  refusedLeavesNothing,
  sentOnce,
  struck,
  upstreamAgrees,
} from "./criteria-traces.ts";
import { unknownKept } from "./criteria-unknown.ts";
import { unmeteredOnce } from "./criteria-unmetered.ts";
import { WEBHOOK_CRITERIA } from "./criteria-webhooks.ts";
import { type History, readHistory } from "./history.ts";
import { type Ledger, readLedger } from "./ledger.ts";

/** A criterion's name, and how a run is judged by it. */
export type Rule<Facts> = readonly [
  name: string,
  judge: (facts: Facts) => Finding & { uncharged?: string[] },
];

export const CRITERIA: readonly Rule<Ledger>[] = [
  ["charged exactly once, nothing lost", chargedOnce],
  ["failed tasks refunded exactly once", refundedOnce],
  ["the ledger balances, nothing held", ledgerBalances],
  ["what operators do is done once", byHandOnce],
  ["no slot leaks, every task ends", slotsFree],
  ["503 and refusals leave nothing behind", refusedLeavesNothing],
  ["the upstream's own log agrees", upstreamAgrees],
  ["tasks end on evidence", endsOnEvidence],
  ["nobody is shown another's video", ownVideos],
  ["stores are kept apart", storesKeptApart],
  ["nothing sent twice", sentOnce],
  ["one Idempotency-Key, one charge", idempotent],
  ["window never above the limit", windowKept],
  ["slots and days never above the limit", slotsAndDaysKept],
  ["caps of a month kept, spent is what was charged", capsKept],
  ["no false refusal", noFalseRefusal],
  ["unknown outcomes keep their hold, are bounded and logged", unknownKept],
  ["unmetered only while Redis is away, and bound once", unmeteredOnce],
  ["every request answered", answered],
  ["faults struck as planned", struck],
  ["quiet within 90 s", quiet],
];

export interface Criterion {
  name: string;
  met: boolean;
  figure: string;
  violations: string[];
}

export interface Verdict {
  met: boolean;
  criteria: Criterion[];
  /** Tasks that were accepted and could not be charged, each beside what explains it. */
  uncharged: string[];
}

/** Judges one run by its recorded history alone. */
export const check = (history: History): Verdict =>
  judgeBy(
    [
      ...CRITERIA,
      ...(history.archive ? ARCHIVE_CRITERIA : []),
      ...(history.webhooks ? WEBHOOK_CRITERIA : []),
      ...(history.posted ? SLOT_CRITERIA : []),
    ],
    readLedger(history),
  );

export function judgeBy<Facts>(rules: readonly Rule<Facts>[], facts: Facts): Verdict {
  const uncharged: string[] = [];
  const criteria = rules.map(([name, judge]) => {
    const finding = judge(facts);
    uncharged.push(...(finding.uncharged ?? []));
    const { figure, violations } = finding;
    return { name, met: violations.length === 0, figure, violations };
  });
  return { met: criteria.every(({ met }) => met), criteria, uncharged };
}

/** A verdict as lines for people. */
export function formatVerdict({ criteria, uncharged }: Verdict, violationsMax = 10): string {
  const lines = criteria.flatMap(({ name, met, figure, violations }) => [
    `  ${met ? "ok  " : "FAIL"} ${name}: ${figure}`,
    ...violations.slice(0, violationsMax).map((line) => `         ${line}`),
    ...(violations.length > violationsMax
      ? [`         … and ${violations.length - violationsMax} more`]
      : []),
  ]);
  for (const line of uncharged.slice(0, violationsMax)) lines.push(`       uncharged: ${line}`);
  return lines.join("\n");
}

if (import.meta.main) {
  const [folder] = process.argv.slice(2);
  if (folder === undefined) {
    process.stderr.write("usage: node test/fault/checker.ts RUN_DIR\n");
    process.exit(1);
  }
  const verdict = check(readHistory(folder));
  console.log(formatVerdict(verdict, 100));
  process.exit(verdict.met ? 0 : 1);
}
