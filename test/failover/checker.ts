import { CRITERIA, judgeBy, type Rule, type Verdict } from "../fault/checker.ts";
import { noFalseRefusal } from "../fault/criteria-limits.ts";
import { chargedOnce, type Finding, idempotent } from "../fault/criteria-money.ts";
import { sentOnce } from "../fault/criteria-traces.ts";
import { WEBHOOK_ACROSS_FAILOVERS } from "../fault/criteria-webhooks.ts";
import type { History } from "../fault/history.ts";
import { type Ledger, readLedger } from "../fault/ledger.ts";
import { type Forgotten, forgottenAdmissions, mostAbove, withForgotten } from "./forgotten.ts";
import type { OperatorEvent } from "./operators.ts";

/** The facts of a round that the checker needs. */
export interface RoundFacts {
  fault: string;
  /** When it struck, Unix ms. */
  strikeMs: number;
  /** Writes that the primary took between these moments may be lost, Unix ms. */
  forgets?: readonly [fromMs: number, toMs: number] | undefined;
  /** No gateway was left: some time is that of their start. */
  lostAllGateways: boolean;
  /** Until the customers of each partition were served again, in ascending order, ms. */
  servedMs: readonly number[];
}

/** The record of a run: requests, messages to operators, and what happened to the store. */
export interface FailoverHistory extends History {
  operators: OperatorEvent[];
  rounds: readonly RoundFacts[];
  /** How often another node took over. */
  failovers: number;
  /** Until every partition must be served again, ms; 10 s when left out. */
  servedMaxMs?: number | undefined;
}

export interface Facts extends Ledger {
  operators: OperatorEvent[];
  rounds: readonly RoundFacts[];
  failovers: number;
  servedMaxMs: number;
  forgotten: Forgotten[];
}

/** With timeouts of a second in the servers. */
const SERVED_MAX_MS = 10_000;

const consumes = ({ entries }: Ledger) => entries.filter(({ type }) => type === "consume");

/** The account of a request that was answered 200 is the one that pays for it. */
function chargedToOwner(facts: Facts): Finding {
  const byTask = new Map(consumes(facts).map((entry) => [entry.taskId, entry]));
  const answered = facts.generations.filter(({ status }) => status === 200);
  const violations = answered
    .filter(({ taskId, accountId }) => (byTask.get(taskId)?.accountId ?? accountId) !== accountId)
    .map(
      ({ taskId, accountId }) => `${taskId} of ${accountId} is charged to ${byTask.get(taskId)!.accountId}`,
    );
  return { figure: `${answered.length} answered with 200`, violations };
}

/** A grant that an operator was told of is there once; no grant is there that nobody made. */
function grantsKept({ operators, entries }: Facts): Finding {
  const violations: string[] = [];
  const grants = entries.filter(({ type, reason }) => type === "recharge" && reason !== "refund");
  const byReference = Map.groupBy(grants, ({ accountId, reference }) => `${accountId} ${reference}`);
  const sent = operators.filter(({ kind }) => kind === "grant");
  const acknowledged = sent.filter((event) => event.acknowledged);
  for (const { accountId, reference, credits } of acknowledged) {
    const own = byReference.get(`${accountId} ${reference}`) ?? [];
    if (own.length === 0) violations.push(`${credits} for ${accountId} (${reference}) are lost`);
  }
  for (const [name, own] of byReference) {
    const isKnown = sent.some(({ accountId, reference }) => name === `${accountId} ${reference}`);
    if (!isKnown && !own[0]!.reference.startsWith("key:")) violations.push(`${name} was granted by nobody`);
    if (own.length > 1) violations.push(`${name} was granted ${own.length} times`);
  }
  return { figure: `${sent.length} commands, ${acknowledged.length} of them acknowledged`, violations };
}

/** A key that an operator was told of, and that nobody has revoked, is never called unknown. */
function keysKept({ operators, generations }: Facts): Finding {
  const violations: string[] = [];
  const made = operators.filter(({ kind, keyId }) => kind === "create" && keyId !== "");
  for (const { keyId, endedMs } of made) {
    const revokedMs = firstRevocation(operators, keyId);
    const used = generations.filter((event) => event.keyId === keyId && event.sentMs > endedMs);
    const refused = used.filter(({ status, endedMs: at }) => status === 401 && at < revokedMs);
    if (refused.length > 0) violations.push(`${keyId} is lost: ${refused.length} times 401`);
    if (used.length === 0) violations.push(`${keyId} was never used, so nobody knows`);
  }
  return { figure: `${made.length} keys made`, violations };
}

/** Each kind of command ended well at least once: what was never acknowledged cannot be lost. */
function operatorsAnswered({ operators }: Facts): Finding {
  const acknowledged = operators.filter((event) => event.acknowledged);
  const kinds = ["create", "grant", "revoke"] as const;
  const missing = kinds.filter((kind) => !acknowledged.some((event) => event.kind === kind));
  const [failed] = operators.filter(({ error }) => error !== "");
  return {
    figure: `${operators.length} commands, ${acknowledged.length} acknowledged`,
    violations: missing.map((kind) => `no ${kind} was acknowledged; ${failed?.error ?? "none was tried"}`),
  };
}

const firstRevocation = (operators: readonly OperatorEvent[], keyId: string): number =>
  operators.find((event) => event.kind === "revoke" && event.keyId === keyId)?.sentMs ??
  Number.POSITIVE_INFINITY;

