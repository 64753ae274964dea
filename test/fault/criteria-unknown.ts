import { CALLBACKS } from "../../src/gateway/callbacks.ts";
import type { Finding } from "./criteria-money.ts";
import { type ClientEvent, UNCLEAR, type UpstreamEvent } from "./history.ts";
import type { Ledger, RequestRecord } from "./ledger.ts";

/** A request whose outcome the gateway could not know, and when its customer was told so. */
interface Unknown {
  request: RequestRecord;
  event: UpstreamEvent;
  polledMs: number;
  status: number;
}

/**
 * The hold of an unknown outcome whose video a callback brings lasts as long as a task may run, and an account with as many unknown
 * outcomes as it may have sends nothing upstream. The log names the task ids that unclear answers had. Decision 0003.
 */
export function unknownKept(ledger: Ledger): Finding {
  const { maxAgesMs, toleranceMs, clockAheadMs, unknownOutcomesMax } = ledger.history.meta;
  const violations: string[] = [];
  const unknown = unknownOf(ledger);
  const calledBack = unknown.filter(({ request, event }) => request.hasCallback || isCustomers(event));
  for (const { request, event } of calledBack) {
    const { id, admittedMs, voidMs, retentionMs } = request;
    const wantedMs = Math.min(maxAgesMs[event.gateway]!, retentionMs);
    const keptMs = voidMs - admittedMs;
    if (keptMs + toleranceMs < wantedMs)
      violations.push(`${id} (${event.kind}) has a callBackUrl and was held for ${keptMs} of ${wantedMs} ms`);
  }
  const logged = new Map(
    ledger.history.faults
      .filter(({ kind }) => kind === UNCLEAR)
      .map(({ phase, detail = "" }) => [phase, detail]),
  );
  for (const { event, status } of unknown) {
    const { requestId, kind, taskId } = event;
    const hadId = kind.endsWith("_a_task_id") && status === 502;
    if (hadId && !logged.get(requestId)?.includes(taskId))
      violations.push(`${requestId} (${kind}): the log does not name ${taskId}`);
  }
  const byAccount = Map.groupBy(unknown, ({ request }) => request.accountId);
  let fullest = 0;
  for (const { requestId, accountId, sentMs } of ledger.generations) {
    const earlier = (byAccount.get(accountId) ?? []).filter(
      ({ request, polledMs }) =>
        polledMs < sentMs && !(endedMs(request) <= sentMs + toleranceMs + clockAheadMs),
    ).length;
    fullest = Math.max(fullest, earlier);
    if (earlier >= unknownOutcomesMax && ledger.upstream.has(requestId))
      violations.push(`${requestId} of ${accountId} went upstream beside ${earlier} unknown outcomes`);
  }
  return {
    figure: `${unknown.length} unknown outcomes, ${calledBack.length} of them with a callBackUrl; at most ${fullest} at a time`,
    violations,
  };
}

/** True if the upstream calls the customer back, and no gateway. */
const isCustomers = ({ callBackUrl }: UpstreamEvent): boolean =>
  callBackUrl !== undefined && !callBackUrl.includes(CALLBACKS);

/** A hold ends when it is due; the sweeper voids it at its next look. NaN for a request that is not void. */
const endedMs = ({ dueMs, voidMs }: RequestRecord): number => Math.min(dueMs, voidMs);

function unknownOf({ generations, requests, upstream }: Ledger): Unknown[] {
  const answers = new Map<string, ClientEvent>(generations.map((answer) => [answer.requestId, answer]));
  return [...upstream.values()].flatMap((event) => {
    const request = requests.get(event.requestId);
    const answer = answers.get(event.requestId);
    const isUnknown = event.truth === "unknown" && request?.admitted && answer && answer.status > 0;
    return isUnknown ? [{ request, event, polledMs: answer.endedMs, status: answer.status }] : [];
  });
}
