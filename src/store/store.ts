import type { Tiers } from "../core/limits.ts";
import { endedTask, type Observation, unseenTask } from "../core/tasks.ts";
import { RECENT_TRANSACTIONS, transactionOf } from "../core/transactions.ts";
import {
  admissionOf,
  admitArgs,
  admitKeys,
  bindArgs,
  bindKeys,
  observeArgs,
  observeKeys,
  packTiers,
  stateOf,
  voidKeys,
} from "./calls.ts";
import type { Connection } from "./connection.ts";
import { ledgerEntry, type StreamEntry } from "./ledger-entries.ts";
import {
  claimName,
  idempotencyName,
  indexName,
  type KeyRef,
  keyRef,
  partitionOf,
  requestName,
  taskName,
} from "./names.ts";
import type {
  Admission,
  Binding,
  CreditAccount,
  Generation,
  Inspection,
  KnownTask,
  Observed,
  Store,
} from "./operations.ts";
import { isFinal, type Settlement } from "./outbox.ts";
import type { Reply } from "./scripts.ts";

/** How long an unsent VOID stands in the way of its ADMIT; far beyond any `not_after`. */
const TOMBSTONE_MS = 3_600_000;

/** Keys that are looked up wait in one line: whose they are is what is asked. */
const LOOKUPS = "look-ups";

/**
 * The store's operations as the handlers use them, one script call each.
 * @param nowMs tests pass the time in; without it Redis TIME is the clock
 * @throws GatewayError `store_unavailable` from every operation, unless it says otherwise
 */
