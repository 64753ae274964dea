import { partitionNames, requestName } from "../../records/names.ts";
import { requestOf } from "../../records/requests.ts";
import { many } from "../../redis/pipelines.ts";
import type { BindCall, Binding } from "../../scripts/bind.ts";
import type { PrimaryView } from "./loss-report.ts";

const KEPT_MS = 30_000;
const SHARE_AFTER_CUT = 0.75;
const READ_BATCH = 2000;

/** A BIND with its store and deadline (store's clock). */
export interface SentCharge {
  storeId?: string | undefined;
  atMs: number;
  settleWithinMs?: number;
  untilMs?: number;
  /** BIND has answered `uncollected`. Unknown after a restart. */
  unpaid?: boolean;
  call: BindCall;
}

/**
 * Confirmed charges of the last seconds, to be sent again if the store loses them. @param put resolves once the charge is on
 * disk @param max about 1 KB each
 */
export function createConfirmedCharges(put: (charge: SentCharge) => Promise<void>, max: number) {
  let kept: SentCharge[] = [];
  const resent = new WeakSet<SentCharge>();

  return {
    add(charge: SentCharge, outcome: Binding): void {
      if (outcome === "conflict" || outcome === "forgotten" || charge.storeId === undefined) return;
      if (outcome === "uncollected") charge.unpaid = true;
      kept.push(charge);
      if (kept.length < max && charge.atMs - kept[0]!.atMs < 2 * KEPT_MS) return;
      const since = charge.atMs - KEPT_MS;
      kept = kept.slice(-SHARE_AFTER_CUT * max).filter(({ atMs }) => atMs >= since);
    },
    async missingOn({ redis, has, within, nowMs }: PrimaryView, storeId: string): Promise<SentCharge[]> {
      const now = nowMs();
      kept = kept.filter(({ atMs, settleWithinMs = 0, untilMs = atMs + settleWithinMs }) => now < untilMs);
      const own = kept.filter(
        ({ storeId: id, call }) => id === storeId && has(partitionNames(call.key.partition).ledger),
      );
      const missing: SentCharge[] = [];
      for (let at = 0; at < own.length; at += READ_BATCH) {
        const batch = own.slice(at, at + READ_BATCH);
        const asked = many<string | null, SentCharge>(redis, batch, (pipe, { call }) =>
          pipe.get(requestName(call.key.partition, call.requestId)),
        );
        const states = (await within(asked)).map((text) => requestOf(text).state);
        missing.push(...batch.filter((_, of) => states[of] !== "bound" && states[of] !== "finished"));
      }
      return missing;
    },
    /** Resolves once they are on disk: an operator may take hours to accept the store. */
    async sendAgain(charges: readonly SentCharge[]): Promise<void> {
      const fresh = charges.filter((charge) => !resent.has(charge));
      for (const charge of fresh) resent.add(charge);
      await Promise.all(fresh.map(put));
    },
    forgetSentAgain(): void {
      kept = kept.filter((charge) => !resent.has(charge));
    },
  };
}
