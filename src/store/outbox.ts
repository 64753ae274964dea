import type { Logger } from "../telemetry/log.ts";
import type { Journal } from "./journal.ts";
import { taskName } from "./names.ts";
import { ItemError, type Reply, type Scripts, type Verb } from "./scripts.ts";

const ENTRIES_MAX = 50_000;
const FLUSH_BATCH = 200;
/** How long the mark of a disputed task id waits for the BIND of the request that owns it. */
const NOTED_MS = 3_600_000;

/** A settlement whose outcome in the store is unknown: safe to send again, each script has the effect of once. */
export interface Settlement {
  requestId: string;
  /** The store that admitted the request; no other is sent it. Missing where that store had no id. */
  storeId?: string | undefined;
  /** When it was first sent, Unix ms by the store's clock. */
  atMs: number;
  /** How long it may be sent, ms from `atMs`; half of the retention that its request's record was given. */
  settleWithinMs?: number;
  /** When it is given up, Unix ms by the store's clock; fixed when it is put. Lines of early releases have none. */
  untilMs?: number;
  verb: Verb & ("bind" | "void");
  keys: readonly string[];
  args: readonly (string | number)[];
  /** On a Redis Cluster: KEYS and ARGV of OWN, which goes before a BIND. */
  own?: readonly [keys: readonly string[], args: readonly (string | number)[]];
  /** Called with the reply once the store has answered. */
  settled?: (reply: Reply) => void;
}

/** The store that a flush talks to. */
export interface FlushTarget {
  scripts: Scripts;
  /** Undefined while the store has no id. */
  storeId: string | undefined;
  /** The store's clock, Unix ms. */
  nowMs(): number;
  /** How many partitions it has; only for a Redis Cluster. */
  partitions?: number | undefined;
  /** Told of each settlement that the store has answered. */
  confirmed?(settlement: Settlement, reply: Reply): void;
}

/** How many settlements wait, and how many of them for another store than the present one. */
export interface OutboxSize {
  entries: number;
  ofOtherStores: number;
}

/** Settlements of one store by verb and request id, oldest first. */
type Queue = Map<string, Settlement>;

/**
 * Settlements that wait for their store to answer again, one per request id and verb. Those of another store than the
 * present one wait until theirs is back. Bounded: beyond the bound the oldest is given up (its hold ends at the due
 * time), loudly.
 * @param options.settleWithinMs for settlements that do not say so themselves. Older ones are given up: the store may have
 *   forgotten their requests by then, and would charge them once more
 */
export function createOutbox(options: {
  log: Logger;
  journal: Journal;
  settleWithinMs(): number;
  changed(size: OutboxSize): void;
}) {
  const { journal, log } = options;
  /** By the store's id; empty for settlements of a store without one, which any store is sent. */
  const queues = new Map<string, Queue>();
  /** The store of the latest flush. */
  let present: string | undefined;

  function add(settlement: Settlement): void {
    const { storeId = "", verb, requestId } = settlement;
    const queue: Queue = queues.get(storeId) ?? new Map();
    queues.set(storeId, queue);
    queue.set(`${verb}:${requestId}`, settlement);
  }

  const queuesOf = (storeId: string | undefined): Queue[] =>
    [queues.get(""), storeId ? queues.get(storeId) : undefined].filter((queue) => queue !== undefined);
  const sum = (some: Iterable<Queue>): number => [...some].reduce((size, queue) => size + queue.size, 0);
  const size = (): number => sum(queues.values());
  /** How many a flush to this store would send. */
  const sizeFor = (storeId: string | undefined): number => sum(queuesOf(storeId));

  function reportSize(): void {
    options.changed({ entries: size(), ofOtherStores: size() - sizeFor(present) });
  }

  function giveUpOldest(): void {
    const firsts = [...queues.values()].flatMap((queue) => queue.entries().take(1).toArray());
    const [name, { requestId, verb, storeId = "" }] = firsts.reduce((a, b) =>
      b[1].atMs < a[1].atMs ? b : a,
    );
    queues.get(storeId)!.delete(name);
    log.error(
      { request_id: requestId, verb },
      "the outbox is full; its oldest settlement is given up; settle it by hand",
    );
  }

  /** Resolves once the settlement is on disk, or could not be put there: it is kept in memory either way. */
  async function put(settlement: Settlement): Promise<void> {
    if (size() >= ENTRIES_MAX) giveUpOldest();
    const { atMs, settleWithinMs = options.settleWithinMs(), untilMs = atMs + settleWithinMs } = settlement;
    const kept = { ...settlement, untilMs };
    add(kept);
    reportSize();
    await journal.append(kept).catch((error: unknown) => {
      log.error(
        { err: error, request_id: settlement.requestId },
        "the journal cannot be written; a crash now loses this charge",
      );
    });
  }

  async function send(target: FlushTarget, settlement: Settlement): Promise<void> {
    const { scripts, nowMs, partitions } = target;
    const { requestId, atMs, untilMs = atMs + options.settleWithinMs(), verb } = settlement;
    if (nowMs() > untilMs) {
      log.error({ request_id: requestId, verb }, "a settlement is too old to be sent; settle it by hand");
      return;
    }
    try {
      const reply = await settle((name, keys, args) => scripts[name](keys, args), settlement, partitions);
      target.confirmed?.(settlement, reply);
      settlement.settled?.(reply);
    } catch (error) {
      if (!wouldFailAgain(error)) throw error;
      log.error(
        { err: error, request_id: requestId, verb },
        "the store refuses a settlement; it is given up",
      );
    }
  }

  async function sendAll(target: FlushTarget, queue: Queue): Promise<void> {
    while (queue.size > 0) {
      const batch = queue.entries().take(FLUSH_BATCH).toArray();
      const results = await Promise.allSettled(
        batch.map(([name, settlement]) => send(target, settlement).then(() => queue.delete(name))),
      );
      reportSize();
      const failed = results.find((result) => result.status === "rejected");
      if (failed) throw failed.reason;
    }
  }

  return {
    /** Takes over what ended gateways left, now and later; `found` is told when there is something to flush. */
    watch: (found: () => void): Promise<void> =>
      journal.watch({
        waiting: () => [...queues.values()].flatMap((queue) => [...queue.values()]),
        take(settlements) {
          settlements.forEach(add);
          log.warn({ entries: settlements.length }, "settlements of a gateway that ended are replayed");
          reportSize();
          found();
        },
      }),
    put,
    size,
    sizeFor,
    /**
     * Sends everything that waits for this store, and leaves alone what waits for another. Throws on the first
     * failure; what was not answered stays.
     */
    async flush(target: FlushTarget): Promise<void> {
      const { storeId } = target;
      present = storeId;
      reportSize();
      do {
        for (const queue of queuesOf(storeId)) await sendAll(target, queue);
        // What came after its queue was sent is not answered, and stays on disk.
        if (sizeFor(storeId) > 0) continue;
        await journal.clear(storeId).catch((error: unknown) => {
          log.error({ err: error }, "the journal cannot be cleared; what it holds is settled already");
        });
        // Something may have come in the meantime, and nobody would send it once the breaker has closed.
      } while (sizeFor(storeId) > 0);
    },
  };
}

