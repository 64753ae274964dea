import { hash } from "node:crypto";
import { dropOldest } from "../domain/bounded.ts";
import { retrySeconds } from "../domain/envelope.ts";
import { type Refusal, refuse } from "../domain/errors.ts";
import { createUnknownKeys, type LookUpBudget } from "./unknown-keys.ts";

const KEYS_MAX = 100_000;
const TOKEN_CHARS_MAX = 256;
const LOOK_UPS: LookUpBudget = { perSecond: 1000, perAddressAndSecond: 250 };
/** The usual spelling. Other spellings that RFC 9110 section 11.1 allows are parsed by `authenticate`. */
const SCHEME = "Bearer ";

type Identity<Key> = { outcome: "known"; key: Key; token: string } | { outcome: "refused"; refusal: Refusal };

interface KnownKey<Key> {
  readonly key: Key;
  readonly token: string;
}

export interface Authenticator<Key> {
  /**
   * Finds the key of an `Authorization` header.
   * @throws what `lookup` throws, for a key that is not cached
   */
  authenticate(authorization: string | undefined, address: string): Promise<Identity<Key>>;
  /** Looks a key up in the cache alone, without a promise; undefined for a key that is not cached. */
  cached(authorization: string | undefined): KnownKey<Key> | undefined;
  /** A script called this key invalid: it is looked up again next time, and this attempt counts as an unknown key. */
  evictCachedKey(token: string, address: string): void;
  /** True if the store may be asked about a key that this address may not use; limited as look-ups are. */
  mayLookUp(address: string): boolean;
  /** Counts the use of a key that this address may not use. @returns what an unknown key is answered from there */
  refuseAsUnknown(address: string): Refusal;
}

/**
 * Finds the key of a bearer token. Known keys are cached for the life of the process, since each script decides whether the
 * key is still valid. Unknown keys are limited per client address. Beyond that limit keys are looked up while a budget lasts: a
 * valid key passes, and the answer to an unknown key is the same as to one that was not looked up.
 * @param lookup SHA-256 of the token, hex, to the key's reference
 */
export function createAuthenticator<Key>(options: {
  lookup(digest: string): Promise<Key | undefined>;
  unknownPerMinute: () => number;
  nowMs?: () => number;
  lookUps?: LookUpBudget;
}): Authenticator<Key> {
  /** By the header in its usual spelling: a request is looked up without a text of its own. */
  const known = new Map<string, KnownKey<Key>>();
  const nowMs = options.nowMs ?? (() => performance.now());
  const unknown = createUnknownKeys(options.unknownPerMinute, nowMs, options.lookUps ?? LOOK_UPS);

  const find = async (token: string): Promise<Key | undefined> =>
    looksLikeKey(token) ? options.lookup(hash("sha256", token)) : undefined;

  /** Looks up a key and caches it. */
  async function findKnown(token: string): Promise<Key | undefined> {
    // Another request may have cached it while this one waited.
    const header = SCHEME + token;
    const found = known.get(header)?.key ?? (await find(token));
    // One object per key: weak maps and sets keep what is known of the key under it.
    const key = known.get(header)?.key ?? found;
    if (key === undefined) return undefined;
    dropOldest(known, KEYS_MAX);
    known.set(header, { key, token });
    return key;
  }

  return {
    cached: (authorization) => (authorization === undefined ? undefined : known.get(authorization)),
    async authenticate(authorization, address) {
      const token = /^bearer +([^\s,]+) *$/i.exec(authorization ?? "")?.[1];
      if (token === undefined) return refused(refuse("missing_api_key"));
      const seen = known.get(SCHEME + token);
      if (seen !== undefined) return { outcome: "known", ...seen };

      const waitMs = await unknown.begin(address);
      if (waitMs > 0) {
        const key = unknown.mayLookUp(address) ? await findKnown(token) : undefined;
        if (key !== undefined) return { outcome: "known", key, token };
        return refused(tooMany(waitMs));
      }
      try {
        const key = await findKnown(token);
        if (key !== undefined) return { outcome: "known", key, token };
        unknown.count(address);
        return refused(refuse("invalid_api_key"));
      } finally {
        unknown.end(address);
      }
    },
    mayLookUp: (address) => unknown.blockedMs(address) === 0 || unknown.mayLookUp(address),
    refuseAsUnknown(address) {
      const waitMs = unknown.blockedMs(address);
      if (waitMs > 0) return tooMany(waitMs);
      unknown.count(address);
      return refuse("invalid_api_key");
    },
    evictCachedKey(token, address) {
      known.delete(SCHEME + token);
      unknown.count(address);
    },
  };
}

const tooMany = (waitMs: number): Refusal =>
  refuse("too_many_unknown_keys", { retryAfterSeconds: retrySeconds(waitMs) });
const looksLikeKey = (token: string): boolean => token.startsWith("sk_") && token.length <= TOKEN_CHARS_MAX;
const refused = (refusal: Refusal): { outcome: "refused"; refusal: Refusal } => ({
  outcome: "refused",
  refusal,
});
