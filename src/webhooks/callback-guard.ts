import { dropOldest } from "../domain/bounded.ts";
import { listEndpoints } from "../operations/webhooks/endpoints.ts";
import type { Connection } from "../redis/connection.ts";
import { type AddressPolicy, checkAddress } from "./address-guard.ts";

/** An origin that an account has is not looked up again for this long. */
const ORIGIN_KEPT_MS = 30_000;
const ORIGINS_MAX = 10_000;

/** Which addresses of customers the gateway calls when the task of a request has ended. */
export function createCallbackGuard(
  connection: Pick<Connection, "of" | "nodes">,
  nowMs: () => number = () => performance.now(),
) {
  const known = new Map<string, number>();
  return {
    /** @returns the address as it is called, or why it must not be, in words that follow its name */
    check(text: string, policy: AddressPolicy): { ok: true; url: string } | { ok: false; reason: string } {
      const checked = checkAddress(text, policy);
      return checked.ok ? { ok: true, url: checked.url.href } : checked;
    },
    /** True if the account has a webhook endpoint of this origin. @throws GatewayError `store_unavailable` */
    async hasOrigin(account: { accountId: string; partition: number }, origin: string): Promise<boolean> {
      const { accountId, partition } = account;
      const name = `${accountId} ${origin}`;
      if (nowMs() < (known.get(name) ?? 0)) return true;
      const endpoints = await connection
        .of(partition)
        .command(() => listEndpoints(connection.nodes, accountId));
      const has = endpoints.some(({ url }) => URL.parse(url)?.origin === origin);
      known.delete(name);
      if (has) {
        dropOldest(known, ORIGINS_MAX);
        known.set(name, nowMs() + ORIGIN_KEPT_MS);
      }
      return has;
    },
  };
}