/** A key whose revocation an operator was told of is refused from then on. */
function revocationsKept({ operators, generations }: Facts): Finding {
  const violations: string[] = [];
  const revocations = operators.filter(({ kind, acknowledged }) => kind === "revoke" && acknowledged);
  let used = 0;
  for (const { keyId, endedMs } of revocations) {
    const later = generations.filter((event) => event.keyId === keyId && event.sentMs > endedMs);
    const served = later.filter(({ status }) => status === 200);
    used += later.length;
    if (served.length > 0) violations.push(`${keyId} is revoked, and was served ${served.length} times`);
    if (later.length === 0) violations.push(`${keyId} was never used after its revocation, so nobody knows`);
  }
  return { figure: `${revocations.length} keys revoked, used ${used} times after it`, violations };
}

/** Requests that a failover has lost were admitted no longer before it than a replica may lag. */
function overAdmission(facts: Facts): Finding {
  const { mayForget } = facts;
  const forgotten = facts.forgotten.filter(({ isUpstream }) => isUpstream);
  const violations = forgotten
    .filter(({ atMs }) => !mayForget(atMs))
    .map(
      ({ requestId, atMs }) =>
        `${requestId} was admitted at ${atMs} and forgotten, though no failover was near`,
    );
  const figure = `${forgotten.length} admissions forgotten, at most ${mostAbove(facts, forgotten)} above a limit in 60 s`;
  return { figure, violations };
}

/** Every partition is served again in time, whatever befell its primary, where a gateway was left. */
function servedAgain({ rounds, servedMaxMs }: Facts): Finding {
  const slowestOf = ({ servedMs }: RoundFacts): number => servedMs.at(-1) ?? Number.POSITIVE_INFINITY;
  const violations = rounds.flatMap((round, at) =>
    slowestOf(round) > servedMaxMs && !round.lostAllGateways
      ? [`round ${at + 1}, ${round.fault}: after ${slowestOf(round)} ms`]
      : [],
  );
  const worst = (lostAll: boolean): number =>
    Math.max(0, ...rounds.filter(({ lostAllGateways }) => lostAllGateways === lostAll).map(slowestOf));
  const figure = `${rounds.length} rounds, after ${worst(false)} ms at worst (at most ${servedMaxMs}), and ${worst(true)} ms where all gateways were killed`;
  return { figure, violations };
}

/** As for one server, and what a failover has forgotten counted until then. */
const noFalseRefusalBeside = (facts: Facts): Finding =>
  noFalseRefusal({ ...facts, accounts: withForgotten(facts, facts.forgotten) });

/** True at each moment without load, whatever is still open. */
const AFTER_EACH_ROUND: readonly Rule<Facts>[] = [
  ["charged exactly once, nothing lost", chargedOnce],
  ["charged to the account that asked", chargedToOwner],
  ["one Idempotency-Key, one charge", idempotent],
  ["grants last", grantsKept],
  ["keys last", keysKept],
  ["revoked keys stay revoked", revocationsKept],
  ["nothing sent twice", sentOnce],
  ["over-admission within the lag", overAdmission],
];

/** One server alone can be another one, and only what fails over forgets. */
const OF_ONE_SERVER = new Set(["stores are kept apart", "no false refusal"]);

/** True at the end, when nothing is open any more. */
const AT_THE_END: readonly Rule<Facts>[] = [
  ...AFTER_EACH_ROUND,
  ["operators' commands are acknowledged", operatorsAnswered],
  ...CRITERIA.filter(([name]) => !OF_ONE_SERVER.has(name) && !AFTER_EACH_ROUND.some(([own]) => own === name)),
  ["no false refusal", noFalseRefusalBeside],
  ["every key is served again in time", servedAgain],
];

export const checkRound = (history: FailoverHistory): Verdict => judgeBy(AFTER_EACH_ROUND, factsOf(history));

/** @param more what this run is judged by beside */
export const checkEnd = (history: FailoverHistory, more: readonly Rule<Facts>[] = []): Verdict =>
  judgeBy([...AT_THE_END, ...(history.webhooks ? WEBHOOK_ACROSS_FAILOVERS : []), ...more], factsOf(history));

/** An account has what it was given at first, and what was granted since: `grantsKept` judges whether that is right. */
function factsOf(history: FailoverHistory): Facts {
  const { entries } = readLedger(history);
  const grants = entries.filter(({ reference }) => reference !== "" && !reference.startsWith("key:"));
  const byAccount = Map.groupBy(grants, ({ accountId }) => accountId);
  const accounts = history.meta.accounts.map((account) => {
    const own = byAccount.get(account.accountId) ?? [];
    return { ...account, granted: account.granted + own.reduce((sum, { amount }) => sum + amount, 0) };
  });
  const meta = { ...history.meta, accounts };
  const ledger = readLedger({ ...history, meta });
  const { operators, rounds, failovers, servedMaxMs = SERVED_MAX_MS } = history;
  const mayForget = (atMs: number): boolean =>
    rounds.some(({ forgets }) => forgets !== undefined && atMs >= forgets[0] && atMs <= forgets[1]);
  return {
    ...ledger,
    operators,
    rounds,
    failovers,
    servedMaxMs,
    mayForget,
    forgotten: forgottenAdmissions(ledger),
  };
}
