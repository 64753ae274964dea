import type { Finding } from "./criteria-money.ts";
import { type ClientEvent, NO_ANSWER, UNCLEAR } from "./history.ts";
import type { Ledger, RequestRecord } from "./ledger.ts";

/** Codes of refusals that ADMIT itself decides: they leave no record at all. */
const REFUSED_AT_ADMISSION = new Set([400, 401, 402, 409, 422, 2001, 2002, 2003, 2005, 2006]);
/** Requests sent in the last moments before a kill may have been lost on their way. */
const KILL_SLACK_MS = 100;
/** A kill explains an uncharged task for so long after its answer; by then a BIND was sent or journaled. */
const BIND_MAX_MS = 2000;

/** A request answered 503 or refused has left no hold, no slot, no window entry, no count. */
export function refusedLeavesNothing({
  generations,
  requests,
  upstream,
  history,
  mayForget,
}: Ledger): Finding {
  const violations: string[] = [];
  const forgottenVoids = new Set(
    history.link
      .filter(({ script, atMs }) => script === "void" && mayForget(atMs))
      .map(({ requestId }) => requestId),
  );
  let away = 0;
  let refused = 0;
  for (const { code, requestId } of generations) {
    const request = requests.get(requestId);
    if (code === 503) {
      away++;
      const isVoid = request?.state === "void";
      const traceless =
        !request || (isVoid && (request.reason === "unsent" || forgottenVoids.has(requestId)));
      if (!traceless) violations.push(`${requestId} was answered 503 and is ${stateOf(request)}`);
      if (upstream.has(requestId)) violations.push(`${requestId} was answered 503 and went upstream`);
    } else if (REFUSED_AT_ADMISSION.has(code) && !upstream.has(requestId)) {
      refused++;
      if (request) violations.push(`${requestId} was refused with ${code} and is ${stateOf(request)}`);
    }
  }
  return { figure: `${away} answered 503, ${refused} refused at admission`, violations };
}

const stateOf = ({ state, reason }: RequestRecord): string => `${state} ${reason}`.trim();

/** The record of the link to Redis: requests whose BIND was answered to last, and the gateway that admitted each. */
const linkTraces = ({ history: { link }, mayForget }: Ledger) => ({
  bound: new Set(
    link
      .filter(
        ({ script, outcome, atMs }) =>
          script === "bind" && outcome !== "" && !UNDONE.has(outcome) && !mayForget(atMs),
      )
      .map(({ requestId }) => requestId),
  ),
  // The upstream knows a gateway by its slot, which may be another's by the time a killed one's connection is taken.
  admittedBy: new Map(
    link
      .filter(({ script, gateway }) => script === "admit" && gateway !== "")
      .map(({ requestId, gateway }) => [requestId, gateway]),
  ),
});

/**
 * A task that the upstream accepted is charged; one that it refused or left unclear is not. Tasks made are tasks charged and tasks
 * explained. A task that it handed over to a gateway that was killed before its BIND or its journal line is uncharged:
 * each is listed, and needs its kill. So is one whose BIND came late and is uncollected, or was given up: it needs the
 * repeat that is charged in its place, or the line of the log that names it.
 */
export function upstreamAgrees(ledger: Ledger): Finding & { uncharged: string[] } {
  const { history, generations, requests, namedLost } = ledger;
  const violations: string[] = [];
  const uncharged: string[] = [];
  const killedMs = killTimes(history.faults);
  const answers = new Map(generations.map((event) => [event.requestId, event]));
  const { bound, admittedBy } = linkTraces(ledger);
  // A client that stays is told so with a 504; of one that left only the gateway's log has it.
  const timedOut = new Set(history.faults.filter(({ kind }) => kind === NO_ANSWER).map(({ phase }) => phase));
  let accepted = 0;
  let unknown = 0;
  let uncollected = 0;
  let named = 0;
  for (const { requestId, truth, taskId, answeredMs, kind, atMs, ...seen } of history.upstream) {
    // Unmetered requests have a criterion of their own.
    if (answers.get(requestId)?.degraded) continue;
    const gateway = admittedBy.get(requestId) ?? seen.gateway;
    const request = requests.get(requestId);
    if (!request?.admitted) {
      if (!ledger.mayForget(atMs)) violations.push(`${requestId} went upstream without a hold`);
    } else if (request.admittedMs > atMs + history.meta.toleranceMs + history.meta.clockAheadMs)
      violations.push(`${requestId} went before its hold`);
    const isBound = request?.state === "bound" || request?.state === "finished";
    // An unknown outcome is bound by its callback, and only by it.
    const isCalledBack = seen.calledBackMs !== undefined && request?.taskId === taskId;
    if (truth !== "yes") {
      if (isBound && !isCalledBack)
        violations.push(`${requestId} (${kind}) is ${request.state} though the upstream gave no task`);
      continue;
    }
    if (isBound || answeredMs === 0) {
      if (isBound && request.taskId !== taskId) violations.push(`${requestId} is bound to ${request.taskId}`);
      if (!isBound) unknown++;
      else if (request.uncollected) {
        uncollected++;
        const why = whyUncollected(ledger, request);
        if (why === undefined) violations.push(`${requestId} is uncollected for no reason`);
        else uncharged.push(`${requestId} (${taskId}), ${why}`);
      } else accepted++;
      continue;
    }
    const lost = namedLost.get(requestId);
    if (lost !== undefined) {
      named++;
      uncharged.push(`${requestId} (${taskId}), ${lost}`);
      continue;
    }
    const status = answers.get(requestId)?.status ?? 0;
    const afterMs = (killedMs.get(gateway) ?? Number.POSITIVE_INFINITY) - answeredMs;
    // An answer to a gateway that was dead by then reached nobody, though it could be written.
    if (status === 504 || timedOut.has(requestId) || afterMs < 0) {
      unknown++;
      continue;
    }
    const explained = afterMs <= BIND_MAX_MS && status !== 200;
    if (explained && !bound.has(requestId)) uncharged.push(`${requestId} (${taskId}), ${gateway} killed`);
    else
      violations.push(
        `${requestId}: ${taskId} was accepted and is not charged (${request ? stateOf(request) : "unknown"}, ${status})`,
      );
  }
  const metered = history.upstream.filter(({ requestId }) => !answers.get(requestId)?.degraded);
  const made = metered.filter(({ truth }) => truth === "yes").length;
  const killed = uncharged.length - uncollected - named;
  return {
    figure:
      `${metered.length} seen upstream; ${made} tasks made = ${accepted} charged + ${unknown} whose answer reached nobody + ` +
      `${uncollected} uncollected (each beside its reason) + ${named} named as lost + ${killed} beside the kill of their gateway`,
    violations,
    uncharged,
  };
}

