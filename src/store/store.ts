import type { LimitState, Tiers } from "../core/limits.ts";
import { endedTask, type Observation, unseenTask } from "../core/tasks.ts";
import type { Connection } from "./connection.ts";
import { claimName, indexName, type KeyRef, keyRef, partitionOf, taskName } from "./names.ts";
import { type Charge, charge, isFinal, type Release } from "./outbox.ts";
import { type Admission, admit, type Generation } from "./scripts/admit.ts";
import type { Binding, NewTask } from "./scripts/bind.ts";
import { type CreditAccount, credits } from "./scripts/credits.ts";
import type { KeyState } from "./scripts/include/limits.ts";
import { type Inspection, inspect } from "./scripts/inspect.ts";
import { type ObservedTask, observe } from "./scripts/observe.ts";
import { type UnknownOutcome, unclear } from "./scripts/unclear.ts";
import { voidHold } from "./scripts/void.ts";

/** Keys that are looked up wait in one line: whose they are is what is asked. */
const LOOKUPS = "look-ups";

/** What OBSERVE left. */
export interface Observed extends KeyState {
  outcome: "observed" | "finished" | "already_finished" | "missing";
  status: string;
  data: string;
  /** Credits, by this call. */
  refunded: number;
  /** The upstream gave the task's id to another request, too: what it says now must not be answered. */
  isDisputed?: true;
}

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
  /** Charges a held generation for the task it got. Undefined: the store is away, and the charge is deferred. */
  bind(generation: Generation, task: NewTask): Promise<Binding | undefined>;
  /**
   * Takes a hold back after a definite refusal, or, `unsent`, of a request that never went upstream: then the window entry
   * comes back, too. Undefined: the store is away, and the VOID is deferred.
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
  /** Records what the upstream said of a task. `poller` is the key whose numbers are answered. */
  observe(
    subject: { partition: number; accountId: string; task: ObservedTask },
    observation: { status: Observation; data: string },
    /** `maxAgeMs`: of a task that an earlier release bound; all others have their own in their record. */
    options: { refundFailed: boolean; pollMs: number; maxAgeMs: number; poller?: KeyRef; tiers: Tiers },
  ): Promise<Observed>;
  credits(key: KeyRef, tiers: Tiers): Promise<CreditAccount>;
}

/**
 * The store's operations as the handlers use them, one script call each.
 * @throws GatewayError `store_unavailable` from every operation, unless it says otherwise
 */
