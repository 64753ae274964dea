import { dropOldest } from "../domain/bounded.ts";
import type { StoredEvent } from "../records/deliveries.ts";
import type { LeasedDelivery } from "../scripts/lease-deliveries.ts";
import type { SecretBox } from "./sealed-secrets.ts";
import type { Message } from "./sender.ts";
import { signHeaders } from "./signature.ts";

/** The envelope of `GET /api/v1/tasks/{id}` with type and time of the event beside it; the same for all tries. */
const messageBody = ({ type, atMs, data }: StoredEvent): string =>
  `{"type":"${type}","timestamp":"${new Date(atMs).toISOString()}","code":200,"msg":"success","data":${data}}`;

/** Opened secrets that are kept: to open one takes longer than all else of a message. */
const OPENED_MAX = 1000;

/** Makes the messages of deliveries. */
export function createMessages(box: Pick<SecretBox, "unseal">) {
  const opened = new Map<string, string>();

  function secretOf(sealed: string): string {
    const known = opened.get(sealed);
    if (known !== undefined) return known;
    const secret = box.unseal(sealed);
    dropOldest(opened, OPENED_MAX);
    opened.set(sealed, secret);
    return secret;
  }

  /**
   * The message of a delivery, signed for a try at this time. Where the account has no secret it is not signed.
   * @throws SealedSecretError
   */
  return ({ eventId, event, url, secrets }: LeasedDelivery, nowMs: number): Message => {
    const body = messageBody(event);
    const timestampS = Math.floor(nowMs / 1000);
    const signed = { id: eventId, timestampS, body, secrets: secrets.map(secretOf) };
    const { "webhook-signature": signature, ...named } = signHeaders(signed);
    return { url, body, headers: signature === "" ? named : { ...named, "webhook-signature": signature } };
  };
}
