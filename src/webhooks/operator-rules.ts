import type { WebhookRules } from "../operations/webhooks/webhook-rules.ts";
import { checkAddress } from "./address-guard.ts";
import type { AddressPolicy } from "./public-address.ts";
import { openSecretBox, type SecretKeys } from "./sealed-secrets.ts";
import { newSecret } from "./signature.ts";

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
    checkAddress(text) {
      const checked = checkAddress(text, settings);
      return checked.ok ? { ok: true, url: checked.url.href } : checked;
    },
  };
}
