import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { META, partitionOfName, replayedName } from "../records/names.ts";
import type { Connection } from "../redis/connection.ts";
import type { Primary } from "../redis/primary.ts";
import { forEachPrimary } from "../redis/repeated-work.ts";
import { isOfSlot } from "../redis/script-errors.ts";
import type { FoundStore } from "../redis/store-facts.ts";
import type { Logger } from "../telemetry/log.ts";
import { LastConfirmedFile, replacedStore } from "./losses/last-confirmed.ts";
import { createLossDetector, type LossDetector, type LossPolicy } from "./losses/loss-detector.ts";
import type { PrimaryView } from "./losses/loss-report.ts";
import { openRecentEntries } from "./losses/recent-entries.ts";
import type { createOutbox, FlushTarget } from "./outbox/outbox.ts";
import { createTerms, type Terms } from "./terms.ts";

/** So that they do not push other settlements out of the outbox. */
const PORTION = 2000;
/** A failover loses up to 30 s of charges: this is 30 s of 1,250 a second. */
const WITH_REPLICAS: LossPolicy = { survivesFailover: true, othersWithinMs: 30_000, chargesMax: 50_000 };
/** A server that saves its file every second loses at most the last two. Each charge kept longer costs the garbage collector. */
const ONE_SERVER: LossPolicy = { survivesFailover: false, othersWithinMs: 0, chargesMax: 5_000 };

interface StoreLossesOptions {
  outbox: ReturnType<typeof createOutbox>;
  targetOf(primary: Primary): FlushTarget;
  /** Keeps confirmed ledger entries; without one, the last of each ledger is in memory only. */
  folder: string | undefined;
  othersWithinMs: number | undefined;
  log: Logger;
}

/** Work before a primary is used that may have lost confirmed writes. Decisions 0031 and 0043. */
export function createStoreLosses(connection: Connection, options: StoreLossesOptions) {
  const { outbox, folder, log } = options;
  const { storeReplaced, storeOlder } = connection.metrics;
  const lastConfirmed = new LastConfirmedFile(folder, log);
  const terms = createTerms(connection, { file: lastConfirmed, log });
  const { othersWithinMs = WITH_REPLICAS.othersWithinMs } = options;
  const detector = createLossDetector({
    policy: connection.confirms ? { ...WITH_REPLICAS, othersWithinMs } : ONE_SERVER,
    lastConfirmed,
    recent: openRecentEntries(folder, log),
    folder,
    sendAgain: (sent) => outbox.put({ ...sent, script: "bind", replay: true }),
    changed: (isStale) => storeOlder.set(isStale ? 1 : 0),
    log,
  });
  const { complete, close } = createCompletion(connection, options, detector);
  const stopReading = readRegularly(connection, detector, terms);

  return {
    charged: detector.charged,
    /** A store in the place of another that is known must be accepted by an operator. @throws StoreError */
    requireMeant(found: FoundStore): void {
      const isMeant = lastConfirmed.isMeant(found);
      storeReplaced.set(isMeant ? 0 : 1);
      if (!isMeant) throw replacedStore(found.id);
    },
    identified: lastConfirmed.use,
    async beforeUse(primary: Primary): Promise<void> {
      await terms.requireLatest(primary);
      await complete(primary);
    },
    async close(): Promise<void> {
      await stopReading();
      await close();
      await detector.close();
    },
  };
}

/** Sends a primary everything that waits for it, and makes sure that nothing is missing. */
function createCompletion(
  connection: Connection,
  { outbox, targetOf }: StoreLossesOptions,
  detector: LossDetector,
) {
  const barrier = connection.confirms ? createReplayBarrier(connection) : undefined;

  async function replay(primary: Primary, view: PrimaryView, storeId: string): Promise<void> {
    await outbox.flush(targetOf(primary));
    const frozen = { nowMs: primary.nowMs, has: isFrozenOn(connection, primary) };
    const charges = [
      ...(await detector.missingCharges(view, storeId)),
      // A frozen partition cannot be asked what it lacks. Its charges are sent once it is thawed; a repeat changes nothing.
      ...detector.recentCharges(frozen, storeId),
    ];
    for (let at = 0; at < charges.length; at += PORTION) {
      await detector.sendAgain(charges.slice(at, at + PORTION));
      await outbox.flush(targetOf(primary));
    }
    detector.forgetSentAgain();
  }

  return {
    async complete(primary: Primary): Promise<void> {
      const { confirmation, within } = primary;
      const runId = confirmation && (await within(confirmation.identify()));
      const storeId = connection.known.facts?.id;
      if (storeId !== undefined) {
        const view = viewOf(connection, primary);
        await detector.requireComplete(view, storeId, async () =>
          barrier?.run(primary, runId, () => replay(primary, view, storeId)),
        );
      }
      // Behind a proxy the next connection may lead to another server.
      if (confirmation?.runId() !== runId) throw new Error("the connection closed meanwhile");
      if (storeId === undefined || !barrier) await outbox.flush(targetOf(primary));
    },
    close: async (): Promise<void> => barrier?.close(),
  };
}

/** Reads new ledger entries, and looks whether a primary must be left. @returns ends it */
function readRegularly(
  connection: Connection,
  { readNewEntries }: LossDetector,
  terms: Terms,
): () => Promise<void> {
  async function read(primary: Primary): Promise<void> {
    const { id, partitions = 0 } = connection.known.facts ?? {};
    if (id === undefined) return;
    const entries = readNewEntries(viewOf(connection, primary), id, partitions);
    const isWhole = await primary.within(entries).catch(() => true);
    if (!isWhole) primary.breaker.trip("a ledger lacks what it has confirmed");
    const leaveReason = await terms.leaveReason(primary);
    if (leaveReason !== undefined) primary.breaker.trip(leaveReason);
  }
  return forEachPrimary(connection.primaries, read, { away: terms.unused });
}

