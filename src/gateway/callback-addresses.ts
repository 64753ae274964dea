import { createHmac, timingSafeEqual } from "node:crypto";
import { deriveKey } from "../records/derived-keys.ts";

/** The path of a callback; its last part is the token. */
export const CALLBACKS = "/callbacks/";

/** Which request a callback is about. */
export interface CallbackTarget {
  partition: number;
  requestId: string;
}

export type CallbackAddresses = ReturnType<typeof createCallbackAddresses>;

const PURPOSE = "callback addresses";
/** 192 bits in base64url. */
const MAC_CHARS = 32;
const TOKEN = /^(\d{1,4})\.([\w-]{1,64})\.([\w-]{32})$/;

/**
 * The addresses that the upstream gets in place of a customer's `callBackUrl`. A token names a request and proves by a MAC that a
 * gateway made it, so an unknown one is refused without a look at Redis. Decision 0076.
 * @param secrets WEBHOOK_SECRET_KEY, then the previous one, whose tokens are still valid
 */
export function createCallbackAddresses(secrets: readonly [string, ...string[]]) {
  const keys = secrets.map((secret) => deriveKey(secret, PURPOSE));

  return {
    tokenOf({ partition, requestId }: CallbackTarget): string {
      const named = `${partition}.${requestId}`;
      return `${named}.${macOf(keys[0]!, named)}`;
    },
    /** @returns undefined for a token that no gateway of these secrets has made */
    read(token: string): CallbackTarget | undefined {
      const [, partition, requestId, mac] = TOKEN.exec(token) ?? [];
      if (partition === undefined || requestId === undefined || mac === undefined) return undefined;
      const given = Buffer.from(mac);
      const isOurs = keys.some((key) =>
        timingSafeEqual(Buffer.from(macOf(key, `${partition}.${requestId}`)), given),
      );
      return isOurs ? { partition: Number(partition), requestId } : undefined;
    },
  };
}

const macOf = (key: Buffer, named: string): string =>
  createHmac("sha256", key).update(named).digest("base64url").slice(0, MAC_CHARS);
