import type { Redis } from "ioredis";
import { META } from "../../records/names.ts";
import { concerns, type Loss, type LossReport, lossInWords, readLossReport } from "./loss-report.ts";
import type { StorePart } from "./store-part.ts";

export function createReportedLosses(changed: (isOlder: boolean) => void) {
  /** Counts while the primary is unavailable. */
  let latest: Awaited<ReturnType<typeof readLossReport>> | undefined;
  const older = new Set<Redis>();

  function setOlder(redis: Redis, isOlder: boolean): void {
    if (isOlder) older.add(redis);
    else older.delete(redis);
    for (const one of older) if (one.status === "end") older.delete(one);
    changed(older.size > 0);
  }

  return {
    async read(part: StorePart): Promise<{ epoch: number; older: LossReport | undefined }> {
      if (!latest || !part.meta.isAway) latest = await part.within(readLossReport(part.meta.redis));
      const { epoch, older: reported } = latest;
      return { epoch, older: reported && concerns(reported, part) ? reported : undefined };
    },
    notOlder: ({ redis }: StorePart): void => setOlder(redis, false),
    refuse({ redis }: StorePart, loss: Loss): never {
      setOlder(redis, true);
      throw new Error(lossInWords(loss));
    },
    /** Writes a loss into `tg:meta`, so that gateways which never used the store refuse it, too. */
    async write({ meta, within }: StorePart, loss: LossReport): Promise<void> {
      const read = await within(readLossReport(meta.redis)).catch(() => undefined);
      const report = read?.older ? together(read.older, loss) : loss;
      const written = meta.redis.hset(META, "older", JSON.stringify(report));
      await within(written).catch(() => undefined);
    },
  };
}

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
