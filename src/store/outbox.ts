import type { Logger } from "../telemetry/log.ts";
import type { Journal } from "./journal.ts";
import type { Reply, Scripts, Verb } from "./scripts.ts";

const ENTRIES_MAX = 50_000;
const FLUSH_BATCH = 200;

/** A settlement whose outcome in the store is unknown: safe to send again, each script has the effect of once. */
export interface Settlement {
  requestId: string;
  /** When it was first sent, Unix ms by this machine's clock. */
  atMs: number;
  /** How long it may be sent, ms from `atMs`; half of the retention that its request's record was given. */
  settleWithinMs?: number;
  /** When it is given up, Unix ms; fixed when it is put. Lines of early releases have none. */
  untilMs?: number;
  verb: Verb & ("bind" | "void");
  keys: readonly string[];
  args: readonly (string | number)[];
  /** On a Redis Cluster: KEYS and ARGV of OWN, which goes before a BIND. */
  own?: readonly [keys: readonly string[], args: readonly (string | number)[]];
  /** Called with the reply once the store has answered. */
  settled?: (reply: Reply) => void;
}

/**
 * Settlements that wait for the store to answer again, oldest first, one per request id and verb. Bounded: beyond
 * the bound the oldest is given up (its hold ends at the due time), loudly.
 * @param options.settleWithinMs for settlements that do not say so themselves. Older ones are given up: the store may have
 *   forgotten their requests by then, and would charge them once more
 */
export function createOutbox(options: {
  log: Logger;
  journal: Journal;
  settleWithinMs(): number;
  changed(entries: number): void;
}) {
  const { journal, log } = options;
  const entries = new Map<string, Settlement>();
  const nameOf = ({ verb, requestId }: Settlement): string => `${verb}:${requestId}`;

  return {
    /** Takes over what ended gateways left, now and later; `found` is told when there is something to flush. */
    watch: (found: () => void): Promise<void> =>
      journal.watch({
        waiting: () => entries.values(),
        take(settlements) {
          for (const settlement of settlements) entries.set(nameOf(settlement), settlement);
          log.warn({ entries: settlements.length }, "settlements of a gateway that ended are replayed");
          options.changed(entries.size);
          found();
        },
      }),
    /** Resolves once the settlement is on disk, or could not be put there: it is kept in memory either way. */
    async put(settlement: Settlement): Promise<void> {
      if (entries.size >= ENTRIES_MAX) {
        const [oldest] = entries.values();
        const { requestId, verb } = oldest!;
        entries.delete(nameOf(oldest!));
        log.error(
          { request_id: requestId, verb },
          "the outbox is full; its oldest settlement is given up; settle it by hand",
        );
      }
      const { atMs, settleWithinMs = options.settleWithinMs() } = settlement;
      const kept = { ...settlement, untilMs: atMs + settleWithinMs };
      entries.set(nameOf(kept), kept);
      options.changed(entries.size);
      await journal.append(kept).catch((error: unknown) => {
        log.error(
          { err: error, request_id: settlement.requestId },
          "the journal cannot be written; a crash now loses this charge",
        );
      });
    },
    size: () => entries.size,
    /** Sends everything that waits. Throws on the first failure; what was not answered stays. */
    async flush(scripts: Scripts): Promise<void> {
      do {
        while (entries.size > 0) {
          const batch = entries.entries().take(FLUSH_BATCH).toArray();
          const results = await Promise.allSettled(batch.map(([name, entry]) => send(scripts, name, entry)));
          options.changed(entries.size);
          const failed = results.find((result) => result.status === "rejected");
          if (failed) throw failed.reason;
        }
        await journal.clear().catch((error: unknown) => {
          log.error({ err: error }, "the journal cannot be cleared; what it holds is settled already");
        });
        // Something may have come in the meantime, and nobody would send it once the breaker has closed.
      } while (entries.size > 0);
    },
  };

  async function send(scripts: Scripts, name: string, settlement: Settlement): Promise<void> {
    const { requestId, atMs, untilMs = atMs + options.settleWithinMs(), verb } = settlement;
    if (Date.now() > untilMs) {
      log.error({ request_id: requestId, verb }, "a settlement is too old to be sent; settle it by hand");
    } else {
      try {
        const reply = await settle((name, keys, args) => scripts[name](keys, args), settlement);
        settlement.settled?.(reply);
      } catch (error) {
        if (!wouldFailAgain(error)) throw error;
        log.error(
          { err: error, request_id: requestId, verb },
          "the store refuses a settlement; it is given up",
        );
      }
    }
    entries.delete(name);
  }
}

/**
 * Sends one settlement. On a Redis Cluster a task id that another partition owns ends it before BIND.
 * @returns the verb's reply, or OWN's when that says `conflict`
 */
export function settle(
  call: (verb: Verb, keys: readonly string[], args: readonly (string | number)[]) => Promise<Reply>,
  { verb, keys, args, own }: Settlement,
): Promise<Reply> {
  if (!own) return call(verb, keys, args);
  return call("own", ...own).then((owned) => (owned[0] === "conflict" ? owned : call(verb, keys, args)));
}

/** A server that is not itself. */
const PASSING =
  /^(READONLY|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|CLUSTERDOWN|MOVED|ASK|TRYAGAIN|BUSY|NOSCRIPT)/;

/** True when the store answered and would answer the same again; false when it was away or not itself. */
export const isFinal = (error: unknown): boolean => isReply(error) && !PASSING.test(error.message);

/** What a script meets in its data. Up to Redis 7.0 a missing permission has the same word in front. */
const OF_THE_SCRIPT = /^(ERR (?!The user executing the script)|WRONGTYPE )/;

/**
 * True when the script itself would fail again. Stricter than `isFinal`: a charge is given up for nothing that an
 * operator can mend, such as a permission, a password, memory, or a word that is not known here.
 */
const wouldFailAgain = (error: unknown): boolean => isReply(error) && OF_THE_SCRIPT.test(error.message);

const isReply = (error: unknown): error is Error => error instanceof Error && error.name === "ReplyError";
