import type { Transaction } from "../core/answers.ts";
import type { LimitState, ShadowLimit, Tiers } from "../core/limits.ts";
import type { Observation } from "../core/tasks.ts";
import type { KeyRef } from "./names.ts";

/** One generation from admission to its end; `price` in whole credits, fixed here. */
export interface Generation {
  requestId: string;
  key: KeyRef;
  price: number;
  /** As charged and listed: the full path. */
  endpoint: string;
  /** How long the hold may stay unanswered, ms. */
  holdMs: number;
  /** How long its record is kept after its end, ms; fixed here, so that gateways need not agree on it. */
  retentionMs: number;
  /** The store that was asked to admit it, set there: nothing of it is settled in another. */
  storeId?: string | undefined;
  idempotency?: { digest: string; fingerprint: string };
}

/** Admission as the handlers see it. Milliseconds are Redis time. */
export type Admission = {
  state: LimitState;
  tier: string;
} /** `shadow`: limits that would have refused it if they were not in shadow mode. */ & (
  | { outcome: "admitted"; shadow?: readonly ShadowLimit[] }
  | { outcome: "rate_limited" | "daily_limited"; retryAfterMs: number }
  | { outcome: "concurrency_limited" }
  | { outcome: "insufficient_credits"; balance: number }
  | { outcome: "replayed"; taskId: string; data: string }
  | { outcome: "idempotency_mismatch" }
  /** `dueAtMs`: when its outcome is known at the latest. `unknown`: the upstream's answer to the first was none. */
  | { outcome: "idempotency_in_progress"; retryAfterMs: number; dueAtMs: number; unknown?: UnknownOutcome }
  | { outcome: "stale" | "void" }
  | { outcome: "unknown_key" }
);

/** How the upstream left open whether it made a task. */
export type UnknownOutcome = "unclear" | "timed_out";

/** What BIND says of the task that the upstream made; the last two are fixed by it for the task's life. */
export interface NewTask {
  taskId: string;
  /** The answer's data, JSON. */
  data: string;
  /** When the sweeper may ask for it, ms from now. */
  pollMs: number;
  maxAgeMs: number;
  /** Which upstream made it: where it is asked for, whatever is configured later. */
  upstream: string;
}

/** How BIND ended; `conflict`: the task id belongs to another request, and nothing happened. */
export type Binding = "bound" | "late" | "uncollected" | "conflict";

/** Which task an observation is about. */
export type ObservedTask = Pick<KnownTask, "taskId" | "requestId" | "creatorKeyId">;

/** What the store knows of a polled task. `data` is JSON, empty before the first observation. */
export interface KnownTask {
  taskId: string;
  requestId: string;
  /** Key that created it: whose slot it holds. */
  creatorKeyId: string;
  fresh: boolean;
  status: string;
  data: string;
  /** When it was bound, Unix ms. */
  createdAtMs: number;
  /** How long ago that is by the store's clock. */
  ageMs: number;
  /** Fixed when it was bound; undefined while `fresh`, and for a task that an earlier release bound. */
  maxAgeMs: number | undefined;
  /** Which upstream made it; undefined as `maxAgeMs` is. */
  upstream: string | undefined;
}

export type Inspection = { state: LimitState; tier: string } & (
  | { outcome: "known" | "unknown_key" | "not_found" }
  | { outcome: "task"; task: KnownTask }
);

export interface Observed {
  outcome: "observed" | "finished" | "already_finished" | "missing";
  state: LimitState;
  status: string;
  data: string;
  refunded: number;
  /** The upstream gave the task's id to another request, too: what it says now must not be answered. */
  isDisputed?: true;
}

export type CreditAccount = { outcome: "known" | "unknown_key"; state: LimitState; tier: string } & {
  dailyLimit: number;
  balance: number;
  totalUsed: number;
  totalRequests: number;
  recent: Transaction[];
};

export interface Store {
  /** @throws GatewayError `store_unavailable` at once while the store is known to be away */
  requireUsable(): void;
  /** The number of the outage, once a probe on its own connection has shown that Redis is away; else undefined. */
  outage(): Promise<number | undefined>;
  /**
   * The key behind a digest; undefined when there is none, or when it is revoked or expired. One read outside the
   * partition and one INSPECT, whatever comes of it; cache it.
   */
  lookup(digest: string, tiers: Tiers): Promise<KeyRef | undefined>;
  /** Decides whether a generation may run, and holds what it costs. One script call. */
  admit(generation: Generation, tiers: Tiers): Promise<Admission>;
  /** Counts a decision that was taken without asking the store. */
  countAdmission(tier: string, outcome: Admission["outcome"], tiers: Tiers): void;
  /** Charges a held generation for the task it got. Undefined: the store is away and will be told later. */
  bind(generation: Generation, task: NewTask, tiers: Tiers): Promise<Binding | undefined>;
  /**
   * Takes a hold back after a definite refusal, or, `unsent`, of a request that never went upstream: then the window entry
   * comes back, too. Undefined: the store is away and will be told later.
   */
  giveBack(
    generation: Generation,
    tiers: Tiers,
    reason?: "refused" | "unsent",
  ): Promise<LimitState | undefined>;
  /**
   * Notes for repeats with its Idempotency-Key that the outcome of a generation is unknown. Best effort: if the store is away,
   * they are told that it is in progress.
   */
  noteUnknown(generation: Generation, outcome: UnknownOutcome): Promise<void>;
  inspect(key: KeyRef, tiers: Tiers): Promise<Inspection>;
  inspectTask(key: KeyRef, taskId: string, cacheMs: number, tiers: Tiers): Promise<Inspection>;
  /** True when any account has a task of this id. */
  isTaskBound(taskId: string): Promise<boolean>;
  /** Tells the store what the upstream said of a task. `poller` is the key whose numbers are answered. */
  observe(
    subject: { partition: number; accountId: string; task: ObservedTask },
    said: { status: Observation; data: string },
    /** `maxAgeMs`: of a task that an earlier release bound; all others have their own in their record. */
    options: { refundFailed: boolean; pollMs: number; maxAgeMs: number; poller?: KeyRef; tiers: Tiers },
  ): Promise<Observed>;
  credits(key: KeyRef, tiers: Tiers): Promise<CreditAccount>;
}
