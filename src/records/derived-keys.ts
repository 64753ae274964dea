import { hkdfSync } from "node:crypto";

const KEY_BYTES = 32;

/** A key of 32 bytes for one purpose. HKDF (RFC 5869), so that no purpose tells anything about another's key. */
export const deriveKey = (secretKey: string, purpose: string): Buffer =>
  Buffer.from(hkdfSync("sha256", secretKey, "tollgate", purpose, KEY_BYTES));
