export const DELIVERY_STATES = ["waiting", "delivered", "failed"] as const;
export type DeliveryState = (typeof DELIVERY_STATES)[number];

/** A delivery as lua/include/deliveries.lua packs it. Times are Unix ms. */
export interface StoredDelivery {
  state: DeliveryState;
  /** Tries of its schedule so far. */
  tries: number;
  /** How often a gateway took it to send it; the number of its latest lease. */
  leases: number;
  /** When it is due, or has ended. */
  atMs: number;
  /** Undefined before its first try. */
  triedAtMs: number | undefined;
  tookMs: number;
  httpStatus: number | undefined;
  /** Text of the latest answer, or what went wrong. */
  answer: string;
}

/** An event as lua/include/events.lua packs it. */
export interface StoredEvent {
  type: string;
  atMs: number;
  accountId: string;
  data: string;
}

export function readDelivery(text: string): StoredDelivery {
  const [state, tries, leases, at, , triedAt, took, status, ...answer] = text.split(" ");
  return {
    state: state as DeliveryState,
    tries: Number(tries),
    leases: Number(leases),
    atMs: Number(at),
    triedAtMs: Number(triedAt) || undefined,
    tookMs: Number(took),
    httpStatus: Number(status) || undefined,
    answer: answer.join(" "),
  };
}

/** Of an account, the owner of deliveries to addresses that its requests name. */
export const CALLBACKS_OF = "callback@";
export const callbacksOf = (accountId: string): string => CALLBACKS_OF + accountId;

export function readAddress(text: string | null | undefined): { queueId: string; url: string } | undefined {
  const [queueId, url] = (text ?? "").split(" ");
  return queueId && url ? { queueId, url } : undefined;
}

export function readEvent(text: string): StoredEvent {
  const [type = "", at, accountId = "", ...data] = text.split(" ");
  return { type, atMs: Number(at), accountId, data: data.join(" ") };
}
