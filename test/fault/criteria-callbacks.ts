import type { Finding } from "./criteria-money.ts";
import type { UpstreamEvent } from "./history.ts";
import type { Ledger, RequestRecord } from "./ledger.ts";

/** There is no video for nothing: a task whose callback a gateway has taken is charged if it completed, and not if it failed; but for what a failover may have lost, if its gateway was killed as well. */
export function noVideoForNothing(ledger: Ledger): Finding {
  const { upstream, requests, entries, history } = ledger;
  const violations: string[] = [];
  const net = new Map<string, number>();
  for (const { requestId, amount } of entries) net.set(requestId, (net.get(requestId) ?? 0) + amount);
  const counts = { taken: 0, unknown: 0, again: 0, uncollected: 0, lost: 0 };
  const killed = new Set(history.faults.filter(({ kind }) => kind === "kill").map(({ gateway }) => gateway));
  const isLost = (event: UpstreamEvent): boolean =>
    killed.has(event.gateway) && (ledger.mayForget(event.atMs) || ledger.mayForget(event.calledBackMs!));
  for (const event of upstream.values()) {
    if (event.calledBackMs === undefined || event.taskId === "" || event.truth === "no") continue;
    counts.taken++;
    if (event.truth === "unknown") counts.unknown++;
    const request = requests.get(event.requestId);
    if (request?.chargedAgain) counts.again++;
    if (request?.uncollected) counts.uncollected++;
    const wrong = request ? wrongEnd(event, request, net.get(event.requestId) ?? 0) : "is not known";
    if (wrong !== "" && isLost(event)) counts.lost++;
    else if (wrong !== "")
      violations.push(`${event.requestId} (${event.kind}), whose callback was taken, ${wrong}`);
  }
  const { taken, unknown, again, uncollected, lost } = counts;
  const figure =
    `${taken} requests with a taken callback, ${unknown} of them with an unknown outcome; ${again} charged again after they were too old; ` +
    `${uncollected} uncollected and told to nobody${lost === 0 ? "" : `; ${lost} lost beside the kill of their gateway`}`;
  return { figure, violations };
}

/** A task is charged or not; one whose credits are another request's by now is told to nobody, which `messagesAreTrue` judges. */
function wrongEnd(event: UpstreamEvent, request: RequestRecord, net: number): string {
  const { state, status, price, uncollected } = request;
  if (uncollected) return "";
  if (state !== "finished") return `is ${state}`;
  const { polledStates, completesMs = Number.POSITIVE_INFINITY, lastCalledBackMs = 0 } = event;
  // Also of one that nobody asked about, though its callback said so.
  const hasCompleted = polledStates.includes("completed") || lastCalledBackMs > completesMs;
  if (hasCompleted && polledStates.includes("failed")) return "";
  if (hasCompleted && status !== "completed") return `has completed, and is ${status}`;
  const due = hasCompleted ? -price : 0;
  return net === due ? "" : `has ${hasCompleted ? "completed" : "failed"}, and ${-net} is charged`;
}
