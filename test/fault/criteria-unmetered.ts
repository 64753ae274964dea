import { PRICE } from "./client.ts";
import type { Finding } from "./criteria-money.ts";
import type { ClientEvent } from "./history.ts";
import type { Ledger } from "./ledger.ts";

/** The fault that begins a time in which Redis refuses the gateways; the same with `again` ends it. */
export const REFUSES = "Redis refuses";
export const SERVES = "Redis serves again";

/**
 * A request passes unmetered only while Redis is away, with a key that is valid and has not reached its cap. Its task is bound
 * once, at price 0, for the account that made it, and none of its polls is told that there is no such task.
 */
export function unmeteredOnce(ledger: Ledger): Finding {
  const { generations, requests, entries, history } = ledger;
  const passed = generations.filter(({ degraded, status }) => degraded && status === 200);
  const violations = [...passedWrongly(ledger, passed)];
  for (const { requestId, remaining } of passed)
    if (remaining < 1) violations.push(`${requestId} passed unmetered and was told that ${remaining} remain`);
  const byTask = Map.groupBy(requests.values(), ({ taskId }) => taskId);
  const entriesByTask = Map.groupBy(entries, ({ taskId }) => taskId);
  const owners = new Map(passed.map(({ taskId, accountId }) => [taskId, accountId]));
  for (const [taskId, accountId] of owners) {
    const [request, ...others] = byTask.get(taskId) ?? [];
    if (!request) violations.push(`${taskId} passed unmetered and is not bound`);
    else if (others.length > 0)
      violations.push(`${taskId} passed unmetered and is bound ${1 + others.length} times`);
    else if (!request.unmetered || request.price !== 0 || request.accountId !== accountId)
      violations.push(
        `${taskId} passed unmetered for ${accountId} and is ${request.price} of ${request.accountId}`,
      );
    const own = entriesByTask.get(taskId) ?? [];
    if (own.length !== 1 || own[0]!.amount !== 0 || own[0]!.reason !== "unmetered")
      violations.push(`${taskId} passed unmetered and has ${own.length} entries`);
  }
  for (const { id, unmetered, taskId } of requests.values())
    if (unmetered && !owners.has(taskId))
      violations.push(`${id} is unmetered, and ${taskId} was told to nobody`);
  const polls = history.client.filter(({ kind, taskId }) => kind === "poll" && owners.has(taskId));
  for (const { taskId, accountId, status, gateway } of polls)
    if (status === 404 && owners.get(taskId) === accountId)
      violations.push(`${gateway} did not find ${taskId}, which passed unmetered`);
  return { figure: `${passed.length} passed, ${polls.length} polls of their tasks`, violations };
}

function* passedWrongly({ accounts, history }: Ledger, passed: readonly ClientEvent[]): Generator<string> {
  const at = (kind: string): number =>
    history.faults.find((fault) => fault.kind === kind)?.atMs ?? Number.NaN;
  const [fromMs, toMs] = [at(REFUSES), at(SERVES)];
  for (const { requestId, sentMs, endedMs } of passed)
    if (sentMs >= fromMs && endedMs <= toMs) yield `${requestId} passed unmetered while Redis refused`;
  for (const {
    keyId,
    endsAtMs = Number.POSITIVE_INFINITY,
    monthly_credits = Number.POSITIVE_INFINITY,
  } of accounts) {
    const own = passed.filter((event) => event.keyId === keyId);
    for (const { requestId, sentMs } of own)
      if (sentMs > endsAtMs + history.meta.toleranceMs)
        yield `${requestId} passed unmetered though ${keyId} had ended`;
    for (const [gateway, through] of Map.groupBy(own, (event) => event.gateway))
      if (through.length * PRICE > monthly_credits)
        yield `${through.length} requests of ${keyId} passed unmetered through ${gateway}, above its cap`;
  }
}
