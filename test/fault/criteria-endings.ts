import type { Finding } from "./criteria-money.ts";
import type { Meta, UpstreamEvent } from "./history.ts";
import type { Ledger, RequestRecord } from "./ledger.ts";

/** So many 404s of the API itself end a task. Decision 0030. */
const GONE_COUNT = 3;
/** After so many times its maximum age a task ends without an answer. Decision 0030. */
const UNANSWERED_AGES = 2;

/** No task ends for its age but with an answer about it, or at twice the age that its own gateway allows. */
export function endsOnEvidence({ history: { meta }, requests, upstream }: Ledger): Finding {
  const violations: string[] = [];
  const counts = { answered: 0, gone: 0, expired: 0, unanswered: 0 };
  const tasks = Map.groupBy(upstream.values(), ({ taskId }) => taskId);
  for (const request of requests.values()) {
    const event = upstream.get(request.id);
    if (request.state !== "finished" || !event) continue;
    if (request.endedBy === "upstream") counts.answered++;
    else if (request.endedBy === "gone") {
      counts.gone++;
      const goneAnswers = event.polledStates.filter((status) => status === "gone").length;
      if (goneAnswers < GONE_COUNT)
        violations.push(`${request.id} is gone, which the upstream said ${goneAnswers} times`);
    } else if (request.endedBy === "expired") {
      // An answer about a task id that was given twice is not believed. Decision 0004.
      const isBelieved = tasks.get(event.taskId)?.length === 1;
      const why = (isBelieved && ignoredEnd(request, event, meta)) || expiry(request, event, meta);
      if (why === "answered") counts.expired++;
      else if (why === "unanswered") counts.unanswered++;
      else violations.push(why);
    }
  }
  const { answered, gone, expired, unanswered } = counts;
  return {
    figure: `${answered} as the upstream said, ${gone} gone, ${expired} too old, ${unanswered} at twice their maximum age`,
    violations,
  };
}

/** The fault of a task that was ended for its age though the upstream had reported its end. */
function ignoredEnd({ id, finishedMs }: RequestRecord, event: UpstreamEvent, { toleranceMs }: Meta): string {
  const at = event.polledStates.findIndex((status) => status === "completed" || status === "failed");
  if (at === -1 || event.polledMs[at]! > finishedMs - toleranceMs) return "";
  return `${id} (${event.kind}) was ended for its age, though the upstream had told that it ${event.polledStates[at]}`;
}

/** Checks that a task was old enough to be ended, and on which evidence; otherwise returns the fault. */
function expiry({ id, boundMs, finishedMs }: RequestRecord, event: UpstreamEvent, meta: Meta): string {
  const maxAgeMs = meta.maxAgesMs[event.gateway] ?? Number.POSITIVE_INFINITY;
  const ageMs = finishedMs - boundMs + meta.toleranceMs;
  if (ageMs < maxAgeMs) return `${id} was ended at an age of ${ageMs} ms; its gateway allows ${maxAgeMs} ms`;
  const oldFromMs = boundMs + maxAgeMs - meta.toleranceMs;
  if (ageMs >= UNANSWERED_AGES * maxAgeMs) {
    const isIgnored = event.polledMs.some(
      (atMs, at) =>
        event.polledStates[at] !== "gone" &&
        atMs > oldFromMs + 2 * meta.toleranceMs &&
        atMs < finishedMs - 2 * meta.toleranceMs,
    );
    return isIgnored
      ? `${id} (${event.kind}) was ended at twice its maximum age, though the upstream had answered`
      : "unanswered";
  }
  const endedMs = finishedMs + meta.toleranceMs;
  if (event.polledMs.some((atMs) => atMs >= oldFromMs && atMs <= endedMs)) return "answered";
  return `${id} (${event.kind}) was ended at an age of ${ageMs} ms without an answer about it`;
}

/** A poll shows the video of a request of the same account, also where the upstream gave a task id twice. */
export function ownVideos({ history, generations, requests, upstream }: Ledger): Finding {
  const violations: string[] = [];
  const answers = new Map(generations.map((event) => [event.requestId, event]));
  // A gateway that had no answer in time was never told that the id is given twice, and neither was the store.
  const conflictMs = new Map(
    history.link
      .filter(({ script, outcome }) => script === "bind" && outcome === "conflict")
      .map(({ requestId, atMs }) => [requestId, atMs]),
  );
  let shown = 0;
  for (const { video, accountId, taskId, sentMs } of history.client) {
    if (video === "") continue;
    shown++;
    const owner = answers.get(video)?.accountId ?? requests.get(video)?.accountId;
    // Until the second request's BIND has found it nobody can know. Decision 0004.
    const knownMs = conflictMs.get(video) ?? Number.POSITIVE_INFINITY;
    if (owner !== undefined && owner !== accountId && sentMs > knownMs)
      violations.push(`a poll of ${taskId} showed ${accountId} the video of ${owner}`);
  }
  const twice = [...upstream.values()].filter(({ kind }) => kind.endsWith("_a_task_id")).length;
  return { figure: `${shown} videos shown, ${twice} task ids given twice`, violations };
}

/** Nothing is settled in another store behind the same address; an older one is refused until it is accepted. */
export function storesKeptApart({ history }: Ledger): Finding {
  const violations: string[] = [];
  const { faults, client, otherStore, link } = history;
  for (const { name } of otherStore) {
    if (/:(request|account|ledger|task|holds|polls|done)\b/.test(name))
      violations.push(`the other store has ${name}`);
  }
  const first = (kind: string): number => faults.find((fault) => fault.kind === kind)?.atMs ?? Number.NaN;
  const olderMs = first("store is older");
  const acceptedMs = first("older store accepted");
  const emptyMs = first("another store");
  const meantMs = first("empty store accepted");
  for (const { kind, requestId, sentMs, endedMs, status } of client) {
    const isWithin = sentMs > olderMs && endedMs < acceptedMs;
    if (isWithin && status === 200)
      violations.push(`a ${kind} (${requestId}) was served from an older store`);
    if (status === 401 && sentMs > emptyMs && endedMs < meantMs)
      violations.push(`a ${kind} (${requestId}) was told that an empty store does not know its key`);
  }
  const again = link.filter(
    ({ script, forwardedMs }) => script === "bind" && forwardedMs > acceptedMs,
  ).length;
  const returns = faults.filter(({ kind }) => kind === "first store back").length;
  const older = Number.isNaN(acceptedMs) ? "none older" : `one older, ${again} BINDs after it was accepted`;
  return { figure: `${returns} returns from another store, ${older}`, violations };
}
