import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { replayedName } from "../records/names.ts";
import type { Connection } from "../redis/connection.ts";
import type { Primary } from "../redis/primary.ts";
import { forEachPrimary } from "../redis/repeated-work.ts";

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

/**
 * Gateways wait until all have sent again what a changed primary may lack: else one could admit on a balance that an answered charge
 * needs. Decision 0043.
 */
export function createReplayBarrier(connection: Pick<Connection, "primaries" | "partitionOn">) {
  const gateway = randomUUID();
  /** The run of a primary that this gateway has used, or has waited for the others at. */
  const known = new WeakMap<Primary, string>();
  const stop = forEachPrimary(connection.primaries, signAgain, { pauseMs: SIGN_EVERY_MS });

  const nameFor = (primary: Primary): string => replayedName(connection.partitionOn(primary));
  const sign = (primary: Primary, runId: string): Promise<unknown> =>
    primary.within(primary.redis.hset(nameFor(primary), gateway, `${Math.round(primary.nowMs())} ${runId}`));

  async function signAgain(primary: Primary): Promise<void> {
    const { confirmation, within } = primary;
    const runId = confirmation?.runId() ?? (confirmation && (await within(confirmation.identify())));
    if (runId !== undefined) await sign(primary, runId);
  }

  async function others(primary: Primary): Promise<Map<string, Sign>> {
    const signs = await primary.within(primary.redis.hgetall(nameFor(primary)));
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
    if (old.length > 0) await primary.within(primary.redis.hdel(nameFor(primary), ...old));
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

/** Gateways that used the primary before it changed, and lived then. Signs are compared with each other, not with a clock. */
function servingBefore(signs: ReadonlyMap<string, Sign>, runId: string): Set<string> {
  const latestMs = Math.max(0, ...[...signs.values()].map(({ atMs }) => atMs));
  const lives = ({ atMs }: Sign): boolean => latestMs - atMs <= SILENT_MS;
  return new Set([...signs].filter(([, sign]) => sign.runId !== runId && lives(sign)).map(([name]) => name));
}
