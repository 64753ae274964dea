import type { Redis } from "ioredis";
import { META } from "../../records/names.ts";
import { concerns, type Loss, type LossReport, lossInWords, readLossReport } from "./loss-report.ts";
import type { StorePart } from "./store-part.ts";

/** What `tg:meta` says of losses, and what this gateway adds to it. */
export function createReportedLosses(changed: (isOlder: boolean) => void) {
  /** What its primary said last counts while that primary is away. */
  let latest: Awaited<ReturnType<typeof readLossReport>> | undefined;
  /** Primaries that this gateway does not use because of a loss. */
  const older = new Set<Redis>();

  function setOlder(redis: Redis, isOlder: boolean): void {
    if (isOlder) older.add(redis);
    else older.delete(redis);
    for (const one of older) if (one.status === "end") older.delete(one);
    changed(older.size > 0);
  }

  return {
    /** The latest acceptance, and a loss of this part of the store that is not accepted. */
    async read(part: StorePart): Promise<{ epoch: number; older: LossReport | undefined }> {
      if (!latest || !part.meta.isAway) latest = await part.within(readLossReport(part.meta.redis));
      const { epoch, older: reported } = latest;
      return { epoch, older: reported && concerns(reported, part) ? reported : undefined };
    },
    /** This part has lost nothing that counts. */
    notOlder: ({ redis }: StorePart): void => setOlder(redis, false),
    /** @throws Error in words that say what is missing */
    refuse({ redis }: StorePart, loss: Loss): never {
      setOlder(redis, true);
      throw new Error(lossInWords(loss));
    },
    /**
     * Adds a loss to `tg:meta`: gateways that never met the store refuse it by this field, and `tollgate store show` reads
     * it. If it cannot be written, this gateway refuses the store all the same.
     */
    async write({ meta, within }: StorePart, loss: LossReport): Promise<void> {
      const read = await within(readLossReport(meta.redis)).catch(() => undefined);
      const report = read?.older ? together(read.older, loss) : loss;
      const written = meta.redis.hset(META, "older", JSON.stringify(report));
      await within(written).catch(() => undefined);
    },
  };
}

/** The losses of two primaries. */
function together(one: LossReport, other: LossReport): LossReport {
  const missing = new Map([...one.missing, ...other.missing].map((entry) => [entry.ledger, entry]));
  const report: LossReport = {
    epoch: Math.max(one.epoch, other.epoch),
    missing: [...missing.values()],
    charges: [...one.charges, ...other.charges],
  };
  if (one.ledgers && other.ledgers) report.ledgers = [...new Set([...one.ledgers, ...other.ledgers])];
  return report;
}
