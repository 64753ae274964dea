import { OperatorError } from "../../records/operator-error.ts";

/** Settings for operations on webhook endpoints. */
export interface WebhookRules {
  /** Endpoints of an account, at most. */
  endpointsMax: number;
  newSecret(): string;
  /** For the store. */
  seal(secret: string): string;
  unseal(sealed: string): string;
  /** False for one that the key before has sealed. */
  isCurrent(sealed: string): boolean;
  /** The address to keep, or why none is called there. */
  checkAddress(url: string): { ok: true; url: string } | { ok: false; reason: string };
}

/** Without WEBHOOK_SECRET_KEY there are no endpoints. */
export const webhooksAreOff = (): OperatorError =>
  new OperatorError(
    "webhooks are off: set WEBHOOK_SECRET_KEY in the environment of the gateways, to at least 32 random characters",
    "webhooks_off",
  );
