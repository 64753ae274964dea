import { hash } from "node:crypto";
import type { LimitState, ShadowLimit, Tiers } from "../domain/limits.ts";
import type { Settlements } from "../durability/deferred-settlements.ts";
import type { Charge, VoidSettlement } from "../durability/outbox/outbox-queues.ts";
import { createTaskIds } from "../durability/task-ids.ts";
import type { Connection } from "../redis/connection.ts";
import type { Primary } from "../redis/primary.ts";
import { isRefusedByStore } from "../redis/script-errors.ts";
import {
  type Admission,
  admit,
  type BindCall,
  type Binding,
  type Generation,
  type NewTask,
  type UnknownOutcome,
} from "../scripts/holds.ts";
import { type Unclear, unclear, type Voided, voidHold } from "../scripts/uncharged-holds.ts";
import { madeOnce } from "../telemetry/metrics/series.ts";

/**
 * A hold from admission to charge or void, as a request uses it. A hold ends in one of five ways:
 * - BIND charges it for the task that the upstream made: `bind`.
 * - VOID `refused`: it is certain that the upstream has made no task. It refused the request, answered 503, or could not be
 *   reached: `voidHold`.
 * - VOID `unsent`: nothing went upstream under this hold, because the gate before the upstream had no connection for the
 *   request (`voidHold`) or because its ADMIT got no reply (`admit`).
 * - VOID `due`: its due time has passed. The sweeper does this (sweeper.ts).
 * - VOID `released`: an operator released it: `releaseTask` in operations/tasks/operator-tasks.ts.
 *
 * A hold stays until its due time if the outcome is unknown: the upstream gave no answer or no clear one after the request
 * was sent, or it gave the id of another request's task, or the gateway ended. The due time is
 * `holdMs` after the admission; gateway/generate.ts sets `holdMs`, ADMIT stores the time. A hold that is void may still be charged: a BIND that comes
 * later charges it if the balance allows and its Idempotency-Key is not another request's by then (lua/generations/bind.lua).
 *
 * Settlements that the store does not answer are deferred (outbox.ts). How the task ends afterwards is decided in task-verdict.ts.
 */
export type Holds = ReturnType<typeof createHolds>;

/** Half of the retention, ms: of a request that the store has forgotten, BIND cannot tell whether it was charged. */
export const settleWithinMs = (retentionMs: number): number => retentionMs / 2;

/** An admission that leaves less than this share of the window is near the limit. */
const NEAR_LIMIT_SHARE = 0.2;

const UNMETERED_ID_DIGITS = 32;

type HoldConnection = Pick<Connection, "of" | "ofName" | "metrics" | "known" | "commandTimeoutMs">;

/** A request that is made from account and task, so that a task is bound once. */
function unmeteredOf({ of, known }: HoldConnection, generation: Generation, task: NewTask): Generation {
  const { accountId, partition } = generation.key;
  const digest = hash("sha256", `${accountId}\0${task.taskId}`);
  const requestId = `unmetered_${digest.slice(0, UNMETERED_ID_DIGITS)}`;
  const admittedAtMs = Math.floor(of(partition).nowMs());
  return { ...generation, requestId, storeId: known.facts?.id, price: 0, admittedAtMs };
}

function voidSettlement(
  { of }: HoldConnection,
  generation: Generation,
  reason: "refused" | "unsent",
): VoidSettlement {
  const { key, requestId, idempotency, storeId, retentionMs } = generation;
  const atMs = of(key.partition).nowMs();
  const call = { key, requestId, idempotencyDigest: idempotency?.digest, reason };
  return { script: "void", storeId, atMs, settleWithinMs: settleWithinMs(retentionMs), call };
}

/** @param settlements keeps what the store could not answer @throws GatewayError `store_unavailable` from `admit` */
export function createHolds(
  connection: HoldConnection,
  settlements: Pick<Settlements, "defer" | "charged" | "voided"> & Partial<Pick<Settlements, "confirm">>,
) {
  const { confirm } = settlements;
  const tasks = createTaskIds(connection);
  const nowMs = (partition: number): number => connection.of(partition).nowMs();

  /** Resolves once a replica or the journal has the charge, too, where that is asked for. Undefined: deferred. */
  async function bind(generation: Generation, task: NewTask): Promise<Binding | undefined> {
    const { partition } = generation.key;
    const charging: Charge = {
      script: "bind",
      storeId: generation.storeId,
      atMs: nowMs(partition),
      settleWithinMs: settleWithinMs(generation.retentionMs),
      call: bindCallOf(generation, task),
    };
    try {
      requireStoreOf(connection, charging);
      const outcome = await tasks.bind(charging.call);
      settlements.charged(charging, outcome);
      // The partition may have moved meanwhile: then its present primary has answered.
      if (confirm && outcome !== "conflict" && outcome !== "forgotten")
        await confirm(charging, connection.of(partition));
      return outcome;
    } catch (error) {
      await settlements.defer(charging, error);
      return undefined;
    }
  }

  return {
    ...createAdmission(connection, (generation) =>
      settlements.defer(voidSettlement(connection, generation, "unsent")),
    ),

    nowMs,
    bind,

    /** At price 0, without slot or window entry. */
    bindUnmetered: (generation: Generation, task: NewTask): Promise<Binding | undefined> =>
      bind(unmeteredOf(connection, generation, task), task),

    /** After this no task can come, but one that a callback has bound. `unsent` also removes the window entry. Undefined: deferred. */
    async voidHold(
      generation: Generation,
      tiers: Tiers,
      reason: "refused" | "unsent" = "refused",
    ): Promise<Voided | undefined> {
      const settlement = voidSettlement(connection, generation, reason);
      try {
        requireStoreOf(connection, settlement);
        const { run } = connection.of(generation.key.partition);
        const voided = await run(voidHold, { ...settlement.call, tiers });
        settlements.voided(voided.outcome);
        return voided;
      } catch {
        await settlements.defer(settlement);
        return undefined;
      }
    },

    /** For repeats with its Idempotency-Key and an account's bound. Best effort: the hold ends at its due time all the same. */
    noteUnknown(
      { key, requestId, idempotency }: Generation,
      unknown: UnknownOutcome,
      unknownMax: number,
    ): Promise<Unclear | undefined> {
      const { run } = connection.of(key.partition);
      const idempotencyDigest = idempotency?.digest;
      return run(unclear, { key, requestId, idempotencyDigest, unknown, unknownMax }).catch(() => undefined);
    },
  };
}

