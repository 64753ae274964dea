import type { Redis } from "ioredis";
import { OperatorError } from "./accounts.ts";
import { storeNowMs } from "./keys.ts";
import { readMarks } from "./marks-file.ts";
import { META } from "./names.ts";
import { type Loss, type MissingEntry, missingEntries, readAcceptance } from "./store-marks.ts";

/**
 * What a store is known to lack: what a gateway has found, and what the marks in a folder say.
 * @param folder the journal's, on this machine; undefined if it is not known
 * @returns undefined if the store lacks nothing that is known here
 */
export async function knownLoss(redis: Redis, folder: string | undefined): Promise<Loss | undefined> {
  const id = await redis.hget(META, "id");
  const { epoch, older } = await readAcceptance(redis);
  const known = id === null || folder === undefined ? undefined : readMarks(folder).get(id);
  const here = known && known.epoch >= epoch ? await missingEntries(redis, known.marks) : [];
  const isBeforeAcceptance = known !== undefined && known.epoch > epoch;
  if (!older && here.length === 0 && !isBeforeAcceptance) return undefined;
  const missing = new Map<string, MissingEntry>();
  for (const entry of [...(older?.missing ?? []), ...here]) {
    const other = missing.get(entry.ledger);
    if (!other || entry.olderMs > other.olderMs) missing.set(entry.ledger, entry);
  }
  return { missing: [...missing.values()], charges: older?.charges ?? [] };
}

/**
 * Accepts a store that is older than what it confirmed: all gateways use it again, send it what they hold, and forget
 * what it confirmed before.
 * @returns what is known to be missing
 * @throws OperatorError when nothing is
 */
export async function acceptStore(redis: Redis, folder: string | undefined): Promise<Loss> {
  const loss = await knownLoss(redis, folder);
  if (!loss)
    throw new OperatorError(
      "this store has all that it is known to have confirmed; there is nothing to accept",
    );
  const { epoch, older } = await readAcceptance(redis);
  const nowMs = await storeNowMs(redis);
  await redis
    .multi()
    .hset(META, "epoch", Math.max(nowMs, 1 + Math.max(epoch, older?.epoch ?? 0)))
    .hdel(META, "older")
    .exec();
  return loss;
}
