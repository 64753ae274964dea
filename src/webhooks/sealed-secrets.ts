import { createCipheriv, createDecipheriv, hash, randomBytes } from "node:crypto";
import { deriveKey } from "../records/derived-keys.ts";

export interface SecretKeys {
  /** WEBHOOK_SECRET_KEY. */
  readonly secretKey: string | undefined;
  /** WEBHOOK_SECRET_KEY_PREVIOUS, while secrets are sealed again. */
  readonly previousSecretKey: string | undefined;
}

export type SecretBox = NonNullable<ReturnType<typeof openSecretBox>>;

/** The message never repeats the sealed text. */
export class SealedSecretError extends Error {
  override name = "SealedSecretError";
}

const FORMAT = "1";
const CIPHER = "aes-256-gcm";
const IV_BYTES = 12;
const TAG_BYTES = 16;

/** @returns undefined without a key: then there are no endpoints, and nothing is sent */
export function openSecretBox({ secretKey, previousSecretKey }: SecretKeys) {
  if (secretKey === undefined) return undefined;
  const current = sealingKey(secretKey);
  const keys = [current, ...(previousSecretKey === undefined ? [] : [sealingKey(previousSecretKey)])];
  return {
    /** @returns text for Redis that names its key */
    seal: (secret: string): string => sealWith(current, secret),
    /** @throws SealedSecretError if its key is not at hand, or the text was changed */
    unseal(sealed: string): string {
      const key = keys.find(({ prefix }) => sealed.startsWith(prefix));
      if (key === undefined) throw new SealedSecretError(`no key at hand opens it: ${keyName(sealed)}`);
      return unsealWith(key, sealed);
    },
    isCurrent: (sealed: string): boolean => sealed.startsWith(current.prefix),
    /** How secrets begin whose key is at hand. */
    prefixes: keys.map(({ prefix }) => prefix),
  };
}

interface SealingKey {
  /** Format and name of the key, in front of all that it has sealed. */
  readonly prefix: string;
  readonly bytes: Buffer;
}

function sealingKey(secretKey: string): SealingKey {
  const name = hash("sha256", deriveKey(secretKey, "name of the key of webhook secrets")).slice(0, 12);
  return { prefix: `${FORMAT}.${name}.`, bytes: deriveKey(secretKey, "webhook secrets") };
}

function sealWith({ prefix, bytes }: SealingKey, secret: string): string {
  const iv = randomBytes(IV_BYTES);
  const cipher = createCipheriv(CIPHER, bytes, iv).setAAD(Buffer.from(prefix));
  const sealed = Buffer.concat([iv, cipher.update(secret, "utf8"), cipher.final(), cipher.getAuthTag()]);
  return prefix + sealed.toString("base64url");
}

function unsealWith({ prefix, bytes }: SealingKey, sealed: string): string {
  const all = Buffer.from(sealed.slice(prefix.length), "base64url");
  if (all.length < IV_BYTES + TAG_BYTES) throw new SealedSecretError("it is too short");
  const decipher = createDecipheriv(CIPHER, bytes, all.subarray(0, IV_BYTES), { authTagLength: TAG_BYTES });
  decipher.setAAD(Buffer.from(prefix)).setAuthTag(all.subarray(-TAG_BYTES));
  try {
    return decipher.update(all.subarray(IV_BYTES, -TAG_BYTES), undefined, "utf8") + decipher.final("utf8");
  } catch {
    throw new SealedSecretError(`it was changed: ${keyName(sealed)}`);
  }
}

const keyName = (sealed: string): string => {
  const [format, name] = sealed.split(".", 2);
  return /^\w{1,20}$/.test(format ?? "") && /^\w{1,20}$/.test(name ?? "")
    ? `key ${name}`
    : "not a sealed secret";
};
