import { randomBytes } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { dropOldest } from "../domain/bounded.ts";
import type { StoredEvent } from "../records/deliveries.ts";
import type { LeasedDelivery } from "../scripts/webhooks.ts";
import type { SecretBox } from "./sealed-secrets.ts";
import type { Message } from "./sender.ts";

/** The envelope of `GET /api/v1/tasks/{id}` with type and time of the event beside it; the same for all tries. */
const messageBody = ({ type, atMs, data }: StoredEvent): string =>
  `{"type":"${type}","timestamp":"${new Date(atMs).toISOString()}","code":200,"msg":"success","data":${data}}`;

/** Signers that are remembered: each message of an endpoint needs the same one. */
const SIGNERS_MAX = 1_000;

export function createMessages(box: Pick<SecretBox, "unseal">) {
  const signers = new Map<string, Webhook>();

  function signerOf(sealed: string): Webhook {
    const known = signers.get(sealed);
    if (known) return known;
    const signer = new Webhook(box.unseal(sealed));
    dropOldest(signers, SIGNERS_MAX);
    signers.set(sealed, signer);
    return signer;
  }

  /** If the secret before a rotation cannot be opened, the present one signs alone: its key may be why it was rotated. */
  const signersOf = ([present, ...earlier]: readonly string[]): Webhook[] =>
    present === undefined ? [] : [signerOf(present), ...earlier.flatMap(signerIfPossible)];

  function signerIfPossible(sealed: string): Webhook[] {
    try {
      return [signerOf(sealed)];
    } catch {
      return [];
    }
  }

  /** Signed for this time, if the account has a secret. @throws SealedSecretError if the present secret cannot be opened */
  return ({ eventId, event, url, secrets }: LeasedDelivery, nowMs: number): Message => {
    const body = messageBody(event);
    const timestampS = Math.floor(nowMs / 1000);
    const signed = { id: eventId, timestampS, body, signers: signersOf(secrets) };
    const { "webhook-signature": signature, ...named } = signHeaders(signed);
    return { url, body, headers: signature === "" ? named : { ...named, "webhook-signature": signature } };
  };
}

const SECRET_BYTES = 32;

export const newSecret = (): string => `whsec_${randomBytes(SECRET_BYTES).toString("base64")}`;

interface SignedMessage {
  /** `webhook-id`, equal for all tries of a message. */
  readonly id: string;
  /** Unix seconds of the try: receivers refuse what is older than five minutes. */
  readonly timestampS: number;
  readonly body: string;
  /** That of the newest secret first. After a rotation both sign for a while. */
  readonly signers: readonly Webhook[];
}

interface SignatureHeaders {
  "webhook-id": string;
  "webhook-timestamp": string;
  "webhook-signature": string;
}

/** Standard Webhooks, symmetric signatures (v1). */
export function signHeaders({ id, timestampS, body, signers }: SignedMessage): SignatureHeaders {
  const at = new Date(timestampS * 1000);
  return {
    "webhook-id": id,
    "webhook-timestamp": String(timestampS),
    "webhook-signature": signers.map((signer) => signer.sign(id, at, body)).join(" "),
  };
}