/** True for names of this primary whose partition is frozen or on its way to another. */
const isFrozenOn =
  (connection: Connection, primary: Primary) =>
  (name: string): boolean =>
    connection.ofName(name) === primary && connection.isFrozen(partitionOfName(name) ?? Number.NaN);

function viewOf(connection: Connection, primary: Primary): PrimaryView {
  const { redis, within, nowMs, confirmation } = primary;
  const isFrozen = isFrozenOn(connection, primary);
  /** Another run of the primary would confirm what it has never had. */
  const runId = confirmation?.runId();
  return {
    redis,
    within,
    nowMs,
    has: (name) => connection.ofName(name) === primary && !isFrozen(name),
    confirmed:
      confirmation &&
      (async () =>
        runId !== undefined &&
        (await confirmation.confirmed()) === "replicas" &&
        confirmation.runId() === runId),
    get meta() {
      const owner = connection.ofName(META);
      return { redis: owner.redis, isAway: owner !== primary && owner.breaker.isOpen };
    },
  };
}

/** A gateway whose latest sign is this much older than the latest of all has ended. */
const SILENT_MS = 15_000;
const SIGN_EVERY_MS = 5000;
/** Signs of gateways that ended are removed after this time. */
const KEPT_MS = 60_000;
const WAIT_MAX_MS = 3000;
const READ_EVERY_MS = 50;

/** When a gateway signed, Unix ms by the clock of its primary, and for which run of it. */
interface Sign {
  atMs: number;
  runId: string;
}

/** Also while Redis is out of memory: it still settles, and answers polls. */
const SIGN = '#!lua flags=allow-oom\nreturn redis.call("HSET", KEYS[1], ARGV[1], ARGV[2])';

/** Gateways wait until all have sent again what a primary may lack: else one admits on credits that a charge needs. Decision 0043. */
function createReplayBarrier(connection: Pick<Connection, "primaries" | "partitionOn">) {
  const gateway = randomUUID();
  /** The run of a primary that this gateway has used, or has waited for the others at. */
  const known = new WeakMap<Primary, string>();
  const stop = forEachPrimary(connection.primaries, signAgain, { pauseMs: SIGN_EVERY_MS });

  const nameFor = (primary: Primary): string => replayedName(connection.partitionOn(primary));
  const sign = (primary: Primary, runId: string): Promise<unknown> => {
    const text = `${Math.round(primary.nowMs())} ${runId}`;
    return unlessMoving(primary.within(primary.redis.eval(SIGN, 1, nameFor(primary), gateway, text)));
  };

  async function signAgain(primary: Primary): Promise<void> {
    const { confirmation, within } = primary;
    const runId = confirmation?.runId() ?? (confirmation && (await within(confirmation.identify())));
    if (runId !== undefined) await sign(primary, runId);
  }

  async function others(primary: Primary): Promise<Map<string, Sign>> {
    const signs = (await unlessMoving(primary.within(primary.redis.hgetall(nameFor(primary))))) ?? {};
    delete signs[gateway];
    return new Map(
      Object.entries(signs).map(([name, text]) => {
        const [atMs = "0", runId = ""] = text.split(" ");
        return [name, { atMs: Number(atMs), runId }];
      }),
    );
  }

  async function waitFor(primary: Primary, names: ReadonlySet<string>, runId: string, untilMs: number) {
    for (;;) {
      const signs = await others(primary);
      if ([...names].every((name) => signs.get(name)?.runId === runId)) return;
      if (performance.now() >= untilMs) return;
      await pause(READ_EVERY_MS, undefined, { ref: false });
    }
  }

  async function removeOld(primary: Primary, signs: ReadonlyMap<string, Sign>): Promise<void> {
    const old = [...signs].filter(([, { atMs }]) => primary.nowMs() - atMs > KEPT_MS).map(([name]) => name);
    if (old.length > 0) await unlessMoving(primary.within(primary.redis.hdel(nameFor(primary), ...old)));
  }

  return {
    /** @param replay resolves once this gateway has sent everything */
    async run(primary: Primary, runId: string | undefined, replay: () => Promise<void>): Promise<void> {
      if (runId === undefined || known.get(primary) === runId) return replay();
      const untilMs = performance.now() + WAIT_MAX_MS;
      const before = await others(primary);
      await replay();
      await sign(primary, runId);
      await waitFor(primary, servingBefore(before, runId), runId, untilMs);
      await removeOld(primary, before);
      known.set(primary, runId);
    },
    close: stop,
  };
}

/** While the slot of the signs moves nobody is waited for: one partition must not keep its primary from use. */
const unlessMoving = <T>(signs: Promise<T>): Promise<T | undefined> =>
  signs.catch((error: unknown) => {
    if (isOfSlot(error)) return undefined;
    throw error;
  });

/** Gateways that used the primary before it changed, and lived then. Signs are compared with each other, not with a clock. */
function servingBefore(signs: ReadonlyMap<string, Sign>, runId: string): Set<string> {
  const latestMs = Math.max(0, ...[...signs.values()].map(({ atMs }) => atMs));
  const lives = ({ atMs }: Sign): boolean => latestMs - atMs <= SILENT_MS;
  return new Set([...signs].filter(([, sign]) => sign.runId !== runId && lives(sign)).map(([name]) => name));
}
