import type { Entry, Ledger, RequestRecord } from "./ledger.ts";

/** The finding of one criterion. */
export interface Finding {
  /** Told in the figures, such as "9,412 charged". */
  figure: string;
  violations: string[];
}

/** Charges; an adjustment has no request. */
const consumes = (entries: Entry[]): Entry[] =>
  entries.filter(({ type, requestId }) => type === "consume" && requestId !== "");
const isByHand = ({ requestId, reason }: Entry): boolean => requestId === "" && reason !== "";
const isCharged = ({ state, uncollected }: RequestRecord): boolean =>
  (state === "bound" || state === "finished") && !uncollected;

/** Every 200 and every bound request is charged exactly once; what was answered with an error is not charged. */
export function chargedOnce({ generations, requests, entries, namedLost, upstream }: Ledger): Finding {
  const violations: string[] = [];
  const charges = Map.groupBy(consumes(entries), ({ requestId }) => requestId);
  const byTask = Map.groupBy(consumes(entries), ({ taskId }) => taskId);
  let lost = 0;
  for (const [id, own] of charges) {
    const request = requests.get(id);
    if (own.length > 1) violations.push(`${id} is charged ${own.length} times`);
    if (!request || !isCharged(request))
      violations.push(`${id} is charged, but is ${request?.state ?? "not there"}`);
    else if (own[0]!.amount !== -request.price) violations.push(`${id} is charged ${own[0]!.amount}`);
  }
  for (const [taskId, own] of byTask) {
    if (own.length > 1) violations.push(`task ${taskId} is charged ${own.length} times`);
  }
  for (const request of requests.values()) {
    if (!isCharged(request) || charges.has(request.id)) continue;
    lost++;
    violations.push(`${request.id} has task ${request.taskId} and is not charged`);
  }
  for (const { status, requestId, replayed, degraded, taskId } of generations) {
    // Unmetered requests have a criterion of their own.
    if (status === 0 || degraded) continue;
    // A callback may name the task of an unknown outcome.
    const isCalledBack = upstream.get(requestId)?.calledBackMs !== undefined;
    if (status !== 200 && charges.has(requestId) && !isCalledBack)
      violations.push(`${requestId} was answered ${status} and charged`);
    if (status !== 200) continue;
    const request = requests.get(requestId);
    const paid = replayed ? byTask.has(taskId) : charges.has(requestId);
    if (paid || request?.uncollected || namedLost.has(requestId)) continue;
    lost++;
    violations.push(`${requestId} was answered 200 with ${taskId} and is not charged`);
  }
  const late = [...requests.values()].filter(({ voidMs, boundMs }) => voidMs > 0 && boundMs > 0);
  const uncollected = late.filter((request) => request.uncollected);
  return {
    figure: `${charges.size} charged, ${lost} lost; ${late.length} bound after their hold was void, ${uncollected.length} of them uncollected`,
    violations,
  };
}

/** A finished request that failed is refunded once, and one that an operator has refunded; nothing else ever is. */
export function refundedOnce({ requests, entries, upstream, history }: Ledger): Finding {
  const violations: string[] = [];
  const refunds = Map.groupBy(
    entries.filter(({ reason }) => reason === "refund"),
    ({ requestId }) => requestId,
  );
  const byHand = (history.meta.byHand ?? []).filter(({ outcomes }) => outcomes.includes("refunded"));
  const refunded = new Set(byHand.map(({ taskId }) => taskId));
  for (const request of requests.values()) {
    const { id, state, status, uncollected, unmetered, endedBy, taskId, chargedAgain } = request;
    const own = refunds.get(id) ?? [];
    const isDue = (status === "failed" && !uncollected && !unmetered) || chargedAgain || refunded.has(taskId);
    const due = state === "finished" && isDue ? 1 : 0;
    if (own.length !== due) violations.push(`${id} (${state} ${status}) is refunded ${own.length} times`);
    if (own[0] && own[0].amount !== request.price) violations.push(`${id} is refunded ${own[0].amount}`);
    const polledStates = upstream.get(id)?.polledStates;
    if (state === "finished" && endedBy === "upstream" && polledStates && !polledStates.includes(status)) {
      violations.push(`${id} ended as ${status}, which the upstream never said`);
    }
  }
  for (const id of refunds.keys()) if (!requests.has(id)) violations.push(`${id} is refunded and unknown`);
  return { figure: `${refunds.size} refunded, ${byHand.length} of them by hand`, violations };
}

