import type { BindCall } from "../store/scripts/bind.ts";
import type { VoidCall } from "../store/scripts/void.ts";

/** A settlement whose outcome in the store may be unknown. It can be sent again: scripts are idempotent. */
interface Waiting {
  /** The store that admitted the request; no other is sent it. Missing where that store had no id. */
  storeId?: string | undefined;
  /** When it was first sent, Unix ms by the store's clock. */
  atMs: number;
  /** How long it may be sent, ms from `atMs`; half of the retention that its request's record was given. */
  settleWithinMs?: number;
  /** Until when it may be sent, Unix ms by the store's clock; fixed when it is put. Lines of early releases have none. */
  untilMs?: number;
  /** Its outcome is in the metrics already: the store confirmed it once, and lost it. */
  isCounted?: boolean;
  /** It was answered that it is not charged, and will be again. Only in memory. */
  isUncollected?: boolean;
  /** The store has answered it. It is kept until a replica has it, too, and sent again to a primary that may lack it. */
  isAnswered?: boolean;
}

/** Charges a request for the task that it got. */
export interface Charge extends Waiting {
  script: "bind";
  call: BindCall;
}

/** Voids a hold. */
export interface VoidSettlement extends Waiting {
  script: "void";
  call: VoidCall;
}

export type Settlement = Charge | VoidSettlement;
