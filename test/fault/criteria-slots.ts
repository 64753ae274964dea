import type { Rule } from "./checker.ts";
import type { Finding } from "./criteria-money.ts";
import type { PostedCallback } from "./history.ts";
import type { Ledger } from "./ledger.ts";

const SLOT_MS_MAX = 1000;

/** From a callback of the upstream until the script that ends the task and frees its slot, by Redis' own clock. */
function slotsComeBack({ history, requests, upstream }: Ledger): Finding {
  const violations: string[] = [];
  const tookMs = new Map<number, number[]>();
  const polledMs: number[] = [];
  for (const { requestId, endpoint, gateways, postedMs, status, isSlotTaken } of history.posted!) {
    const { state, finishedMs = Number.NaN } = requests.get(requestId) ?? {};
    const [firstMs = Number.NaN] = upstream.get(requestId)?.polledMs ?? [];
    const which = `${requestId} (${endpoint}, ${many(gateways)})`;
    const took = Math.max(0, finishedMs - postedMs);
    if (state === "finished") tookMs.set(gateways, [...(tookMs.get(gateways) ?? []), took]);
    if (state !== "finished")
      violations.push(`${which} is ${state} though its callback was answered ${status}`);
    else if (took > SLOT_MS_MAX) violations.push(`${which} had its slot for ${took} ms after its callback`);
    else if (isSlotTaken)
      violations.push(`${which} has ended, and its slot was taken a second after its callback`);
    if (firstMs < postedMs) violations.push(`${which} was polled before its callback`);
    if (firstMs >= postedMs) polledMs.push(firstMs - postedMs);
  }
  const each = [...tookMs].map(([gateways, took]) => `${many(gateways)}: ${spread(took)}`);
  return { figure: `${each.join("; ")}; the poll that it leads to came ${spread(polledMs)}`, violations };
}

const many = (gateways: number): string => `${gateways} gateway${gateways === 1 ? "" : "s"}`;

const spread = (values: readonly number[]): string => {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number): number => sorted[Math.ceil(share * sorted.length) - 1] ?? Number.NaN;
  return `after ${at(0.5)} ms (p50), ${at(0.99)} ms (p99), at most ${at(1)} ms`;
};

/** No generation of any endpoint is without an address, and each was called back about. */
function allCalledBack({ history, upstream, generations }: Ledger): Finding {
  const posted = new Set(history.posted!.map(({ requestId }) => requestId));
  const violations = [...upstream.values()]
    .filter(({ requestId }) => !posted.has(requestId))
    .map(
      ({ requestId, callBackUrl = "no address" }) => `${requestId} was not called back about: ${callBackUrl}`,
    );
  for (const { requestId, status } of generations)
    if (status !== 200) violations.push(`${requestId} was answered ${status}`);
  const byEndpoint = Map.groupBy(history.posted!, ({ endpoint }: PostedCallback) => endpoint);
  const counts = [...byEndpoint].map(([endpoint, all]) => `${all.length} of ${endpoint}`);
  return { figure: counts.sort().join(", "), violations };
}

/** Of runs where only a callback can end a task in time. */
export const SLOT_CRITERIA: readonly Rule<Ledger>[] = [
  ["every generation is called back about", allCalledBack],
  [`slots come back within ${SLOT_MS_MAX} ms of the callback, without polls`, slotsComeBack],
];
