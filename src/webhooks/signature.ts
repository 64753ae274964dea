import { randomBytes } from "node:crypto";
import { Webhook } from "standardwebhooks";

const SECRET_BYTES = 32;

/** `whsec_` and 32 random bytes in base64. */
export const newSecret = (): string => `whsec_${randomBytes(SECRET_BYTES).toString("base64")}`;

interface SignedMessage {
  /** `webhook-id`, equal for all tries of a message. */
  readonly id: string;
  /** Unix seconds of the try: receivers refuse what is older than five minutes. */
  readonly timestampS: number;
  readonly body: string;
  /** The newest first. After a rotation both sign for a while. */
  readonly secrets: readonly string[];
}

interface SignatureHeaders {
  "webhook-id": string;
  "webhook-timestamp": string;
  "webhook-signature": string;
}

/** Standard Webhooks, symmetric signatures (v1). */
export function signHeaders({ id, timestampS, body, secrets }: SignedMessage): SignatureHeaders {
  const at = new Date(timestampS * 1000);
  return {
    "webhook-id": id,
    "webhook-timestamp": String(timestampS),
    "webhook-signature": secrets.map((secret) => new Webhook(secret).sign(id, at, body)).join(" "),
  };
}
