import type { BindCall, VoidCall } from "../../scripts/holds.ts";

/** A settlement whose outcome in the store may be unknown. It can be sent again: scripts are idempotent. */
interface Waiting {
  /** The store that admitted the request; no other is sent it. Missing where that store had no id. */
  storeId?: string | undefined;
  /** When it was first sent, Unix ms by the store's clock. */
  atMs: number;
  /** How long it may be sent, ms from `atMs`; see `settleWithinMs`. */
  settleWithinMs?: number;
  /** Until when it may be sent, Unix ms by the store's clock; fixed when it is put. */
  untilMs?: number;
  /** The store has answered it before, so its outcome is in the metrics already. Sent again, it counts as a replay. */
  replay?: boolean;
  /** BIND has answered `uncollected`, and a repeat will answer the same. Not written to the journal. */
  unpaid?: boolean;
  /** The store has answered it. It is kept until a replica has it, too, and sent again to a primary that may lack it. */
  acknowledged?: boolean;
}

export interface Charge extends Waiting {
  script: "bind";
  call: BindCall;
}

export interface VoidSettlement extends Waiting {
  script: "void";
  call: VoidCall;
}

export type Settlement = Charge | VoidSettlement;

/** A task that passed while the store was away: it is bound at price 0, of a request that was never admitted. */
export const isUnmetered = (settlement: Settlement): boolean =>
  settlement.script === "bind" && settlement.call.price === 0;

export const logFieldsOf = ({ call, script }: Settlement) => ({ request_id: call.requestId, script });