/** Of two operators who did the same, one did it: what they were told is in the ledger, once, and nothing else is. */
export function byHandOnce({ entries, history }: Ledger): Finding {
  const violations: string[] = [];
  const all = history.meta.byHand ?? [];
  const made = Map.groupBy(
    entries.filter(({ reference }) => reference !== ""),
    ({ reference }) => reference,
  );
  let done = 0;
  for (const { kind, references, outcomes, amount, accountId, taskId, needsArchive } of all) {
    const own = [...new Set(references)].flatMap((reference) => made.get(reference) ?? []);
    const times = outcomes.filter((outcome) => outcome === "adjusted" || outcome === "refunded").length;
    done += times;
    const what = `${kind} ${references.join(" and ")} (${outcomes.join(" and ")})`;
    if (own.length !== times) violations.push(`${what} has ${own.length} entries`);
    if (times > 1) violations.push(`${what} was done ${times} times`);
    for (const entry of own) {
      const isRight = kind === "adjust" ? entry.amount === amount : entry.taskId === taskId;
      if (!isRight || entry.accountId !== accountId) violations.push(`${what} is another entry: ${entry.id}`);
    }
    const known = ["adjusted", "duplicate", "refunded", "conflict", ...(needsArchive ? ["unavailable"] : [])];
    for (const outcome of outcomes) if (!known.includes(outcome)) violations.push(`${what} failed`);
  }
  const planned = new Set(all.flatMap(({ references }) => references));
  for (const entry of entries.filter(isByHand))
    if (!planned.has(entry.reference)) violations.push(`entry ${entry.id} was made by nobody`);
  return { figure: `${all.length} pairs of operators, ${done} did it`, violations };
}

/** balance = granted - consumed + refunded + adjusted, the ledger chains, nothing is held, counts are true. */
export function ledgerBalances({ accounts, requests, history }: Ledger): Finding {
  const violations: string[] = [];
  for (const account of accounts) {
    const { accountId, granted, balance, held, totalUsed, totalRequests, entries } = account;
    let chained = 0;
    for (const entry of entries) {
      chained += entry.amount;
      if (entry.balanceAfter !== chained || chained < 0) {
        violations.push(`${accountId}: entry ${entry.id} says ${entry.balanceAfter} after ${chained}`);
        chained = entry.balanceAfter;
      }
    }
    const used = -entries
      .filter(({ requestId }) => requestId !== "")
      .reduce((sum, { amount }) => sum + amount, 0);
    const adjusted = entries.filter(isByHand).reduce((sum, { amount }) => sum + amount, 0);
    if (balance !== chained) violations.push(`${accountId}: balance ${balance}, ledger ${chained}`);
    if (balance !== granted - used + adjusted)
      violations.push(
        `${accountId}: ${granted} granted, ${used} used, ${adjusted} adjusted, ${balance} left`,
      );
    if (totalUsed !== used) violations.push(`${accountId}: total_used ${totalUsed}, ledger ${used}`);
    if (held !== 0) violations.push(`${accountId}: ${held} still held`);
    const counted = account.requests.filter(countsForEver).length;
    if (totalRequests !== counted)
      violations.push(`${accountId}: total_requests ${totalRequests}, not ${counted}`);
  }
  for (const { id, state } of requests.values()) if (state === "held") violations.push(`${id} is still held`);
  violations.push(...history.meta.verified.map((line) => `ledger verify: ${line}`));
  return { figure: `${accounts.length} accounts`, violations };
}

/** True if a request counts in total_requests and in the window: `unsent` takes it back wholly. */
export const countsForEver = ({ admitted, state, reason }: RequestRecord): boolean =>
  admitted && !(state === "void" && reason === "unsent");

/** One Idempotency-Key is charged once, and all its 200s tell the same task. */
export function idempotent({ generations, requests, entries }: Ledger): Finding {
  const violations: string[] = [];
  const keyed = generations.filter(({ idempotencyKey }) => idempotencyKey !== "");
  for (const [key, own] of Map.groupBy(keyed, (event) => `${event.accountId} ${event.idempotencyKey}`)) {
    const tasks = new Set(own.filter(({ status }) => status === 200).map(({ taskId }) => taskId));
    if (tasks.size > 1) violations.push(`Idempotency-Key ${key} made ${[...tasks].join(", ")}`);
  }
  const records = [...requests.values()].filter((request) => request.idempotency !== "");
  const charged = new Set(consumes(entries).map(({ requestId }) => requestId));
  for (const [digest, own] of Map.groupBy(records, ({ idempotency }) => idempotency)) {
    const paid = own.filter(({ id }) => charged.has(id));
    if (paid.length > 1) violations.push(`Idempotency-Key digest ${digest} is charged ${paid.length} times`);
  }
  const replays = keyed.filter(({ replayed }) => replayed).length;
  return { figure: `${keyed.length} requests with a key, ${replays} replays`, violations };
}
