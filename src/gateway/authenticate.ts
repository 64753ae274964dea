import { hash } from "node:crypto";
import { dropOldest } from "../domain/bounded.ts";
import { retrySeconds } from "../domain/envelope.ts";
import { type Refusal, refuse } from "../domain/errors.ts";

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
  /** @throws what `lookup` throws, for a key that is not cached */
  authenticate(authorization: string | undefined, address: string): Promise<Identity<Key>>;
  /** Cached keys, by their header in its usual spelling: a request is looked up without a text or a promise of its own. */
  readonly known: ReadonlyMap<string, KnownKey<Key>>;
  /** A script called this key invalid: it is looked up again next time, and this attempt counts as an unknown key. */
  evictCachedKey(token: string, address: string): void;
  /** True if the store may be asked about a key that this address may not use; limited as look-ups are. */
  mayLookUp(address: string): boolean;
  /** Counts the use of a key that this address may not use. @returns what an unknown key is answered from there */
  refuseAsUnknown(address: string): Refusal;
}

/**
 * Known keys are cached for the life of the process: each script decides whether a key is still valid. Unknown keys are limited per address;
 * beyond that limit they are looked up while a budget lasts, and the answer is the same. @param lookup by the token's SHA-256, hex
 */
export function createAuthenticator<Key>(options: {
  lookup(digest: string): Promise<Key | undefined>;
  unknownPerMinute: () => number;
  nowMs?: () => number;
  lookUps?: LookUpBudget;
}): Authenticator<Key> {
  const known = new Map<string, KnownKey<Key>>();
  const nowMs = options.nowMs ?? (() => performance.now());
  const unknown = createUnknownKeys(options.unknownPerMinute, nowMs, options.lookUps ?? LOOK_UPS);

  const find = async (token: string): Promise<Key | undefined> =>
    looksLikeKey(token) ? options.lookup(hash("sha256", token)) : undefined;

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
    known,
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

const ADDRESSES_MAX = 20_000;
const MINUTE_MS = 60_000;
const SECOND_MS = 1000;

/** Look-ups beyond an address's limit, so that valid keys behind it still pass. A burst of one second's budget is allowed. */
interface LookUpBudget {
  perSecond: number;
  perAddressAndSecond: number;
}

function createUnknownKeys(perMinute: () => number, nowMs: () => number, budget: LookUpBudget) {
  const counted = new Map<string, { count: number; sinceMs: number; lookUps: Bucket }>();
  const total = fullBucket(budget.perSecond, nowMs());
  /** Attempts in progress by address; at most as many as requests in flight. */
  const attempts = new Map<string, { inProgress: number; waiting: (() => void)[] }>();

  const thisMinute = (address: string) => {
    const entry = counted.get(address);
    return entry && nowMs() - entry.sinceMs < MINUTE_MS ? entry : undefined;
  };

  /** How long the address may not try unknown keys; 0 if it may. */
  const blockedMs = (address: string): number => {
    const entry = thisMinute(address);
    return entry && entry.count >= perMinute() ? entry.sinceMs + MINUTE_MS - nowMs() : 0;
  };

  return {
    blockedMs,
    /**
     * Each attempt in progress counts as if its key were unknown, so that simultaneous guesses cannot exceed the limit.
     * @returns 0 when it has begun, and `end` must follow; else ms until the address may try again
     */
    async begin(address: string): Promise<number> {
      for (;;) {
        const waitMs = blockedMs(address);
        if (waitMs > 0) return waitMs;
        const own = attempts.get(address);
        if (!own) {
          attempts.set(address, { inProgress: 1, waiting: [] });
          return 0;
        }
        if (own.inProgress + (thisMinute(address)?.count ?? 0) < perMinute()) {
          own.inProgress++;
          return 0;
        }
        await new Promise<void>((resolve) => own.waiting.push(resolve));
      }
    },
    /** True if a key may be looked up beyond the limit: an attacker behind a load balancer must not lock out its other customers. */
    mayLookUp(address: string): boolean {
      const entry = thisMinute(address);
      if (!entry) return true;
      refill(entry.lookUps, budget.perAddressAndSecond, nowMs());
      refill(total, budget.perSecond, nowMs());
      if (entry.lookUps.left < 1 || total.left < 1) return false;
      entry.lookUps.left--;
      total.left--;
      return true;
    },
    end(address: string): void {
      const own = attempts.get(address)!;
      own.inProgress--;
      if (own.inProgress === 0) attempts.delete(address);
      // One attempt may take its place. If all will be refused, or no other attempt will wake them, all are woken.
      const woken = own.inProgress === 0 || blockedMs(address) > 0 ? own.waiting.length : 1;
      for (const wake of own.waiting.splice(0, woken)) wake();
    },
    count(address: string): void {
      const entry = thisMinute(address);
      if (entry) {
        entry.count++;
        return;
      }
      counted.delete(address);
      dropOldest(counted, ADDRESSES_MAX);
      const lookUps = fullBucket(budget.perAddressAndSecond, nowMs());
      counted.set(address, { count: 1, sinceMs: nowMs(), lookUps });
    },
  };
}

interface Bucket {
  left: number;
  countedAtMs: number;
}

const fullBucket = (perSecond: number, atMs: number): Bucket => ({ left: perSecond, countedAtMs: atMs });

function refill(bucket: Bucket, perSecond: number, atMs: number): void {
  const earned = ((atMs - bucket.countedAtMs) / SECOND_MS) * perSecond;
  bucket.left = Math.min(perSecond, bucket.left + earned);
  bucket.countedAtMs = atMs;
}
