import type { Config } from "../../config/config.ts";
import { type WebhookRules, webhooksAreOff } from "../../operations/webhooks/endpoints.ts";

/** Loads the modules of webhooks only where they are on. @throws OperatorError `webhooks_off` */
export async function requireWebhooks(settings: Config["webhooks"]): Promise<WebhookRules> {
  if (settings.secretKey === undefined) throw webhooksAreOff();
  const { webhookRules } = await import("../../webhooks/operator-rules.ts");
  const rules = webhookRules(settings);
  if (!rules) throw webhooksAreOff();
  return rules;
}
