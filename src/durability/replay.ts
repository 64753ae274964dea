import type { Connection } from "../redis/connection.ts";
import type { Primary } from "../redis/primary.ts";
import type { createFailoverLosses } from "./losses/failover-losses.ts";
import type { StorePart } from "./losses/store-part.ts";
import type { createOutbox } from "./outbox/outbox.ts";
import type { FlushTarget } from "./outbox/outbox-sending.ts";
import { createReplaySigns } from "./replay-signs.ts";

/** Charges that are put into the outbox at a time. */
const PORTION = 2000;

/**
 * What a probe of a store with replicas does before its breaker closes: sends everything that waits and everything of the last
 * seconds that the primary lacks, waits for the other gateways to have done so, and then looks for what is lost. Decision 0047.
 */
export function createReplay(
  connection: Pick<Connection, "primaries" | "partitionOn" | "facts">,
  options: {
    outbox: Pick<ReturnType<typeof createOutbox>, "flush">;
    losses: ReturnType<typeof createFailoverLosses>;
    targetOf(primary: Primary): FlushTarget;
    partOf(primary: Primary): StorePart;
  },
) {
  const { outbox, losses, targetOf, partOf } = options;
  const signs = createReplaySigns(connection);

  /** Portion by portion, so that they do not push other settlements out of the outbox. */
  async function sendLost(primary: Primary, storeId: string): Promise<void> {
    const lost = await losses.lostCharges(partOf(primary), storeId);
    for (let at = 0; at < lost.length; at += PORTION) {
      await losses.sendAgain(lost.slice(at, at + PORTION));
      await outbox.flush(targetOf(primary));
    }
    losses.sentAgain();
  }

  return {
    async beforeUse(primary: Primary): Promise<void> {
      const runId = await primary.within(primary.confirmation!.identify());
      const storeId = connection.facts()?.id;
      if (storeId === undefined) return outbox.flush(targetOf(primary));
      await losses.requireAccepted(partOf(primary), storeId);
      await signs.around(primary, runId, async () => {
        await outbox.flush(targetOf(primary));
        await sendLost(primary, storeId);
      });
      await losses.requireComplete(partOf(primary), storeId);
      // Behind a proxy the next connection may lead to another server.
      if (primary.confirmation!.runId() !== runId) throw new Error("the connection closed meanwhile");
    },
    close: signs.close,
  };
}
