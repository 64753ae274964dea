import type { Rule } from "./checker.ts";
import { noVideoForNothing } from "./criteria-callbacks.ts";
import type { Finding } from "./criteria-money.ts";
import {
  CALLBACK,
  type KnownEndpoint,
  type Look,
  type ReceivedMessage,
  type Settling,
  type WebhookFacts,
} from "./history.ts";
import type { Ledger, RequestRecord } from "./ledger.ts";
import { requestIdOf } from "./webhook-stage.ts";

/** After a fault a try may stay unsettled for so long; before it, an answer may be on its way. */
const FAULT_BEFORE_MS = 1000;
const FAULT_AFTER_MS = 4000;

/** The receiver may see the end of a try so late, on a busy machine. */
const SEEN_LATE_MS = 500;
/** A try begins at most so long after its lease, as src/webhooks/delivery-worker.ts has it. */
const LEASED_BEFORE_MS = [0, 1250, 2500];

const isTaken = ({ status }: ReceivedMessage): boolean => status >= 200 && status < 300;
const ofOne = ({ endpointId, accountId, webhookId }: ReceivedMessage): string =>
  `${endpointId} ${endpointId === CALLBACK ? accountId : ""} ${webhookId}`;
const webhooks = ({ history }: Ledger): WebhookFacts => history.webhooks!;
const isTask = ({ type }: ReceivedMessage): boolean => type.startsWith("task.");

/** Requests whose customers must be told of their end. */
const endsOf = ({ requests }: Ledger): RequestRecord[] =>
  [...requests.values()].filter(({ state, uncollected }) => state === "finished" && !uncollected);

/** Each end of a task, and where it must be told: at every endpoint that was enabled when it came, and at the address of its request. */
export function endsToDeliver(ledger: Ledger): { request: RequestRecord; places: string[] }[] {
  const { toleranceMs } = ledger.history.meta;
  const byAccount = Map.groupBy(webhooks(ledger).endpoints, ({ accountId }) => accountId);
  return endsOf(ledger)
    .map((request) => {
      const { accountId, hasCallback, finishedMs } = request;
      const own = (byAccount.get(accountId) ?? []).filter((one) => wasEnabled(one, finishedMs, toleranceMs));
      const places = own.map(({ endpointId }) => `${endpointId} `);
      return { request, places: hasCallback ? [...places, `${CALLBACK} ${accountId}`] : places };
    })
    .filter(({ places }) => places.length > 0);
}

/** Each end is told wherever it must be, or is listed as failed there. */
function deliveredAtLeastOnce(ledger: Ledger): Finding {
  const { stored, settlings, tries, waiting, messages } = webhooks(ledger);
  const violations: string[] = waiting > 0 ? [`${waiting} deliveries still wait`] : [];
  const taken = new Set(messages.filter(isTaken).map(ofOne));
  const gone = new Set(
    messages.filter(({ status }) => status === 410).map((one) => `${one.endpointId} ${one.webhookId}`),
  );
  const failed = new Set(
    stored
      .filter(
        (one) =>
          one.status === "failed" && (one.tries === tries || gone.has(`${one.endpointId} ${one.webhookId}`)),
      )
      .map(({ endpointId, webhookId }) => `${endpointId} ${webhookId}`),
  );
  // An endpoint keeps the latest thousand: the end of an earlier one was seen on the way.
  for (const { endpointId, webhookId, outcome } of settlings)
    if (outcome === "failed" || outcome === "disabled") failed.add(`${endpointId} ${webhookId}`);
  const counts = { delivered: 0, failed: 0 };
  const ends = endsToDeliver(ledger);
  for (const { request, places } of ends) {
    const { id, status } = request;
    for (const place of places) {
      const name = `${place} evt_${id}_task_${status}`;
      if (taken.has(name)) counts.delivered++;
      else if (failed.has(`${place.split(" ")[0]} evt_${id}_task_${status}`)) counts.failed++;
      else violations.push(`${id} (${status}) was never told to ${place}`);
    }
  }
  const figure = `${ends.length} ends, ${counts.delivered} times told, ${counts.failed} listed as failed after ${tries} tries or 410`;
  return { figure, violations };
}

const wasEnabled = ({ enabledMs }: KnownEndpoint, atMs: number, toleranceMs: number): boolean =>
  enabledMs.some(([fromMs, toMs]) => atMs > fromMs + toleranceMs && atMs < toMs - toleranceMs);

/** All tries of a message have one id and one body, and are signed with a secret of the account if it has one. */
const oneIdAndBody = (ledger: Ledger): Finding => sameOverTries(ledger, ({ body }) => body);

