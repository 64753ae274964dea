import type { Generation } from "./admit.ts";
import type { Argument, Script } from "./script-definition.ts";

/** How long an Idempotency-Key is remembered from its BIND on; until then its request is held. */
const IDEMPOTENCY_MS = 24 * 3_600_000;

export interface NewTask {
  taskId: string;
  /** The answer's data, JSON, for repeats with the same Idempotency-Key; empty without one. */
  data: string;
  /** When the sweeper may poll it, ms from now. */
  pollMs: number;
  /** Fixed here for the task's life, as is the upstream. */
  maxAgeMs: number;
  /** Which upstream made it: it is polled there, whatever is configured later. */
  upstream: string;
}

/** At the maximum age at the latest, beyond it as often as before. */
export const nextPollMs = (everyMs: number, ageMs: number, maxAgeMs: number): number =>
  ageMs < maxAgeMs ? Math.min(everyMs, maxAgeMs - ageMs) : everyMs;

export interface BindCall
  extends Pick<Generation, "requestId" | "key" | "price" | "endpoint" | "retentionMs" | "admittedAtMs"> {
  idempotency?: Generation["idempotency"] | undefined;
  task: NewTask;
}

/** Nothing is charged for `conflict` (another task, or another request's, which may be disputed now) and `forgotten` (the record is deleted). */
export type Binding = "bound" | "late" | "uncollected" | "conflict" | "forgotten";

/** Charges a held generation for the task that it got, and claims the task id; the slot follows the task. */
export const bind: Script<BindCall, Binding> = {
  name: "bind",
  isBatched: true,
  keys: ({ key }) => [key.names.key],
  args: (call) => argsOf(call, ""),
  read: ([outcome]) => outcome as Binding,
};

/** On a Redis Cluster, where the claim is out of the script's reach and taken before. */
export const bindClaimed: typeof bind = { ...bind, args: (call) => argsOf(call, "1") };

function argsOf(call: BindCall, claimed: string): Argument[] {
  const { requestId, key, endpoint, price, retentionMs, task, idempotency, admittedAtMs } = call;
  const { fingerprint = "", digest = "" } = idempotency ?? {};
  const fixed = [requestId, key.accountId, key.keyId, endpoint, price, Math.round(retentionMs)];
  const made = [task.taskId, claimed, fixedText(task), task.pollMs, task.data];
  return [...fixed, ...made, fingerprint, IDEMPOTENCY_MS, digest, admittedAtMs ?? ""];
}

/** In the form of records/requests.ts: the part of a request's text that is known before BIND. */
export const fixedText = ({ maxAgeMs, upstream }: { maxAgeMs: number; upstream: string }): string =>
  `max_age_ms=${Math.round(maxAgeMs)} upstream=${upstream}`;