export function createStore(connection: Connection, nowMs?: () => number): Store {
  const { call, metrics, queue } = connection;
  const now = (): string => (nowMs ? String(nowMs()) : "");
  const cluster = (): boolean => connection.facts()?.cluster ?? false;

  function countAdmission(tier: string, outcome: Admission["outcome"], tiers: Tiers): void {
    metrics.admissions.inc({ tier: tierLabel(tier, tiers), outcome });
  }

  function countBinding(reply: Reply, price: number): void {
    const outcome = reply[0] as Binding;
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
  async function takeBack(generation: Generation, error: unknown, tiers: Tiers): Promise<never> {
    // On disk before the 503 goes out: a crash right after it would leave the window entry behind.
    if (!isFinal((error as Error).cause)) await connection.defer(voiding(generation, "unsent", tiers));
    throw error;
  }

  function voiding(generation: Generation, reason: "refused" | "unsent", tiers: Tiers) {
    const { key, requestId, idempotency } = generation;
    return {
      requestId,
      storeId: generation.storeId,
      atMs: connection.nowMs(),
      settleWithinMs: settleWithinMs(generation),
      verb: "void" as const,
      keys: voidKeys(key, requestId, idempotency?.digest),
      args: [now(), packTiers(tiers), requestId, reason, TOMBSTONE_MS],
      settled(reply: Reply): void {
        if (reply[0] === "void") metrics.settlements.inc({ outcome: "void" });
      },
    };
  }

  /** @param turn whose turn it takes while too many calls are under way */
  async function inspect({ names, accountId }: KeyRef, tiers: Tiers, turn: string): Promise<Inspection> {
    if (queue.isFull()) await queue.wait(turn);
    const keys = [names.key, names.window, names.slots];
    const reply = await call("inspect", keys, [now(), packTiers(tiers), accountId, 0, ""]);
    return { outcome: reply[0] as "known" | "unknown_key", state: stateOf(reply), tier: String(reply[7]) };
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
      const { outcome } = await inspect(key, tiers, LOOKUPS);
      return outcome === "known" ? key : undefined;
    },

    async admit(generation, tiers) {
      if (queue.isFull()) await queue.wait(generation.key.keyId);
      connection.requireUsable();
      generation.storeId = connection.facts()?.id;
      const keys = admitKeys(generation);
      const ask = (): Promise<Reply> => {
        const notAfterMs = Math.floor((nowMs?.() ?? connection.nowMs()) + connection.commandTimeoutMs);
        return call("admit", keys, admitArgs(now(), tiers, generation, notAfterMs));
      };
      let admission: Admission;
      try {
        admission = admissionOf(await ask());
        // The store's clock stepped: its answer has taught us the new time, and nothing was done yet.
        if (admission.outcome === "stale") admission = admissionOf(await ask());
      } catch (error) {
        return takeBack(generation, error, tiers);
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

    async bind(generation, task, tiers) {
      const { requestId, price } = generation;
      const { taskId } = task;
      const keys = bindKeys(generation, taskId, cluster());
      const args = bindArgs(now(), tiers, generation, task);
      const settlement: Settlement = {
        requestId,
        storeId: generation.storeId,
        atMs: connection.nowMs(),
        settleWithinMs: settleWithinMs(generation),
        verb: "bind",
        keys,
        args,
        settled: (reply) => countBinding(reply, price),
      };
      if (cluster()) settlement.own = [[claimName(taskId)], [now(), "", requestId]];
      try {
        const reply = await connection.settle(settlement);
        countBinding(reply, price);
        return reply[0] as Binding;
      } catch {
        await connection.defer(settlement);
        return undefined;
      }
    },

    async giveBack(generation, tiers, reason = "refused") {
      const settlement = voiding(generation, reason, tiers);
      try {
        const reply = await connection.settle(settlement);
        settlement.settled(reply);
        return stateOf(reply);
      } catch {
        await connection.defer(settlement);
        return undefined;
      }
    },

    async noteUnknown({ key, requestId, idempotency }, outcome) {
      if (!idempotency) return;
      const name = idempotencyName(key.partition, idempotency.digest);
      await call("unclear", [name], [now(), "", requestId, outcome]).catch(() => undefined);
    },

    inspect: (key, tiers) => inspect(key, tiers, key.keyId),

    async inspectTask({ keyId, names, accountId, partition }, taskId, cacheMs, tiers) {
      if (queue.isFull()) await queue.wait(keyId);
      const keys = [names.key, names.window, names.slots, taskName(taskId, partition, cluster())];
      const args = [now(), packTiers(tiers), accountId, cacheMs, requestName(partition, "")];
      const reply = await call("inspect", keys, args);
      const common = { state: stateOf(reply), tier: String(reply[7]) };
      if (reply[0] !== "task") return { outcome: reply[0] as "unknown_key" | "not_found", ...common };
      const [requestId, creatorKeyId, fresh, status, data, createdAtMs, maxAgeMs, upstream] = reply.slice(8);
      const task: KnownTask = {
        taskId,
        requestId: String(requestId),
        creatorKeyId: String(creatorKeyId),
        fresh: fresh === 1,
        status: String(status),
        data: String(data),
        createdAtMs: Number(createdAtMs),
        ageMs: Number(reply[1]) - Number(createdAtMs),
        maxAgeMs: maxAgeMs ? Number(maxAgeMs) : undefined,
        upstream: upstream ? String(upstream) : undefined,
      };
      return { outcome: "task", ...common, task };
    },

    async isTaskBound(taskId) {
      const owner = cluster() ? claimName(taskId) : taskName(taskId, 0, false);
      return (await connection.command((redis) => redis.exists(owner))) === 1;
    },

    async observe({ partition, accountId, task }, said, { refundFailed, pollMs, maxAgeMs, poller, tiers }) {
      const keys = observeKeys(task, accountId, partition, cluster());
      if (poller) keys.push(poller.names.key, poller.names.window, poller.names.slots);
      const tell = (said: { status: Observation; data: string }): Promise<Reply> =>
        call(
          "observe",
          keys,
          observeArgs(now(), tiers, task.requestId, accountId, said, refundFailed, pollMs),
        );
      const reply = await tell(said);
      if (reply[0] !== "disputed") return settled(said.status, reply);
      // What was said may be about another account's task: only its age can end it.
      const { taskId } = task;
      const boundAtMs = Number(reply[11]);
      if (Number(reply[1]) >= boundAtMs + (Number(reply[12]) || maxAgeMs)) {
        return settled("expired", await tell({ status: "expired", data: endedTask(taskId, boundAtMs) }));
      }
      const seen = observedOf(reply);
      const before = seen.data === "" ? { status: "pending", data: unseenTask(taskId, boundAtMs) } : {};
      return { ...seen, ...before, outcome: "observed", isDisputed: true };

      function settled(status: Observation, reply: Reply): Observed {
        const observed = observedOf(reply);
        if (observed.outcome === "finished") countEnd(status, observed.refunded);
        return observed;
      }
    },

    async credits({ keyId, names, partition }, tiers) {
      if (queue.isFull()) await queue.wait(keyId);
      const keys = [names.key, names.window, names.slots, names.account, names.ledger];
      const reply = await call("credits", keys, [now(), packTiers(tiers), RECENT_TRANSACTIONS]);
      const latest = reply.slice(12) as StreamEntry[];
      const [outcome, , , , , , , tier, dailyLimit, balance, totalUsed, totalRequests] = reply;
      return {
        outcome: outcome as CreditAccount["outcome"],
        state: stateOf(reply),
        tier: String(tier),
        dailyLimit: Number(dailyLimit),
        balance: Number(balance),
        totalUsed: Number(totalUsed),
        totalRequests: Number(totalRequests),
        recent: latest.map((entry) => transactionOf(ledgerEntry(partition, entry))),
      };
    },
  };
}

/** Reads the reply of OBSERVE; see the header of lua/observe.lua. */
const observedOf = (reply: Reply): Observed => ({
  outcome: reply[0] as Observed["outcome"],
  state: stateOf(reply),
  status: String(reply[8]),
  data: String(reply[9]),
  refunded: Number(reply[10]),
});

function splitAtSpace(entry: string): [keyId: string, accountId: string] {
  const space = entry.indexOf(" ");
  return [entry.slice(0, space), entry.slice(space + 1)];
}

/** Half of what the store remembers: a request that it has forgotten would be charged once more. */
const settleWithinMs = ({ retentionMs }: Generation): number => retentionMs / 2;

/** The label of a tier: one that the config does not name, or no longer, is `other`. */
const tierLabel = (tier: string, tiers: Tiers): string => (Object.hasOwn(tiers, tier) ? tier : "other");