/** An end that was lost is told again as it is seen again: at another time. */
const oneIdAndEnd = (ledger: Ledger): Finding =>
  sameOverTries(ledger, ({ body }) => body.replace(/"timestamp":"[^"]*",/, ""));

function sameOverTries(ledger: Ledger, answeredBy: (message: ReceivedMessage) => string): Finding {
  const { messages, endpoints } = webhooks(ledger);
  const violations: string[] = [];
  const withSecret = new Set(endpoints.map(({ accountId }) => accountId));
  for (const [name, tries] of Map.groupBy(messages, ofOne)) {
    if (new Set(tries.map(answeredBy)).size > 1) violations.push(`${name} came with several bodies`);
    const bad = tries.filter(({ accountId, signedWell }) =>
      withSecret.has(accountId) ? signedWell !== true : signedWell === false,
    );
    if (bad.length > 0) violations.push(`${name} came ${bad.length} times without a good signature`);
  }
  const tasks = Map.groupBy(
    messages.filter(isTask),
    (one) => `${one.type} of ${one.taskId} at ${one.endpointId}`,
  );
  for (const [name, own] of tasks) {
    const ids = new Set(own.map(({ webhookId }) => webhookId));
    if (ids.size > 1) violations.push(`${name} came under ${[...ids].join(", ")}`);
  }
  const again = messages.length - new Set(messages.map(ofOne)).size;
  const signed = messages.filter(({ signedWell }) => signedWell).length;
  return { figure: `${messages.length} tries, ${again} of them repeats, ${signed} signed`, violations };
}

/** A message tells what has become of its task, and what is told is what is charged. */
function messagesAreTrue(ledger: Ledger): Finding {
  const violations: string[] = [];
  const net = new Map<string, number>();
  for (const { requestId, amount } of ledger.entries) net.set(requestId, (net.get(requestId) ?? 0) + amount);
  const byTask = new Map(
    webhooks(ledger)
      .messages.filter(isTask)
      .map((one) => [ofOne(one), one]),
  );
  for (const message of byTask.values()) {
    const { webhookId, type, taskId, accountId } = message;
    const id = requestIdOf(webhookId);
    const request = ledger.requests.get(id);
    // A failover may lose the charge of a task whose failure was told. It is uncollected then, and nothing of the message has changed.
    if (request?.state !== "finished" || (request.uncollected && request.status !== "failed")) {
      violations.push(`${webhookId} was told, but ${id} is ${request?.state ?? "unknown"}`);
      continue;
    }
    const { status, chargedAgain, price } = request;
    const isLater = chargedAgain && type === "task.failed";
    if (request.accountId !== accountId || request.taskId !== taskId)
      violations.push(`${webhookId} of ${accountId} tells of ${taskId}, which is not its task`);
    if (type !== `task.${status}` && !isLater) violations.push(`${webhookId} was told, and it ${status}`);
    const due = status === "completed" ? -price : 0;
    if ((net.get(id) ?? 0) !== due) violations.push(`${webhookId} was told, and ${net.get(id)} was charged`);
  }
  return { figure: `${byTask.size} messages of tasks`, violations };
}

/** Whoever looks while a message waits for its answer finds its end, the refund, and the slot free; but for ends that a failover may have lost since. */
function settledBeforeDelivered(ledger: Ledger): Finding {
  const violations: string[] = [];
  let looked = 0;
  let polled = 0;
  let lost = 0;
  for (const message of webhooks(ledger).messages) {
    const { webhookId, type, look } = message;
    if (!look) continue;
    looked++;
    const request = ledger.requests.get(requestIdOf(webhookId));
    const wanted = type.slice("task.".length);
    const expected = request?.chargedAgain ? [wanted, "completed"] : [wanted];
    const wrong = whatIsWrong(look, expected, request?.price !== 0);
    if (look.polled !== "") polled++;
    if (wrong !== "" && ledger.mayForget(endedAtMs(message))) lost++;
    else if (wrong !== "") violations.push(`${webhookId} was told while ${wrong}`);
  }
  const found = looked - violations.length - lost;
  const others = lost === 0 ? "" : `; ${lost} found an end lost by a failover`;
  const figure = `${found} of ${looked} looks from inside the receiver found all booked; ${polled} of them polled, too${others}`;
  return { figure, violations };
}

/** When the end that a message tells of was booked, by the message itself. */
const endedAtMs = ({ body }: ReceivedMessage): number =>
  Date.parse(/"timestamp":"([^"]*)"/.exec(body)?.[1] ?? "");

function whatIsWrong(
  { state, status, holdsSlot, refunded, polled }: Look,
  expected: readonly string[],
  isPriced: boolean,
): string {
  if (state !== "finished" || !expected.includes(status)) return `the store had ${state} ${status}`;
  if (holdsSlot) return "its slot was taken";
  if (status === "failed" && isPriced && !refunded) return "it was not refunded";
  if (polled !== "" && !expected.includes(polled)) return `a poll showed ${polled}`;
  return "";
}

