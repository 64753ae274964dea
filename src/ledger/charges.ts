import { hash } from "node:crypto";

const CHARGES_AT_ONCE = 250_000;

/** Some 40 bytes each: 64 bits of the id's SHA-1. Two of a million collide with a probability of 1 in 30 million. */
export interface Charges {
  concerns(requestId: string): boolean;
  /** Credits; negative once refunded. Undefined if not charged. */
  get(requestId: string): number | undefined;
  set(requestId: string, credits: number): void;
}

export function createCharges({ part = 0, parts = 1 } = {}): Charges {
  let size = 1024;
  let count = 0;
  let digests = new BigUint64Array(size);
  let credits = new Float64Array(size);

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

const digestOf = (requestId: string): bigint => sha1(requestId).readBigUInt64BE(0) || 1n;

export const partsOf = (entries: number, chargesAtOnce = CHARGES_AT_ONCE): number =>
  Math.max(1, Math.ceil(entries / chargesAtOnce));
