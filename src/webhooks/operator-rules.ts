import { dropOldest } from "../domain/bounded.ts";
import { readAddresses, type WebhookRules } from "../operations/webhooks/endpoints.ts";
import type { Connection } from "../redis/connection.ts";
import { hrefOf } from "./address-guard.ts";
import { newSecret } from "./delivery-message.ts";
import type { AddressPolicy } from "./public-address.ts";
import { openSecretBox, type SecretKeys } from "./sealed-secrets.ts";

/** @returns undefined without WEBHOOK_SECRET_KEY */
export function webhookRules(
  settings: SecretKeys & AddressPolicy & { endpointsPerAccount: number },
): WebhookRules | undefined {
  const box = openSecretBox(settings);
  if (!box) return undefined;
  return {
    endpointsMax: settings.endpointsPerAccount,
    newSecret,
    ...box,
    checkAddress: (text) => hrefOf(text, settings),
  };
}

/** An origin that an account has is not looked up again for this long. */
const ORIGIN_KEPT_MS = 30_000;
const ORIGINS_MAX = 10_000;

/** Which addresses of customers the gateway calls when the task of a request has ended. */
export function createCallbackGuard(connection: Pick<Connection, "of">) {
  const known = new Map<string, number>();
  return {
    check: hrefOf,
    /** True if the account has a webhook endpoint of this origin. @throws GatewayError `store_unavailable` */
    async hasOrigin(account: { accountId: string; partition: number }, origin: string): Promise<boolean> {
      const { accountId, partition } = account;
      const name = `${accountId} ${origin}`;
      if (performance.now() < (known.get(name) ?? 0)) return true;
      const urls = await connection
        .of(partition)
        .command((redis) => readAddresses(redis, partition, accountId));
      const has = urls.some((url) => URL.parse(url)?.origin === origin);
      known.delete(name);
      if (has) {
        dropOldest(known, ORIGINS_MAX);
        known.set(name, performance.now() + ORIGIN_KEPT_MS);
      }
      return has;
    },
  };
}