/** A task has one end: no second message of another kind, and no poll after an end that shows another state. */
function oneEnd(ledger: Ledger): Finding {
  const { requests, history } = ledger;
  const violations: string[] = [];
  const types = Map.groupBy(webhooks(ledger).messages.filter(isTask), ({ webhookId }) =>
    requestIdOf(webhookId),
  );
  for (const [id, own] of types) {
    const kinds = new Set(own.map(({ type }) => type));
    if (kinds.size > 1 && !requests.get(id)?.chargedAgain)
      violations.push(`${id} was told as ${[...kinds].join(" and ")}`);
  }
  const again = new Set([...requests.values()].filter((one) => one.chargedAgain).map(({ taskId }) => taskId));
  const polls = history.client.filter(({ kind, taskStatus }) => kind === "poll" && taskStatus !== "");
  for (const [taskId, own] of Map.groupBy(polls, (event) => event.taskId)) {
    const ends = own.filter(({ taskStatus }) => taskStatus === "completed" || taskStatus === "failed");
    const first = ends.sort((a, b) => a.endedMs - b.endedMs)[0];
    if (!first || again.has(taskId)) continue;
    const back = own.find(
      ({ sentMs, taskStatus }) => sentMs > first.endedMs && taskStatus !== first.taskStatus,
    );
    if (back) violations.push(`${taskId} was ${first.taskStatus}, then ${back.taskStatus}`);
  }
  return {
    figure: `${types.size} tasks told, ${polls.length} polls, ${again.size} charged again`,
    violations,
  };
}

/** A message that was taken comes again only if its try could not be settled, for a fault, or was answered late, or by hand. */
function repeatsAreExplained(ledger: Ledger): Finding {
  const { messages } = webhooks(ledger);
  const violations: string[] = [];
  const counts: Record<Why, number> = { fault: 0, late: 0, byHand: 0 };
  const settled = Map.groupBy(webhooks(ledger).settlings, (one) => `${one.endpointId} ${one.webhookId}`);
  for (const [name, tries] of Map.groupBy(messages, ofOne)) {
    const ordered = tries.toSorted((a, b) => a.arrivedMs - b.arrivedMs);
    for (const [at, again] of ordered.entries()) {
      const before = ordered.slice(0, at).findLast(isTaken);
      if (!before) continue;
      const own = settled.get(`${again.endpointId} ${again.webhookId}`) ?? [];
      const why = whyAgain(ledger, before, again, own);
      if (why) counts[why]++;
      else violations.push(`${name} came again, and nothing explains why`);
    }
  }
  const { fault, late, byHand } = counts;
  const figure = `taken messages that came again: ${fault} beside a fault, ${late} answered late, ${byHand} by hand`;
  return { figure, violations };
}

type Why = "fault" | "late" | "byHand";

function whyAgain(
  ledger: Ledger,
  before: ReceivedMessage,
  { webhookId, endpointId, arrivedMs, endedMs }: ReceivedMessage,
  settled: readonly Settling[],
): Why | undefined {
  const { byHand, answerMs } = webhooks(ledger);
  const between = settled.filter(({ atMs }) => atMs >= before.arrivedMs && atMs <= arrivedMs);
  if (byHand.some((one) => one.webhookId === webhookId && one.endpointId === endpointId)) return "byHand";
  if (between.some(({ outcome }) => outcome === "delivered")) {
    // A gateway that had stood still sends under its earlier lease, and its result is refused.
    const isFenced = ({ outcome, atMs }: Settling): boolean =>
      outcome === "fenced" && atMs >= arrivedMs && atMs < endedMs + FAULT_AFTER_MS;
    return settled.some(isFenced) ? "fault" : undefined;
  }
  const isLate = before.endedMs - before.arrivedMs > answerMs;
  if (isLate && between.some(({ result }) => result === "failed")) return "late";
  const isNear = ({ atMs }: { atMs: number }): boolean =>
    atMs > before.arrivedMs - FAULT_BEFORE_MS && atMs < before.endedMs + FAULT_AFTER_MS;
  return ledger.history.faults.some(isNear) ? "fault" : undefined;
}

