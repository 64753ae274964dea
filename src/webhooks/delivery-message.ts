import { randomBytes } from "node:crypto";
import { Webhook } from "standardwebhooks";
import type { StoredEvent } from "../records/deliveries.ts";
import type { LeasedDelivery } from "../scripts/webhooks.ts";
import type { SecretBox } from "./sealed-secrets.ts";
import type { Message } from "./sender.ts";

/** The envelope of `GET /api/v1/tasks/{id}` with type and time of the event beside it; the same for all tries. */
const messageBody = ({ type, atMs, data }: StoredEvent): string =>
  `{"type":"${type}","timestamp":"${new Date(atMs).toISOString()}","code":200,"msg":"success","data":${data}}`;

/** Makes the messages of deliveries. */
export function createMessages(box: Pick<SecretBox, "unseal">) {
  /** If the secret before a rotation cannot be opened, the present one signs alone: its key may be why it was rotated. */
  const secretsOf = ([present, ...earlier]: readonly string[]): string[] =>
    present === undefined ? [] : [box.unseal(present), ...earlier.flatMap(openedIfPossible)];

  function openedIfPossible(sealed: string): string[] {
    try {
      return [box.unseal(sealed)];
    } catch {
      return [];
    }
  }

  /** Signed for this time, if the account has a secret. @throws SealedSecretError if the present secret cannot be opened */
  return ({ eventId, event, url, secrets }: LeasedDelivery, nowMs: number): Message => {
    const body = messageBody(event);
    const timestampS = Math.floor(nowMs / 1000);
    const signed = { id: eventId, timestampS, body, secrets: secretsOf(secrets) };
    const { "webhook-signature": signature, ...named } = signHeaders(signed);
    return { url, body, headers: signature === "" ? named : { ...named, "webhook-signature": signature } };
  };
}

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
