import { hash } from "node:crypto";

/** Charges in one table. A ledger with more is read several times, each time with the charges of a part of its requests. */
const CHARGES_AT_ONCE = 250_000;

/**
 * What requests were charged, in some 40 bytes each, however long their ids are: of an id there are 64 bits of its SHA-1.
 * Two of a million requests have the same with a probability of 1 in 30 million.
 */
export interface Charges {
  /** Whether this request is in this part. */
  concerns(requestId: string): boolean;
  /** Credits; negative once refunded. Undefined if it was not charged. */
  get(requestId: string): number | undefined;
  set(requestId: string, credits: number): void;
}

/**
 * @param options.part one of `parts`, from 0: only the requests that fall to it
 */
export function createCharges({ part = 0, parts = 1 } = {}): Charges {
  let size = 1024;
  let count = 0;
  let digests = new BigUint64Array(size);
  let credits = new Float64Array(size);

  /** Where this digest is, or its free place. */
  function placeOf(digest: bigint): number {
    let at = Number(digest & BigInt(size - 1));
    while (digests[at] !== 0n && digests[at] !== digest) at = (at + 1) % size;
    return at;
  }

  function grow(): void {
    const earlier = { digests, credits };
    size *= 2;
    digests = new BigUint64Array(size);
    credits = new Float64Array(size);
    for (const [at, digest] of earlier.digests.entries()) {
      if (digest === 0n) continue;
      const place = placeOf(digest);
      digests[place] = digest;
      credits[place] = earlier.credits[at]!;
    }
  }

  return {
    concerns: (requestId) => parts === 1 || sha1(requestId).readUInt32BE(8) % parts === part,
    get(requestId) {
      const place = placeOf(digestOf(requestId));
      return digests[place] === 0n ? undefined : credits[place];
    },
    set(requestId, amount) {
      const digest = digestOf(requestId);
      let place = placeOf(digest);
      if (digests[place] === 0n && ++count > size / 2) {
        grow();
        place = placeOf(digest);
      }
      digests[place] = digest;
      credits[place] = amount;
    },
  };
}

const sha1 = (text: string): Buffer => hash("sha1", text, "buffer");

/** 0 stands for a free place. */
const digestOf = (requestId: string): bigint => sha1(requestId).readBigUInt64BE(0) || 1n;

/** In how many parts a ledger of so many entries is read. */
export const partsOf = (entries: number, chargesAtOnce = CHARGES_AT_ONCE): number =>
  Math.max(1, Math.ceil(entries / chargesAtOnce));