/** Tries of one message never overlap, and an endpoint gets few messages at a time; but for leases that have run out, or that a failover may have lost. */
function paced(ledger: Ledger): Finding {
  const { leaseMs, perEndpoint } = webhooks(ledger);
  const { toleranceMs } = ledger.history.meta;
  const messages = webhooks(ledger).messages.filter(
    ({ arrivedMs }) => !LEASED_BEFORE_MS.some((agoMs) => ledger.mayForget(arrivedMs - agoMs)),
  );
  const violations: string[] = [];
  for (const [name, tries] of Map.groupBy(messages, ofOne)) {
    const ordered = tries.toSorted((a, b) => a.arrivedMs - b.arrivedMs);
    for (const [at, one] of ordered.entries()) {
      const before = ordered[at - 1];
      if (!before || one.arrivedMs >= before.endedMs - SEEN_LATE_MS) continue;
      if (one.arrivedMs - before.arrivedMs < leaseMs - toleranceMs)
        violations.push(
          `a try of ${name} began ${before.endedMs - one.arrivedMs} ms before the one before had ended`,
        );
    }
  }
  let most = 0;
  const ofEndpoints = messages.filter(({ endpointId }) => endpointId !== CALLBACK);
  for (const [endpointId, own] of Map.groupBy(ofEndpoints, (one) => one.endpointId)) {
    const atATime = mostAtATime(own, leaseMs, toleranceMs);
    most = Math.max(most, atATime);
    if (atATime > perEndpoint) violations.push(`${endpointId} got ${atATime} messages at a time`);
  }
  return { figure: `at most ${most} messages of an endpoint at a time`, violations };
}

function mostAtATime(messages: readonly ReceivedMessage[], leaseMs: number, toleranceMs: number): number {
  const changes = messages
    .map(({ arrivedMs, endedMs }) => ({
      arrivedMs,
      endedMs: Math.min(endedMs - toleranceMs, arrivedMs + leaseMs),
    }))
    .filter(({ arrivedMs, endedMs }) => endedMs > arrivedMs)
    .flatMap(({ arrivedMs, endedMs }) => [
      [arrivedMs, 1],
      [endedMs, -1],
    ])
    .sort(([a = 0, one = 0], [b = 0, other = 0]) => a - b || one - other);
  let now = 0;
  let most = 0;
  for (const [, change = 0] of changes) {
    now += change;
    most = Math.max(most, now);
  }
  return most;
}

/** Nothing connects to an address that is not allowed, and no redirect is followed. */
function noStrays(ledger: Ledger): Finding {
  const { strays, messages, endpoints } = webhooks(ledger);
  const violations = strays.map(({ to, atMs }) => `a connection at ${atMs} to ${WHERE[to]}`);
  const redirects = messages.filter(({ answer }) => answer === "302").length;
  const inner = endpoints.filter(({ manner }) => manner === "inner").length;
  return { figure: `${redirects} redirects, ${inner} endpoints at inner addresses`, violations };
}

const WHERE = { inner: "an inner address", redirect: "where a redirect leads" } as const;

/** Only the latest lease of a delivery says what came of it. */
function leasesAreFenced(ledger: Ledger): Finding {
  const { leases, settlings } = webhooks(ledger);
  const violations: string[] = [];
  const latest = Map.groupBy(leases, (one) => `${one.endpointId} ${one.webhookId}`);
  const fenced = settlings.filter(({ outcome }) => outcome === "fenced");
  for (const { endpointId, webhookId, lease, outcome, atMs } of settlings) {
    if (outcome === "fenced" || outcome === "") continue;
    const later = latest
      .get(`${endpointId} ${webhookId}`)
      ?.find((one) => one.lease > lease && one.atMs < atMs);
    if (later)
      violations.push(
        `lease ${lease} of ${webhookId} at ${endpointId} was settled (${outcome}) after lease ${later.lease}`,
      );
  }
  return { figure: `${leases.length} leases, ${fenced.length} results of earlier ones refused`, violations };
}

/** Of runs with webhooks. */
export const WEBHOOK_CRITERIA: readonly Rule<Ledger>[] = [
  ["each end is told, or listed as failed", deliveredAtLeastOnce],
  ["one id, one body and good signatures over all tries", oneIdAndBody],
  ["what is told has come true, and is charged so", messagesAreTrue],
  ["no video for nothing", noVideoForNothing],
  ["slot and refund are booked before it is told", settledBeforeDelivered],
  ["a task has one end, which stays", oneEnd],
  ["repeats of what was taken are explained", repeatsAreExplained],
  ["results of earlier leases are refused", leasesAreFenced],
  ["tries do not overlap, endpoints have their pace", paced],
  ["no inner address is called, no redirect followed", noStrays],
];

/** Of runs whose store fails over: leases, results and ends may be lost, and are made again. */
export const WEBHOOK_ACROSS_FAILOVERS: readonly Rule<Ledger>[] = [
  ["each end is told, or listed as failed", deliveredAtLeastOnce],
  ["one id, one end and good signatures over all tries", oneIdAndEnd],
  ["what is told has come true, and is charged so", messagesAreTrue],
  ["no video for nothing", noVideoForNothing],
  ["slot and refund are booked before it is told", settledBeforeDelivered],
  ["a task has one end, which stays", oneEnd],
  ["tries do not overlap, endpoints have their pace", paced],
  ["no inner address is called, no redirect followed", noStrays],
];