/** The repeat that is charged under the same key or was held when the BIND came, or a balance that was too low. */
function whyUncollected({ accounts, requests }: Ledger, late: RequestRecord): string | undefined {
  const { id, idempotency, boundMs, accountId, price } = late;
  const isHeldThen = ({ admittedMs, voidMs }: RequestRecord): boolean =>
    admittedMs <= boundMs && !(voidMs <= boundMs);
  const same = [...requests.values()].filter((other) => other.idempotency === idempotency && other.id !== id);
  const other =
    idempotency === "" ? undefined : same.find((request) => !request.uncollected && isHeldThen(request));
  if (other) return `its Idempotency-Key is that of ${other.id} (${stateOf(other)})`;
  const account = accounts.find((one) => one.accountId === accountId);
  if (!account) return undefined;
  const last = account.entries.filter((entry) => Number(entry.id.split("-")[0]) <= boundMs).at(-1);
  const held = account.requests.filter(
    (request) => request.id !== id && isHeldThen(request) && !(request.boundMs < boundMs),
  );
  const spendable = (last?.balanceAfter ?? 0) - held.reduce((sum, request) => sum + request.price, 0);
  return spendable < price ? `the balance had ${spendable} left` : undefined;
}

const killTimes = (faults: Ledger["history"]["faults"]): Map<string, number> =>
  new Map(faults.filter(({ kind }) => kind === "kill").map(({ gateway, atMs }) => [gateway, atMs]));

/** Answers to an ADMIT that has done nothing, so that it may be sent again. `ERR` is an error of one item. */
const UNDONE = new Set(["stale", "-NOSCRIPT", "-MOVED", "ERR"]);

/** No generation reaches the upstream twice; no ADMIT is sent again after it went out, unless it has done nothing. */
export function sentOnce({ history }: Ledger): Finding {
  const violations = history.upstream
    .filter(({ arrivals }) => arrivals > 1)
    .map(({ requestId, arrivals }) => `${requestId} came to the upstream ${arrivals} times`);
  const admits = history.link.filter(({ script }) => script === "admit");
  for (const [requestId, own] of Map.groupBy(admits, (event) => event.requestId)) {
    const repeats = own.slice(0, -1).filter(({ outcome }) => !UNDONE.has(outcome));
    if (repeats.length > 0) violations.push(`ADMIT of ${requestId} was sent ${own.length} times`);
  }
  return { figure: `${admits.length} ADMITs seen on the link`, violations };
}

/** Every request got an answer, unless its gateway was killed or its client left; none was answered 500. */
export function answered({ history }: Ledger): Finding {
  const violations: string[] = [];
  const killedMs = killTimes(history.faults);
  const statuses = new Map<number, number>();
  for (const event of history.client) {
    statuses.set(event.status, (statuses.get(event.status) ?? 0) + 1);
    const { status, gateway, left, endedMs, requestId } = event;
    if (status === 500) violations.push(`${requestId} was answered 500`);
    if (status !== 0 || left !== "") continue;
    const kill = killedMs.get(gateway);
    if (kill === undefined || endedMs < kill - KILL_SLACK_MS) violations.push(unanswered(event));
  }
  const figure = [...statuses]
    .sort(([a], [b]) => a - b)
    .map(([status, count]) => `${count} × ${status === 0 ? "none" : status}`);
  return { figure: figure.join(", "), violations };
}

const unanswered = ({ kind, gateway, sentMs, endedMs, error }: ClientEvent): string =>
  `a ${kind} to ${gateway} got no answer after ${endedMs - sentMs} ms: ${error}`;

/** Every fault struck where it was planned to: a proof of a phase that was never reached proves nothing. */
export function struck({ history: { faults } }: Ledger): Finding {
  const missed = faults.filter(({ kind }) => kind === "not reached");
  const counts = Map.groupBy(
    faults.filter(({ kind }) => kind !== NO_ANSWER && kind !== UNCLEAR),
    ({ kind }) => kind,
  );
  const figure = [...counts].map(([kind, own]) => `${own.length} × ${kind}`).join(", ");
  return { figure: figure || "none planned", violations: missed.map(({ phase }) => `not reached: ${phase}`) };
}

/** Nothing is open any more after 90 s. */
export function quiet({ history: { meta } }: Ledger): Finding {
  const seconds = (meta.quiescenceMs / 1000).toFixed(1);
  const late = !meta.quiet ? "never, given up" : meta.quiescenceMs > 90_000 ? "too late" : "";
  return {
    figure: `${seconds} s`,
    violations: late === "" ? [] : [`quiescence after ${seconds} s: ${late}`],
  };
}
