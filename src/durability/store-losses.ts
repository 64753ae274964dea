import { META, partitionOfName } from "../records/names.ts";
import type { Connection } from "../redis/connection.ts";
import type { Primary } from "../redis/primary.ts";
import type { FoundStore } from "../redis/store-facts.ts";
import type { Logger } from "../telemetry/log.ts";
import type { SentCharge } from "./losses/confirmed-charges.ts";
import { createFailoverLosses } from "./losses/failover-losses.ts";
import { type LastConfirmedFile, openLastConfirmed, replacedStore } from "./losses/last-confirmed.ts";
import { createLossDetector, type LossOptions } from "./losses/loss-detector.ts";
import { openRecentEntries } from "./losses/recent-entries.ts";
import type { StorePart } from "./losses/store-part.ts";
import type { createOutbox } from "./outbox/outbox.ts";
import type { FlushTarget } from "./outbox/outbox-sending.ts";
import { createReplay } from "./replay.ts";
import { createTerms, type Terms } from "./terms.ts";

const READ_EVERY_MS = 1000;
/**
 * Charges that can be sent again to a Redis that has lost them. A failover loses up to 30 s of them: this is 30 s of 1,250 a second.
 * One server that saves its file every second loses at most the last two; each charge kept longer costs the garbage collector.
 */
const CHARGES_KEPT = { withReplicas: 50_000, oneServer: 5_000 };

interface StoreLossesOptions {
  outbox: ReturnType<typeof createOutbox>;
  targetOf(primary: Primary): FlushTarget;
  /** Where the ledger entries that a store has confirmed are kept; without one, the last of each in memory only. */
  folder: string | undefined;
  othersWithinMs: number | undefined;
  log: Logger;
}

/** What the store has confirmed, and what is done before a primary is used that may have lost some of it. */
export function createStoreLosses(connection: Connection, options: StoreLossesOptions) {
  const { outbox, folder, log } = options;
  const lastConfirmed = openLastConfirmed(folder, log);
  const terms = createTerms(connection, { file: lastConfirmed, log });
  const { losses, beforeUse, close } = createLossGuard(connection, options, {
    lastConfirmed,
    recent: openRecentEntries(folder, log),
    sendAgain: (sent: SentCharge) => outbox.put({ ...sent, script: "bind", isCounted: true }),
    changed: (isOlder: boolean) => connection.metrics.storeOlder.set(isOlder ? 1 : 0),
    log,
  });
  const reading = readRegularly(connection, losses, terms);

  return {
    charged: losses.charged,
    requireMeant: createMeantRule(lastConfirmed, (isReplaced) =>
      connection.metrics.storeReplaced.set(isReplaced ? 1 : 0),
    ),
    /** Another store in its place is refused from now on. */
    identified: lastConfirmed.use,
    async beforeUse(primary: Primary): Promise<void> {
      await terms.requireLatest(primary);
      await beforeUse(primary);
    },
    async close(): Promise<void> {
      clearInterval(reading);
      close();
      await losses.close();
    },
  };
}

/** Whether a store may be used where others are known: an operator has to say so. Decision 0031. */
const createMeantRule =
  (known: LastConfirmedFile, changed: (isReplaced: boolean) => void) =>
  (found: FoundStore): void => {
    const isMeant = known.isMeant(found);
    changed(!isMeant);
    if (!isMeant) throw replacedStore(found.id);
  };

/** What one primary must have, with and without replicas. */
function createLossGuard(
  connection: Connection,
  { outbox, targetOf, folder, othersWithinMs }: StoreLossesOptions,
  common: Omit<LossOptions, "chargesMax">,
) {
  if (connection.confirms) {
    const losses = createFailoverLosses({
      ...common,
      folder,
      othersWithinMs,
      chargesMax: CHARGES_KEPT.withReplicas,
    });
    const part = (primary: Primary): StorePart => partOf(connection, primary);
    return { losses, ...createReplay(connection, { outbox, losses, targetOf, partOf: part }) };
  }
  const losses = createLossDetector({ ...common, chargesMax: CHARGES_KEPT.oneServer });
  return {
    losses,
    async beforeUse(primary: Primary): Promise<void> {
      const storeId = connection.facts()?.id;
      if (storeId !== undefined) await losses.requireNotOlder(partOf(connection, primary), storeId);
      await outbox.flush(targetOf(primary));
    },
    close: () => undefined,
  };
}

/** Reads what the ledgers have got, primary by primary. What fails here is no outage: the next look learns the same. */
function readRegularly(
  connection: Connection,
  { readNewEntries }: Pick<ReturnType<typeof createLossDetector>, "readNewEntries">,
  terms: Terms,
): NodeJS.Timeout {
  let isReading = false;

  async function read(): Promise<void> {
    const { id, partitions = 0 } = connection.facts() ?? {};
    if (isReading || id === undefined) return;
    isReading = true;
    for (const primary of connection.primaries()) {
      if (primary.breaker.isOpen()) {
        terms.unused(primary);
        continue;
      }
      const entries = readNewEntries(partOf(connection, primary), id, partitions);
      const isWhole = await primary.within(entries).catch(() => true);
      if (!isWhole) primary.breaker.trip("a ledger lacks what it has confirmed");
      const why = await terms.whyNot(primary).catch(() => undefined);
      if (why !== undefined) primary.breaker.trip(why);
    }
    isReading = false;
  }
  return setInterval(() => void read(), READ_EVERY_MS).unref();
}

function partOf(connection: Connection, primary: Primary): StorePart {
  const owner = connection.ofName(META);
  const { redis, within, nowMs, confirmation } = primary;
  /** Another run of the primary would confirm what it has never had. */
  const runId = confirmation?.runId();
  return {
    redis,
    within,
    nowMs,
    has: (name) =>
      connection.ofName(name) === primary && !connection.isFrozen(partitionOfName(name) ?? Number.NaN),
    confirmed:
      confirmation &&
      (async () =>
        runId !== undefined &&
        (await confirmation.confirmed()) === "replicas" &&
        confirmation.runId() === runId),
    meta: { redis: owner.redis, isAway: owner !== primary && owner.breaker.isOpen() },
  };
}
