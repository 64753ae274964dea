import type { StoredEvent } from "../records/deliveries.ts";
import type { LeasedDelivery } from "../scripts/lease-deliveries.ts";
import type { SecretBox } from "./sealed-secrets.ts";
import type { Message } from "./sender.ts";
import { signHeaders } from "./signature.ts";

/** The envelope of `GET /api/v1/tasks/{id}` with type and time of the event beside it; the same for all tries. */
const messageBody = ({ type, atMs, data }: StoredEvent): string =>
  `{"type":"${type}","timestamp":"${new Date(atMs).toISOString()}","code":200,"msg":"success","data":${data}}`;

/**
 * The message of a delivery, signed for a try at this time. Where the account has no secret it is not signed.
 * @throws SealedSecretError
 */
export function messageOf(delivery: LeasedDelivery, box: SecretBox, nowMs: number): Message {
  const { eventId, event, url, secrets } = delivery;
  const body = messageBody(event);
  const timestampS = Math.floor(nowMs / 1000);
  const signed = { id: eventId, timestampS, body, secrets: secrets.map(box.unseal) };
  const { "webhook-signature": signature, ...named } = signHeaders(signed);
  return { url, body, headers: signature === "" ? named : { ...named, "webhook-signature": signature } };
}
