import { FairGate, type GateObserver } from "../domain/fair-gate.ts";
import type { StatusWords } from "../domain/task-states.ts";
import { type GenerationOutcome, type Sender, sendGeneration } from "./generation-request.ts";
import { createJsonClient, type JsonClientOptions } from "./json-client.ts";
import { type PollOutcome, type PollSender, sendPoll } from "./poll-request.ts";
import { SpacedWork } from "./spaced-work.ts";
import { upstreamTag } from "./task-route.ts";

export interface Upstream {
  /** Identifies this upstream and its credential; stored with each task that it makes. */
  readonly tag: string;
  /** @param body exactly what was priced; `requestId` is sent as Idempotency-Key */
  generate(path: string, body: string, sender: Sender): Promise<GenerationOutcome>;
  poll(taskId: string, sender: PollSender): Promise<PollOutcome>;
  /** A generation got another request's response: the connections for generations are not used again. */
  resetConnectionPool(): void;
  close(): Promise<void>;
}

/** Polls of the sweeper in flight, at one upstream. */
export const SWEEP_POLLS_MAX = 4;
/**
 * One account may have so many requests in flight for each connection that is free: alone three quarters of all, beside another
 * three sevenths. However many accounts have requests that hang, one more finds a connection at once. Decision 0032.
 */
const ACCOUNT_PER_FREE_MAX = 3;

export interface UpstreamOptions extends Omit<JsonClientOptions, "largeAnswerWork"> {
  /** Connections for polls; `SWEEP_POLLS_MAX` of them, at most half, are the sweeper's. */
  pollConnections: number;
  /** The upstream runs one Idempotency-Key once (`upstream.idempotency_key`). */
  idempotent: boolean;
  /** Words for task states, beside those that are known anyway (`upstream.statuses`). */
  statuses?: StatusWords;
  /** Receives what happens to requests that wait for a connection. */
  observer?: Readonly<Record<"generate" | "poll", GateObserver>>;
}

/**
 * How long a request may wait for a connection. A request that is sent at the last moment still has its whole headers
 * timeout before `totalTimeoutMs` have passed since its arrival. The wait is never longer than the headers timeout, by which a
 * hold outlives the exchange.
 */
export function waitMaxMs({
  headersTimeoutMs,
  totalTimeoutMs,
}: Pick<UpstreamOptions, "headersTimeoutMs" | "totalTimeoutMs">): number {
  return Math.max(0, Math.min(headersTimeoutMs, totalTimeoutMs - headersTimeoutMs));
}

/**
 * The client of the upstream's API. Generations, customers' polls and the sweeper's polls have connections of their own, so
 * that none waits for another kind.
 */
export function createUpstream(options: UpstreamOptions): Upstream {
  const { connections, pollConnections, totalTimeoutMs, idempotent, statuses, observer } = options;
  const largeAnswerWork = new SpacedWork();
  const waiting = { waitMaxMs: waitMaxMs(options) };
  const generations = {
    client: createJsonClient({ ...options, largeAnswerWork }),
    gate: new FairGate({
      ...waiting,
      inFlightMax: connections,
      inFlightPerFreeMax: ACCOUNT_PER_FREE_MAX,
      waitingMax: connections,
      observer: observer?.generate,
    }),
    connections,
    totalTimeoutMs,
    idempotent,
    statuses,
  };
  const client = createJsonClient({ ...options, connections: pollConnections, largeAnswerWork });
  const pollChannel = (share: number, who: string, inFlightPerFreeMax?: number) => ({
    client,
    gate: new FairGate({
      ...waiting,
      inFlightMax: share,
      inFlightPerFreeMax,
      waitingMax: share,
      observer: observer?.poll,
    }),
    limit: `${share} upstream.poll_connections for ${who}`,
    totalTimeoutMs,
    statuses,
  });
  const sweeperShare = Math.min(SWEEP_POLLS_MAX, Math.floor(pollConnections / 2));
  const customerShare = pollConnections - sweeperShare;
  const sweeps = pollChannel(sweeperShare, "the sweeper");
  const polls = pollChannel(customerShare, "customers", ACCOUNT_PER_FREE_MAX);
  return {
    tag: upstreamTag(options.url, options.apiKey),
    generate: (path, body, sender) => sendGeneration(generations, path, body, sender),
    poll: (taskId, sender) => sendPoll(sender.accountId === undefined ? sweeps : polls, taskId, sender),
    resetConnectionPool: generations.client.reset,
    async close() {
      for (const { gate } of [generations, polls, sweeps]) gate.close();
      await Promise.all([generations.client.close(), client.close()]);
    },
  };
}