type Call = (verb: Verb, keys: readonly string[], args: readonly (string | number)[]) => Promise<Reply>;

/**
 * Sends one settlement. On a Redis Cluster a task id that another request owns ends it before BIND, and is marked as
 * disputed.
 * @param partitions how many there are
 * @returns the verb's reply, or OWN's when that says `conflict`
 */
export function settle(call: Call, settlement: Settlement, partitions = 0): Promise<Reply> {
  const { verb, keys, args, own } = settlement;
  if (!own) return call(verb, keys, args);
  return call("own", ...own).then(async (owned) => {
    if (owned[0] !== "conflict") return call(verb, keys, args);
    await dispute(call, settlement, String(owned[2]), partitions);
    return owned;
  });
}

/** Marks the record of the task id wherever it is; if it is nowhere yet, leaves a mark in each place where it may come. */
async function dispute(call: Call, { args }: Settlement, ownerId: string, partitions: number): Promise<void> {
  const [now = "", , , accountId = "", , , , taskId] = args;
  for (const lifetimeMs of [0, NOTED_MS]) {
    const replies = await Promise.all(
      Array.from({ length: partitions }, (_, partition) =>
        call(
          "dispute",
          [taskName(String(taskId), partition, true)],
          [now, "", ownerId, accountId, lifetimeMs],
        ),
      ),
    );
    if (replies.some(([outcome]) => outcome === "disputed")) return;
  }
}

/** A server that is not itself. */
const PASSING =
  /^(READONLY|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|CLUSTERDOWN|MOVED|ASK|TRYAGAIN|BUSY|NOSCRIPT)/;

/**
 * What Redis itself refuses a whole call with before anything of it has run, or says of a script that it has run. Other
 * words for a whole call may be those of a proxy, behind which the call may still run.
 */
const REFUSED = /^(OOM|NOPERM|NOAUTH|WRONGPASS|WRONGTYPE|CROSSSLOT) |user_script/;

/** True when the store answered and would answer the same again; false when it was away or not itself. */
export const isFinal = (error: unknown): boolean =>
  error instanceof ItemError
    ? !PASSING.test(error.message)
    : isReply(error) && !PASSING.test(error.message) && REFUSED.test(error.message);

/** What a script meets in its data. Up to Redis 7.0 a missing permission has the same word in front. */
const OF_THE_SCRIPT = /^(ERR (?!The user executing the script)|WRONGTYPE )/;

/**
 * True when the script itself would fail again. Stricter than `isFinal`: a charge is given up for nothing that an
 * operator can mend, such as a permission, a password or memory, and for nothing that is said of a whole call, which
 * may be a proxy's word.
 */
const wouldFailAgain = (error: unknown): boolean =>
  error instanceof ItemError && OF_THE_SCRIPT.test(error.message);

const isReply = (error: unknown): error is Error => error instanceof Error && error.name === "ReplyError";