/** @param voidUnsent voids the request of an ADMIT that failed and may still run; resolves once that is on disk */
function createAdmission(connection: HoldConnection, voidUnsent: (generation: Generation) => Promise<void>) {
  const { metrics } = connection;

  const admissions = madeOnce((tier, outcome) => metrics.admissions.series({ tier, outcome }));

  function countAdmission(tier: string, outcome: Admission["outcome"], tiers: Tiers): void {
    admissions(tierLabel(tier, tiers), outcome).pending++;
  }

  // Both series of a tier exist from its first admission on.
  const nearLimits = madeOnce((tier) => {
    for (const limit of ["window", "slots"]) metrics.nearLimit.inc({ tier, limit }, 0);
    return {
      window: metrics.nearLimit.series({ tier, limit: "window" }),
      slots: metrics.nearLimit.series({ tier, limit: "slots" }),
    };
  });

  function countNearLimit(tier: string, left: LimitState): void {
    const { window, slots } = nearLimits(tier);
    if (left.remaining < left.limit * NEAR_LIMIT_SHARE) window.pending++;
    if (left.active >= left.concurrentLimit) slots.pending++;
  }

  function countShadow(tier: string, limits: readonly ShadowLimit[]): void {
    for (const limit of limits) metrics.shadowRefusals.inc({ tier, limit });
  }

  function send({ run, nowMs }: Primary, generation: Generation, tiers: Tiers): Promise<Admission> {
    const notAfterMs = Math.floor(nowMs() + connection.commandTimeoutMs);
    return run(admit, { generation, tiers, notAfterMs });
  }

  return {
    countAdmission,
    /** Decides whether a generation may run, and holds what it costs. One script call. */
    async admit(generation: Generation, tiers: Tiers): Promise<Admission> {
      const primary = connection.of(generation.key.partition);
      if (primary.queue.isFull()) await primary.queue.wait(generation.key.keyId);
      primary.requireUsable();
      generation.storeId = connection.known.facts?.id;
      let admission: Admission;
      try {
        admission = await send(primary, generation, tiers);
        // The store's clock stepped: the reply corrects ours, and nothing was written yet.
        if (admission.outcome === "stale") admission = await send(primary, generation, tiers);
      } catch (error) {
        // Unless the store has refused it, the ADMIT may still run. The VOID is on disk before the 503 goes out: a crash
        // right after it would leave the window entry behind.
        if (!isRefusedByStore((error as Error).cause)) await voidUnsent(generation);
        throw error;
      }
      countAdmission(admission.tier, admission.outcome, tiers);
      if (admission.outcome === "admitted") {
        generation.admittedAtMs = admission.admittedAtMs;
        countNearLimit(tierLabel(admission.tier, tiers), admission.state);
        if (admission.shadow) countShadow(tierLabel(admission.tier, tiers), admission.shadow);
      }
      return admission;
    },
  };
}

/** @throws when the present store is another than the one that admitted the request: only that one may settle it */
function requireStoreOf({ known }: HoldConnection, { storeId }: Charge | VoidSettlement): void {
  if (storeId !== known.facts?.id && storeId !== undefined)
    throw new Error("the request was admitted by another store");
}

function bindCallOf(generation: Generation, task: NewTask): BindCall {
  const { requestId, key, price, endpoint, retentionMs, admittedAtMs, idempotency } = generation;
  return {
    requestId,
    key,
    price,
    endpoint,
    retentionMs,
    admittedAtMs,
    idempotency,
    // Only repeats with the same Idempotency-Key are answered with the data.
    task: idempotency || task.data === "" ? task : { ...task, data: "" },
  };
}

/** The label of a tier: one that the config does not name, or no longer, is `other`. An unknown key has none. */
const tierLabel = (tier: string, tiers: Tiers): string =>
  Object.hasOwn(tiers, tier) ? tier : tier === "" ? "none" : "other";