export function createStore(connection: Connection): Store {
  const { run, metrics, queue } = connection;
  const isClustered = (): boolean => connection.facts()?.cluster ?? false;

  function countAdmission(tier: string, outcome: Admission["outcome"], tiers: Tiers): void {
    metrics.admissions.inc({ tier: tierLabel(tier, tiers), outcome });
  }

  function countBinding(outcome: Binding, price: number): void {
    metrics.settlements.inc({ outcome });
    if (outcome === "bound" || outcome === "late") metrics.creditsConsumed.inc(price);
    if (outcome === "uncollected") metrics.creditsUncollected.inc(price);
  }

  function countEnd(status: string, refunded: number): void {
    metrics.settlements.inc({ outcome: status === "gone" || status === "expired" ? status : "finished" });
    if (refunded === 0) return;
    metrics.settlements.inc({ outcome: "refunded" });
    metrics.creditsRefunded.inc(refunded);
  }

  /** Unless the store has refused an ADMIT, it may still run: taken back as soon as the store answers. */
  async function takeBack(generation: Generation, error: unknown): Promise<never> {
    // On disk before the 503 goes out: a crash right after it would leave the window entry behind.
    if (!isFinal((error as Error).cause)) await connection.defer(releaseOf(generation, "unsent"));
    throw error;
  }

  function releaseOf(generation: Generation, reason: "refused" | "unsent"): Release {
    const { key, requestId, idempotency } = generation;
    return {
      script: "void",
      ...termsOf(generation),
      call: { key, requestId, idempotencyDigest: idempotency?.digest, reason },
      settled(outcome) {
        if (outcome === "void") metrics.settlements.inc({ outcome });
      },
    };
  }

  const termsOf = ({ storeId, retentionMs }: Generation) => ({
    storeId,
    atMs: connection.nowMs(),
    // Half of what the store remembers: a request that it has forgotten would be charged once more.
    settleWithinMs: retentionMs / 2,
  });

  /** @param line in which it waits while too many calls are under way */
  async function inspectKey(key: KeyRef, tiers: Tiers, line: string): Promise<Inspection> {
    if (queue.isFull()) await queue.wait(line);
    return run(inspect, { key, tiers });
  }

  return {
    requireUsable: connection.requireUsable,
    outage: connection.outage,

    async lookup(digest, tiers) {
      if (queue.isFull()) await queue.wait(LOOKUPS);
      const entry = await connection.command((redis) => redis.get(indexName(digest)));
      const facts = connection.facts();
      if (!facts) return undefined;
      // An unknown key costs the same calls as a revoked one: else the time would tell which of both it is.
      const [keyId, accountId] = entry === null ? [digest, digest] : splitAtSpace(entry);
      const key = keyRef(keyId, accountId, partitionOf(accountId, facts.partitions));
      const { outcome } = await inspectKey(key, tiers, LOOKUPS);
      return outcome === "known" ? key : undefined;
    },

    async admit(generation, tiers) {
      if (queue.isFull()) await queue.wait(generation.key.keyId);
      connection.requireUsable();
      generation.storeId = connection.facts()?.id;
      const send = (): Promise<Admission> => {
        const notAfterMs = Math.floor(connection.nowMs() + connection.commandTimeoutMs);
        return run(admit, { generation, tiers, notAfterMs });
      };
      let admission: Admission;
      try {
        admission = await send();
        // The store's clock stepped: its answer has taught us the new time, and nothing was done yet.
        if (admission.outcome === "stale") admission = await send();
      } catch (error) {
        return takeBack(generation, error);
      }
      countAdmission(admission.tier, admission.outcome, tiers);
      if (admission.outcome === "admitted") {
        const tier = tierLabel(admission.tier, tiers);
        metrics.nearLimit.admitted(tier, admission.state);
        for (const limit of admission.shadow ?? []) metrics.shadowRefusals.inc({ tier, limit });
      }
      return admission;
    },
    countAdmission,

    async bind(generation, task) {
      const { requestId, key, price, endpoint, retentionMs, idempotency } = generation;
      const charging: Charge = {
        script: "bind",
        ...termsOf(generation),
        call: {
          requestId,
          key,
          price,
          endpoint,
          retentionMs,
          ...(idempotency && { idempotency }),
          task: idempotency ? task : { ...task, data: "" },
          clustered: isClustered(),
        },
        settled: (outcome) => countBinding(outcome, price),
      };
      try {
        connection.requireStoreOf(charging);
        const outcome = await charge(run, charging.call, connection.facts()?.partitions);
        connection.charged(charging, outcome);
        countBinding(outcome, price);
        return outcome;
      } catch {
        await connection.defer(charging);
        return undefined;
      }
    },

    async giveBack(generation, tiers, reason = "refused") {
      const release = releaseOf(generation, reason);
      try {
        connection.requireStoreOf(release);
        const { outcome, state } = await run(voidHold, { ...release.call, tiers });
        release.settled?.(outcome);
        return state;
      } catch {
        await connection.defer(release);
        return undefined;
      }
    },

    async noteUnknown({ key, requestId, idempotency }, unknown) {
      if (!idempotency) return;
      const { partition } = key;
      const call = { partition, requestId, idempotencyDigest: idempotency.digest, unknown };
      await run(unclear, call).catch(() => undefined);
    },

    inspect: (key, tiers) => inspectKey(key, tiers, key.keyId),

    async inspectTask(key, taskId, cacheMs, tiers) {
      if (queue.isFull()) await queue.wait(key.keyId);
      return run(inspect, { key, tiers, task: { taskId, cacheMs, clustered: isClustered() } });
    },

    async isTaskBound(taskId) {
      const owner = isClustered() ? claimName(taskId) : taskName(taskId, 0, false);
      return (await connection.command((redis) => redis.exists(owner))) === 1;
    },

    async observe(subject, observation, { refundFailed, pollMs, maxAgeMs, poller, tiers }) {
      const record = async ({ status, data }: typeof observation) => {
        const call = { ...subject, clustered: isClustered(), status, data, refundFailed, pollMs };
        const reply = await run(observe, poller ? { ...call, poller: { key: poller, tiers } } : call);
        if (reply.outcome === "finished") countEnd(status, reply.refunded);
        return reply;
      };
      const reply = await record(observation);
      if (reply.outcome !== "disputed") return reply;
      // What was said may be about another account's task: only its age can end it.
      const { taskId } = subject.task;
      const { boundAtMs } = reply;
      if (reply.nowMs >= boundAtMs + (reply.maxAgeMs ?? maxAgeMs)) {
        const expired = await record({ status: "expired", data: endedTask(taskId, boundAtMs) });
        if (expired.outcome !== "disputed") return expired;
      }
      const { state, tier, status, data, refunded } = reply;
      const before =
        data === "" ? { status: "pending", data: unseenTask(taskId, boundAtMs) } : { status, data };
      return { outcome: "observed", state, tier, refunded, ...before, isDisputed: true };
    },

    async credits(key, tiers) {
      if (queue.isFull()) await queue.wait(key.keyId);
      return run(credits, { key, tiers });
    },
  };
}

function splitAtSpace(entry: string): [keyId: string, accountId: string] {
  const space = entry.indexOf(" ");
  return [entry.slice(0, space), entry.slice(space + 1)];
}

/** The label of a tier: one that the config does not name, or no longer, is `other`. */
const tierLabel = (tier: string, tiers: Tiers): string => (Object.hasOwn(tiers, tier) ? tier : "other");
